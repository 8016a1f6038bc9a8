#include "data/base/image_files.h"

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "core/text.h"
#include "data/base/source_kinds.h"
#include "io/files/file.h"
#include "io/files/path.h"

namespace tessera::data {

namespace fs = std::filesystem;

RawSample read_image_file(const std::string& path) {
  refuse_remote_path(path);
  std::error_code error;
  if (fs::is_other(fs::status(path, error)))
    fail("'", path, "' is a device or a pipe, must be a regular file");
  return {printable(path, kMostNameBytes), read_file(path, kMaxPictureBytes)};
}

ImageFiles::ImageFiles(const std::vector<std::string>& paths,
                       std::function<std::vector<std::byte>()> standard_input)
    : standard_input_(std::move(standard_input)) {
  for (const std::string& path : paths) {
    std::error_code error;
    if (fs::is_directory(path, error))
      add_folder(path);
    else
      paths_.push_back(path);
    refusals_.resize(paths_.size());
    if (path == kStandardInput && !standard_input_)
      refusals_.back() = "'-' is standard input, which this command does not read: name a file";
  }
  const auto times = std::count(paths_.begin(), paths_.end(), kStandardInput);
  if (times > 1 && standard_input_)
    fail_usage("'-' is ", times, " times among the images: standard input can be read once");
}

const std::string& ImageFiles::name(int64_t index) const {
  static const std::string piped = "stdin";
  const std::string& path = paths_[static_cast<size_t>(index)];
  return path == kStandardInput ? piped : path;
}

void ImageFiles::add_folder(const std::string& folder) {
  LeftOut left_out;
  int64_t found = 0;
  std::string refusal;
  try {
    for (const std::string& path : files_below(folder))
      if (is_image_file(path))
        paths_.push_back(path), ++found;
      else
        left_out.add(fs::path(path).filename().string());
  } catch (const Error& error) {
    refusal = error.what();
  }
  const std::string others = left_out.empty() ? "" : "; left out: " + left_out.text();
  if (refusal.empty() && found == 0) refusal = text("'", folder, "' holds no image", others);
  if (refusal.empty()) {
    if (!others.empty()) notes_.push_back(text(folder, ": ", counted(found, "image"), others));
    return;
  }
  refusals_.resize(paths_.size());
  paths_.push_back(folder);
  refusals_.push_back(refusal);
}

RawSample ImageFiles::read(int64_t index) const {
  const auto i = static_cast<size_t>(index);
  if (!refusals_[i].empty()) fail(refusals_[i]);
  if (paths_[i] == kStandardInput) return {name(index), standard_input_()};
  return read_image_file(paths_[i]);
}

uint64_t ImageFiles::fingerprint() const {
  Fingerprint print;
  print.add(paths_);
  return print.value();
}

std::string ImageFiles::describe() const { return text(size(), " image files"); }

}  // namespace tessera::data
