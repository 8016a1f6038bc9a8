// The tokeniser stored in a weights file. Tokeniser::load also reads it from such a file or from a run's
// folder.
#pragma once

#include <optional>
#include <string>

#include "text/tokeniser.h"

namespace tessera {

// The stored value for a model that reads bytes.
inline constexpr const char* kBytesTokeniser = "bytes";

// Returns the tokeniser stored in a weights file (.safetensors) or in the weights of a run's folder: a
// definition for Tokeniser::from_definition, or kBytesTokeniser. None if the path is neither or has no
// tokeniser.
std::optional<std::string> stored_tokeniser(const std::string& path);

// Loads the stored tokeniser. Throws Error with the path if it has none.
Tokeniser load_stored_tokeniser(const std::string& path);

}  // namespace tessera
