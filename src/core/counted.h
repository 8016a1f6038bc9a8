// "1 image", "3 images": a number with its noun.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

// `plural` where it is not the noun with an s: counted(n, "class", "classes").
inline std::string counted(int64_t count, std::string_view noun, std::string_view plural = {}) {
  std::string out = std::to_string(count) + " ";
  if (count == 1) return out.append(noun);
  return plural.empty() ? out.append(noun) + "s" : out.append(plural);
}

}  // namespace tessera
