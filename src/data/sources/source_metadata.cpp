// Hugging Face's imagefolder: metadata.csv or metadata.jsonl with a column file_name, next to the images, in each of the
// split folders, or next to these folders, whose names then split it. Each file is read as a table. So are CUB-200-2011's
// lists by number, and train.csv and val.csv next to a folder of images.
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>

#include "core/text.h"
#include "data/base/image_files.h"
#include "data/base/list_lines.h"
#include "data/base/source_kinds.h"
#include "data/base/table_columns.h"

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

std::string start_of(const fs::path& file) {
  constexpr std::streamsize kMostTitles = 65536;
  std::ifstream in(file, std::ios::binary);
  std::string first(kMostTitles, '\0');
  in.read(first.data(), kMostTitles);
  first.resize(static_cast<size_t>(in.gcount()));
  return first;
}

bool has_file_names(const fs::path& file) {
  const std::string first = start_of(file), titles = first.substr(0, first.find('\n'));
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

// True if the folders in a folder are one of images by its usual name, or splits, without folders of classes in them.
bool has_images_alone(const fs::path& folder) {
  constexpr std::array kImages = {"images", "image", "imgs", "img"};
  const std::vector<std::string> folders = folders_in(folder);
  if (folders.size() == 1 && std::ranges::count(kImages, lower(folders[0])) == 1)
    return are_plain_splits(folder / folders[0], folders_in(folder / folders[0]));
  return !folders.empty() && are_plain_splits(folder, folders);
}

// The tables of images and labels in a folder, by their names without suffix.
std::map<std::string, fs::path> label_tables(const fs::path& folder) {
  std::map<std::string, fs::path> tables;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const fs::path& file = entry->path();
    const std::string suffix = lower(file.extension().string());
    if ((suffix == ".csv" || suffix == ".tsv") && !is_hidden(file.filename().string()) &&
        has_columns(start_of(file)))
      tables.emplace(file.stem().string(), file);
  }
  return tables;
}

// Returns the table of a split next to images, train.csv or val.csv; the only table, labels.csv, is that of training. ""
// without one.
std::string split_table(const fs::path& folder, Split split) {
  if (!has_images_alone(folder)) return "";
  const std::map<std::string, fs::path> tables = label_tables(folder);
  std::vector<std::string> stems;
  for (const auto& [stem, file] : tables) stems.push_back(stem);
  const std::string chosen = split_folder(stems, split, folder.string());
  if (!chosen.empty()) return tables.at(chosen).string();
  const bool alone = tables.size() == 1 && split == Split::train && !split_of_name(stems[0]);
  return alone ? tables.begin()->second.string() : "";
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

std::string metadata_file(const std::string& path, Split split) {
  if (std::string found = metadata_of(path, Split::train); !found.empty()) return metadata_of(path, split);
  const bool trains = !split_table(path, Split::train).empty();
  return trains ? split_table(path, split) : "";
}

bool is_metadata_path(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error) && !metadata_file(path, Split::train).empty();
}

std::unique_ptr<Source> open_metadata(const SourceConfig& config, Split split) {
  SourceConfig tables = config;
  const auto table_of = [](const std::string& path, Split of) {
    return is_metadata_path(path) ? metadata_file(path, of) : path;
  };
  tables.path = table_of(config.path, Split::train);
  tables.val_path = table_of(config.val_path.empty() ? config.path : config.val_path, Split::validation);
  if (tables.val_path.empty() && !config.val_path.empty())
    tables.val_path = table_of(config.val_path, Split::train);
  if (config.val_path.empty() && tables.val_path == tables.path) tables.val_path = "";  // by share
  return open_table(tables, split);
}

}  // namespace tessera::data
