// Which files of a folder are images, and a count of those that are not, so that none vanishes without a word.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace tessera::data {

// Whether a file is listed as an image: by its suffix, so that a damaged one is named when it is read, else by its
// first bytes. False for folders, pipes and devices without a suffix of images.
bool is_image_file(const std::string& path);

class LeftOut {
 public:
  void add(std::string_view file_name);
  void add_stray_image() { ++stray_images_; }  // one that lies in no folder of a class
  bool empty() const { return by_suffix_.empty() && stray_images_ == 0; }
  // "3 .txt, 1 .heic, 2 without suffix": the most frequent first, rare kinds together.
  std::string text() const;

 private:
  std::map<std::string, int64_t> by_suffix_;
  int64_t stray_images_ = 0;
};

}  // namespace tessera::data
