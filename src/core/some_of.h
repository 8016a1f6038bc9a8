// "a, b, c, d and 8 more": the first names of a list, for an error line.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>

#include "core/text.h"

namespace tessera {

// Joins at most `most` names, each made printable and cut at `bytes`.
inline std::string some_of(std::span<const std::string> names, size_t most = 4, size_t bytes = 200) {
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), most); ++i)
    out += (i > 0 ? ", " : "") + printable(names[i], bytes);
  return names.size() > most ? out + " and " + std::to_string(names.size() - most) + " more" : out;
}

}  // namespace tessera
