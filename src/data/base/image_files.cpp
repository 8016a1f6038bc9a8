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
  std::vector<std::string> found;
  LeftOut left_out;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    const std::string path = entry->path().string(), name = entry->path().filename().string();
    const bool hidden = is_hidden(name);
    if (entry->is_directory(ignored)) {
      if (hidden) entry.disable_recursion_pending();
    } else if (!hidden && is_image_file(path)) {
      found.push_back(path);
    } else if (!hidden) {
      left_out.add(name);
    }
  }
  std::sort(found.begin(), found.end());
  paths_.insert(paths_.end(), found.begin(), found.end());
  const std::string others = left_out.empty() ? "" : "; left out: " + left_out.text();
  if (!error && !found.empty()) {
    if (!others.empty()) notes_.push_back(text(folder, ": ", counted(std::ssize(found), "image"), others));
    return;
  }
  refusals_.resize(paths_.size());
  paths_.push_back(folder);
  refusals_.push_back(error ? text("'", folder, "' cannot be listed: ", error.message())
                            : text("'", folder, "' holds no image", others));
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
