// Bytes as text (RFC 4648, section 4): pictures in pages, images in records, character maps of tokenisers.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

std::string to_base64(std::span<const std::byte> bytes);
// Nothing where a character is no digit of base64, or where digits are missing at the end. Padding may be left out.
std::optional<std::vector<std::byte>> from_base64(std::string_view text);

}  // namespace tessera
