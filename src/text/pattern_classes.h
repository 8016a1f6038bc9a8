// The named character classes of splitting expressions.
#pragma once

#include "text/pattern.h"

namespace tessera::tokens {

// Adds Oniguruma's \w.
void add_word(Pattern::Set& set);
// Returns the characters of a script ("Han"), or null if the script is unknown.
const std::vector<Pattern::Set::Range>* script_ranges(std::string_view name);
// Adds \h.
void add_hex_digits(Pattern::Set& set);
// Adds "[:name:]". Returns false if the name is unknown.
bool add_posix(std::string_view name, Pattern::Set& set);

}  // namespace tessera::tokens
