// Images that a user names one by one: what `predict` and `features` read, and any program of one's own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/base/source.h"

namespace tessera::data {

// The bytes of one image file, named by its path. Fails where it is missing, no regular file (opening a pipe
// would wait for ever) or longer than 256 MiB, before anything is allocated.
RawSample read_image_file(const std::string& path);

// The path that stands for standard input; a file of that name is "./-".
inline constexpr std::string_view kStandardInput = "-";

// Image files in the order given; of a folder all images below it, in the order of their names. What is
// missing or cannot be read is an error of its own read() alone, so that the others can still be used.
class ImageFiles final : public Source {
 public:
  // Standard input is read() by none of them: a program that takes it reads it in its place.
  explicit ImageFiles(const std::vector<std::string>& paths);

  int64_t size() const override { return static_cast<int64_t>(paths_.size()); }
  RawSample read(int64_t index) const override;
  uint64_t fingerprint() const override;
  std::string describe() const override;
  const std::vector<std::string>& paths() const { return paths_; }
  // A line for each folder with files that are no images.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  void add_folder(const std::string& folder);

  std::vector<std::string> paths_;
  std::vector<std::string> notes_;
  std::vector<std::string> refusals_;  // why a path stands for no image, "" where it may
};

}  // namespace tessera::data
