// Images that a user lists by path, as for `predict` and `features`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "data/base/source.h"

namespace tessera::data {

// Returns the bytes of one image file, named by its path. Before any allocation it throws if the file is
// missing, not regular (opening a pipe could block for ever) or longer than 256 MiB.
RawSample read_image_file(const std::string& path);

// The path that means standard input; a file of that name is "./-".
inline constexpr std::string_view kStandardInput = "-";

// Image files in the given order; a folder expands to all images below it, sorted by name. A missing or
// unreadable file throws only in its own read(), so that the others remain usable.
class ImageFiles final : public Source {
 public:
  // `standard_input` returns the bytes of the image "-"; without it, read() of "-" fails. Throws a usage error
  // if it would be read twice.
  explicit ImageFiles(const std::vector<std::string>& paths,
                      std::function<std::vector<std::byte>()> standard_input = {});

  int64_t size() const override { return static_cast<int64_t>(paths_.size()); }
  RawSample read(int64_t index) const override;
  uint64_t fingerprint() const override;
  std::string describe() const override;
  const std::vector<std::string>& paths() const { return paths_; }
  // An image's name in output: its path, "stdin" for standard input.
  const std::string& name(int64_t index) const;
  // One line for each folder that contains files other than images.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  void add_folder(const std::string& folder);

  std::function<std::vector<std::byte>()> standard_input_;
  std::vector<std::string> paths_;
  std::vector<std::string> notes_;
  std::vector<std::string> refusals_;  // the reason that a path is not an image, "" if it may be one
};

// Decides which files of a folder are images and counts the others, so that none is dropped silently.

// True if a file counts as an image: by its suffix, so that reading a damaged one reports it, else by its
// first bytes. False for folders, pipes and devices without an image suffix.
bool is_image_file(const std::string& path);

// True for names that begin with a dot, such as macOS's "._a.png", and for __MACOSX. All sources skip such
// files and folders.
bool is_hidden(std::string_view name);

// Returns the sorted paths of all files below a folder, without hidden files and folders. Follows links to folders, and
// visits each folder once. Throws if a folder cannot be listed.
std::vector<std::string> files_below(const std::string& folder);

// Returns the same files, without folders that cannot be listed; none if there are more than `most`.
std::vector<std::string> some_files_below(const std::string& folder, size_t most);

// True if a folder is the directory of a run, which is not read as data.
bool is_run_folder(const std::string& path);

class LeftOut {
 public:
  void add_run() { ++runs_; }
  void add(std::string_view file_name);
  void drop(std::string_view suffix);          // these files are read after all
  void add_stray_image() { ++stray_images_; }  // an image outside the class folders
  bool empty() const { return by_suffix_.empty() && stray_images_ == 0 && runs_ == 0; }
  // Returns "3 .txt, 1 .heic, 2 without suffix": most frequent first, rare kinds merged.
  std::string text() const;

 private:
  std::map<std::string, int64_t> by_suffix_;
  int64_t stray_images_ = 0, runs_ = 0;
};

// Returns a line for each table in a folder that has the labels or captions of images.
std::vector<std::string> unread_tables(const std::string& folder);

// Returns a line about the lists of splits in a folder, or in one of usual names inside it, that name images of the set
// in `root`.
std::vector<std::string> unread_lists(const std::string& folder, const std::string& root);

// Returns the captions of images in a folder if each has a text of its name, a.jpg and a.txt, else none. YOLO's labels are
// no captions.
std::vector<std::vector<std::string>> captions_next_to(const std::string& root,
                                                       const std::vector<std::string>& images);

}  // namespace tessera::data
