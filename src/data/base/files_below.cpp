#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "data/base/image_files.h"
#include "data/base/source_kinds.h"

namespace tessera::data {
namespace {

constexpr int kDeepest = 64;  // folders

using Visited = std::set<std::pair<dev_t, ino_t>>;

// Adds the files below a folder, up to one more than `most`. Returns the first folder that cannot be listed as a line.
std::string add_files(const std::filesystem::path& folder, int depth, size_t most, Visited& visited,
                      std::vector<std::string>& files) {
  struct stat place {};
  if (::stat(folder.c_str(), &place) == 0 && !visited.emplace(place.st_dev, place.st_ino).second) return "";
  if (depth > kDeepest) return text(folder.string(), " is more than ", kDeepest, " folders deep");
  std::string problem;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end;
       !error && entry != end && files.size() <= most; entry.increment(error)) {
    if (is_hidden(entry->path().filename().string())) continue;
    std::error_code ignored;
    if (!entry->is_directory(ignored))
      files.push_back(entry->path().string());
    else if (std::string line = add_files(entry->path(), depth + 1, most, visited, files); problem.empty())
      problem = std::move(line);
  }
  if (error) return text("'", folder.string(), "' cannot be listed: ", error.message());
  return problem;
}

}  // namespace

std::vector<std::string> files_below(const std::string& folder) {
  std::vector<std::string> files;
  Visited visited;
  if (const std::string problem = add_files(folder, 0, SIZE_MAX, visited, files); !problem.empty())
    fail(problem);
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> some_files_below(const std::string& folder, size_t most) {
  std::vector<std::string> files;
  Visited visited;
  add_files(folder, 0, most, visited, files);
  if (files.size() > most) return {};
  std::sort(files.begin(), files.end());
  return files;
}

std::string folder_below(const std::string& path, bool (*fits)(const std::string& folder), bool prefers_raw) {
  constexpr int kLevels = 4;
  std::filesystem::path folder = path;
  for (int level = 0; level < kLevels; ++level) {
    std::error_code error;
    if (fits(folder.string())) return folder.string();
    if (prefers_raw && std::filesystem::is_directory(folder / "raw", error)) {
      folder /= "raw";
      continue;
    }
    std::vector<std::filesystem::path> inside;
    for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error))
      if (std::error_code ignored;
          !is_hidden(entry->path().filename().string()) && entry->is_directory(ignored))
        inside.push_back(entry->path());
    if (inside.size() != 1) return "";
    folder = inside.front();
  }
  return "";
}

}  // namespace tessera::data
