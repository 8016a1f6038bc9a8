// Symbolic links.
#pragma once

#include <string>

namespace tessera {

// Where a file will lie that is written as `path`: what a symbolic link names, there or not.
std::string behind_links(const std::string& path);

}  // namespace tessera
