// Hugging Face's imagefolder: metadata.csv or metadata.jsonl with a column file_name, next to the images, in each of the
// split folders, or next to these folders, whose names then split it. Each file is read as a table. So are CUB-200-2011's
// lists by number.
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include "data/base/image_files.h"
#include "data/base/list_lines.h"
#include "data/base/source_kinds.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> folders_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error, ignored;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (const std::string name = entry->path().filename().string();
        !name.starts_with('.') && entry->is_directory(ignored))
      names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

constexpr const char* kRoboflow = "_classes.csv";  // of images with several labels

bool has_file_names(const fs::path& file) {
  constexpr std::streamsize kMostTitles = 65536;
  std::ifstream in(file, std::ios::binary);
  std::string first(kMostTitles, '\0');
  in.read(first.data(), kMostTitles);
  first.resize(static_cast<size_t>(in.gcount()));
  const std::string titles = first.substr(0, first.find('\n'));
  return titles.find(file.filename() == kRoboflow ? "filename" : "file_name") != std::string::npos;
}

// True if all folders are splits that hold images without class folders.
bool are_plain_splits(const fs::path& folder, const std::vector<std::string>& folders) {
  return std::ranges::all_of(folders, [&](const std::string& name) {
    return split_of_name(name).has_value() && folders_in(folder / name).empty();
  });
}

// Returns the metadata of the images in a folder, "" without it. Several other folders next to it are classes.
std::string metadata_in(const fs::path& folder) {
  constexpr std::array kNames = {"metadata.csv", "metadata.jsonl", kRoboflow};
  std::error_code error;
  for (const char* name : kNames)
    if (fs::is_regular_file(folder / name, error) && has_file_names(folder / name))
      if (const auto folders = folders_in(folder); folders.size() < 2 || are_plain_splits(folder, folders))
        return (folder / name).string();
  return "";
}

// Returns the metadata of a split folder, else that of the folder itself, "" without either.
std::string metadata_of(const std::string& path, Split split) {
  const fs::path root(path);
  if (has_numbered_lists(path)) return (root / "images.txt").string();
  const std::vector<std::string> folders = folders_in(root);
  const std::string train = split_folder(folders, Split::train, path),
                    own = split == Split::train ? train : split_folder(folders, split, path);
  if (!own.empty() && !train.empty())
    if (std::string found = metadata_in(root / own); !found.empty()) return found;
  return split == Split::train || train.empty() ? metadata_in(root) : "";
}

}  // namespace

bool is_metadata_path(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error) && !metadata_of(path, Split::train).empty();
}

std::unique_ptr<Source> open_metadata(const SourceConfig& config, Split split) {
  SourceConfig tables = config;
  const auto table_of = [](const std::string& path, Split of) {
    return is_metadata_path(path) ? metadata_of(path, of) : path;
  };
  tables.path = table_of(config.path, Split::train);
  tables.val_path = table_of(config.val_path.empty() ? config.path : config.val_path, Split::validation);
  if (tables.val_path.empty() && !config.val_path.empty())
    tables.val_path = table_of(config.val_path, Split::train);
  if (config.val_path.empty() && tables.val_path == tables.path) tables.val_path = "";  // by share
  return open_table(tables, split);
}

}  // namespace tessera::data
