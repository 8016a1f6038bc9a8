// A number with its noun: "1 image", "3 images".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

// `plural` is for nouns that do not just add an s: counted(n, "class", "classes").
inline std::string counted(int64_t count, std::string_view noun, std::string_view plural = {}) {
  std::string out = std::to_string(count) + " ";
  if (count == 1) return out.append(noun);
  return plural.empty() ? out.append(noun) + "s" : out.append(plural);
}

}  // namespace tessera
