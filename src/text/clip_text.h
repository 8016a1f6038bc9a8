// CLIP's cleaning of a caption before its merges (Radford et al. 2021, simple_tokenizer).
#pragma once

#include <string>
#include <string_view>

namespace tessera::tokens {

// Repairs a text, resolves HTML references twice, collapses and trims white space, and lower-cases (with the
// final sigma). Repairs are the steps of ftfy that captions need: UTF-8 read as Windows-1252, ligatures,
// full-width letters, curly quotes, control characters, NFC.
std::u32string clean_caption(std::u32string_view text);

}  // namespace tessera::tokens
