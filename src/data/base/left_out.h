// Decides which files of a folder are images and counts the others, so that none is dropped silently.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace tessera::data {

// True if a file counts as an image: by its suffix, so that reading a damaged one reports it, else by its
// first bytes. False for folders, pipes and devices without an image suffix.
bool is_image_file(const std::string& path);

class LeftOut {
 public:
  void add(std::string_view file_name);
  void add_stray_image() { ++stray_images_; }  // an image outside the class folders
  bool empty() const { return by_suffix_.empty() && stray_images_ == 0; }
  // Returns "3 .txt, 1 .heic, 2 without suffix": most frequent first, rare kinds merged.
  std::string text() const;

 private:
  std::map<std::string, int64_t> by_suffix_;
  int64_t stray_images_ = 0;
};

}  // namespace tessera::data
