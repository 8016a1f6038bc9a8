#include "io/files/links.h"

#include <filesystem>

namespace tessera {

std::string behind_links(const std::string& path) {
  namespace fs = std::filesystem;
  constexpr int kMostLinks = 40;  // as in the kernel
  std::error_code nothing;
  fs::path at = path;
  for (int i = 0; i < kMostLinks && fs::is_symlink(at, nothing); ++i) {
    const fs::path to = fs::read_symlink(at, nothing);
    at = to.is_absolute() ? to : at.parent_path() / to;
  }
  return at.string();
}

}  // namespace tessera
