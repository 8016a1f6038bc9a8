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

// True for names that begin with a full stop, as the "._a.png" that macOS leaves, and for __MACOSX. All sources
// pass over such files and folders.
bool is_hidden(std::string_view name);

// True if a folder is the directory of a run, whose images are no data.
bool is_run_folder(const std::string& path);

class LeftOut {
 public:
  void add_run() { ++runs_; }
  void add(std::string_view file_name);
  void add_stray_image() { ++stray_images_; }  // an image outside the class folders
  bool empty() const { return by_suffix_.empty() && stray_images_ == 0 && runs_ == 0; }
  // Returns "3 .txt, 1 .heic, 2 without suffix": most frequent first, rare kinds merged.
  std::string text() const;

 private:
  std::map<std::string, int64_t> by_suffix_;
  int64_t stray_images_ = 0, runs_ = 0;
};

}  // namespace tessera::data
