// What CLIP's program does to a caption before its merges (Radford et al. 2021, simple_tokenizer).
#pragma once

#include <string>
#include <string_view>

namespace tessera::tokens {

// The text repaired (the steps of ftfy that captions need: UTF-8 that was read as Windows-1252, ligatures,
// full-width letters, curly quotes, control characters, NFC), references of HTML resolved twice, white space
// as single blanks without any at the ends, lower case with the final sigma.
std::u32string clean_caption(std::u32string_view text);

// "&amp;", "&#39;", "&#x27;" and the names of Latin-1 and of common punctuation; others stay as they are.
std::u32string resolve_references(std::u32string_view text);

}  // namespace tessera::tokens
