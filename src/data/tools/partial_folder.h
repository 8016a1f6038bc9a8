// A folder that is written beside its place and renamed at the end: there whole or not at all.
#pragma once

#include <filesystem>
#include <string>

namespace tessera::data {

// Fails unless a finished folder can take that place: nothing or an empty folder is there, no link, not the folder one is in.
// Without slashes at its end.
std::string folder_to_write(const std::string& path);

// PATH.partial; gone with this object unless it was put in place.
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
