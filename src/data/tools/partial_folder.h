// A folder that is written under a temporary name next to its target and renamed at the end: complete or
// absent.
#pragma once

#include <filesystem>
#include <string>

namespace tessera::data {

// Returns the path without trailing slashes. Throws unless a finished folder can be renamed to it: it must be
// missing or an empty folder, not a link and not the current folder.
std::string folder_to_write(const std::string& path);

// PATH.partial; removed with this object unless it was put in place.
class PartialFolder {
 public:
  explicit PartialFolder(const std::string& target);
  ~PartialFolder();
  PartialFolder(const PartialFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void put_in_place();

 private:
  std::filesystem::path target_, path_;
  bool existed_ = false, done_ = false;
};

}  // namespace tessera::data
