// Symbolic links.
#pragma once

#include <string>

namespace tessera {

// Returns the target of a write to `path`: resolves symbolic links, dangling ones too.
std::string behind_links(const std::string& path);

}  // namespace tessera
