// Shared code of sources with one file per sample: ImageFolder and tables. Internal to this folder.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "data/base/source.h"

namespace tessera::data {

// Endings of masks after the image's name.
inline constexpr std::array<std::string_view, 7> kMaskEndings = {
    "", "_mask", "_segmentation", "_seg", "_label", "_gt", "_L"};

struct FileSet {
  std::string shown;               // the path that was given
  std::string root;                // relative paths start here
  std::vector<std::string> paths;  // [size]
  bool multi_label = false;
  std::vector<int64_t> labels;                     // [size]; -1 each if multi-label
  std::vector<std::vector<int64_t>> label_lists;   // [size] if multi-label, else empty
  std::vector<std::vector<std::string>> captions;  // [size] if the set has captions, else empty
  std::vector<std::string> classes;
  std::vector<std::string> problems, warnings;
  std::string left_out;  // counts of the folder's files that are not images; "" if none

  std::vector<int64_t> counts() const;            // samples of each class
  void keep(const std::vector<int64_t>& chosen);  // drops the others
};

class FileSource : public LabelledSource {
 public:
  explicit FileSource(FileSet set) : set_(std::move(set)) {}
  virtual const char* kind() const = 0;

  int64_t size() const override { return static_cast<int64_t>(set_.paths.size()); }
  RawSample read(int64_t index) const override;
  int64_t label(int64_t index) const override { return set_.labels[static_cast<size_t>(index)]; }
  std::vector<int64_t> labels(int64_t index) const override;
  bool multi_label() const override { return set_.multi_label; }
  const std::vector<std::string>& class_names() const override { return set_.classes; }
  uint64_t fingerprint() const override;  // reads the size of every file
  std::string describe() const override;
  std::vector<std::string> problems() const override { return set_.problems; }
  std::vector<std::string> warnings() const override;

 private:
  std::string full_path(int64_t index) const;
  FileSet set_;
};

}  // namespace tessera::data
