// The `truncation` and `padding` of a tokenizer.json.
#pragma once

#include <string_view>

#include "text/tokeniser.h"

namespace tessera {

// Returns the encoding that the tokeniser's file sets: the text's tokens are cut so that max_length holds them and
// the template's, then padded. Without these settings it is encode_with_offsets(). Throws Error for an invalid one.
Encoding encode_as_stored(const Tokeniser& tokeniser, std::string_view text, bool special = true);

}  // namespace tessera
