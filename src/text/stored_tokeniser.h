// The tokeniser that travels in a weights file. Tokeniser::load reads it from such a file, or a run's folder, too.
#pragma once

#include <optional>
#include <string>

#include "text/tokeniser.h"

namespace tessera {

// What stands for a model that reads bytes.
inline constexpr const char* kBytesTokeniser = "bytes";

// What a weights file (.safetensors), or the weights in the folder of a run, hold as their tokeniser: a definition as
// Tokeniser::from_definition reads it, or kBytesTokeniser. None where the path is neither, or they hold none.
std::optional<std::string> stored_tokeniser(const std::string& path);

// The same ready for use; an error that names the path where there is none.
Tokeniser load_stored_tokeniser(const std::string& path);

}  // namespace tessera
