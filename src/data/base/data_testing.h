// Shared by the tests of this folder: a temporary folder, and the text of an error.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "core/error.h"
#include "data/base/source.h"

namespace tessera::data {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tessera_data_XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) fail("no temporary folder");
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;

  std::string path(const std::string& name = "") const { return name.empty() ? path_ : path_ + "/" + name; }
  // Writes a file, creates its folders, and returns its path.
  std::string write(const std::string& name, const std::string& content) const {
    const std::filesystem::path file = path(name);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << content;
    return file.string();
  }

 private:
  std::string path_;
};

// Requires a source that has classes.
inline const ClassLabels& labels_in(const Source& source) { return *source.class_labels(); }
inline std::vector<int64_t> labels_of(const Source& source) {
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < source.size(); ++i) labels.push_back(labels_in(source).label(i));
  return labels;
}

// Returns the line of the Error that `work` throws, with the folder's path replaced by DIR.
template <class Work>
std::string error_of(const Work& work, const TemporaryFolder* folder = nullptr) {
  std::string line = "no error";
  try {
    work();
  } catch (const Error& error) {
    line = error.what();
  }
  for (size_t at = 0; folder != nullptr && (at = line.find(folder->path())) != std::string::npos;)
    line.replace(at, folder->path().size(), "DIR");
  return line;
}

}  // namespace tessera::data
