// Base64 (RFC 4648, section 4): images in pages and records, character maps of tokenisers.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

std::string to_base64(std::span<const std::byte> bytes);
// Returns nothing if a character is not a base64 digit or if final digits are missing. Padding is optional.
std::optional<std::vector<std::byte>> from_base64(std::string_view text);

}  // namespace tessera
