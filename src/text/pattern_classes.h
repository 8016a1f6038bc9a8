// Classes of characters that splitting expressions name.
#pragma once

#include "text/pattern.h"

namespace tessera::tokens {

// Adds what \w holds in Oniguruma.
void add_word(Pattern::Set& set);
// The characters of a script ("Han"); null for one that is not known.
const std::vector<Pattern::Set::Range>* script_ranges(std::string_view name);
// Adds what \h holds.
void add_hex_digits(Pattern::Set& set);
// Adds what "[:name:]" holds. False for a name that is none.
bool add_posix(std::string_view name, Pattern::Set& set);

}  // namespace tessera::tokens
