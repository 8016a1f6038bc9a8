#include "data/base/image_files.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <vector>

#include "core/text.h"
#include "data/base/captions.h"
#include "data/base/class_names.h"
#include "data/base/source.h"
#include "data/base/source_kinds.h"
#include "data/base/table_columns.h"
#include "io/images/image.h"

namespace tessera::data {
namespace {

constexpr size_t kMostKinds = 6;
constexpr size_t kLongestSuffix = 12;  // a longer one is part of a name that contains a dot

}  // namespace

bool is_image_file(const std::string& path) {
  if (has_picture_extension(path)) return true;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  std::array<char, kImageHeadBytes> head{};
  std::ifstream file(path, std::ios::binary);
  file.read(head.data(), head.size());
  return is_image(
      std::as_bytes(std::span(head)).first(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0))));
}

bool is_hidden(std::string_view name) {
  return name.starts_with('.') || name == "__MACOSX" || name == "@eaDir";
}

bool is_run_folder(const std::string& path) {
  const std::filesystem::path folder = path;
  std::error_code error;
  return std::filesystem::is_regular_file(folder / "recipe.toml", error) &&
         (std::filesystem::is_directory(folder / "checkpoints", error) ||
          std::filesystem::is_regular_file(folder / "metrics.jsonl", error));
}

void LeftOut::add(std::string_view file_name) {
  const size_t dot = file_name.rfind('.');
  const bool suffix = dot != std::string_view::npos && dot > 0 && dot + 1 < file_name.size() &&
                      file_name.size() - dot <= kLongestSuffix;
  ++by_suffix_[suffix ? printable(lower(file_name.substr(dot))) : "without suffix"];
}

void LeftOut::drop(std::string_view suffix) { by_suffix_.erase(std::string(suffix)); }

std::string LeftOut::text() const {
  std::vector<std::pair<int64_t, std::string>> kinds;
  for (const auto& [suffix, count] : by_suffix_) kinds.emplace_back(-count, suffix);
  std::sort(kinds.begin(), kinds.end());
  std::vector<std::string> parts;
  int64_t others = 0;
  for (size_t i = 0; i < kinds.size(); ++i)
    if (i + 1 < kMostKinds || kinds.size() == kMostKinds)
      parts.push_back(std::to_string(-kinds[i].first) + " " + kinds[i].second);
    else
      others -= kinds[i].first;
  if (others > 0) parts.push_back(std::to_string(others) + " of other kinds");
  if (stray_images_ > 0) parts.push_back(counted(stray_images_, "image") + " in no folder of a class");
  if (runs_ > 0) parts.push_back(counted(runs_, "folder") + " of runs");
  return join(parts, ", ");
}

namespace {

namespace fs = std::filesystem;

constexpr std::streamsize kMostTitles = 1 << 16;  // bytes of a table's first line

std::string first_line(const fs::path& file) {
  std::string line(kMostTitles, '\0');
  std::ifstream(file, std::ios::binary).read(line.data(), kMostTitles);
  line.resize(std::min(line.find_first_of(std::string_view("\r\n\0", 3)), line.size()));
  return line;
}

// Returns the sorted names of the files in a folder that are not hidden, none if it cannot be listed.
std::vector<std::string> files_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error, ignored;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (const std::string name = entry->path().filename().string();
        !is_hidden(name) && !entry->is_directory(ignored))
      names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

// True if a file has the labels or captions of images.
bool is_table(const std::string& name, const std::string& file) {
  if (!is_table_path(file)) return false;
  if (name == "list_attr_celeba.txt" || (name.starts_with("dataset_") && is_coco_captions_path(file)))
    return true;
  const std::string titles = first_line(file);
  return std::ranges::any_of(std::string_view(",;\t"), [&](char c) { return divides_titles(titles, c); });
}

}  // namespace

std::vector<std::string> unread_tables(const std::string& folder) {
  std::vector<std::string> lines;
  for (const std::string& name : files_in(folder))
    if (const std::string file = (fs::path(folder) / name).string(), foreign = unread_labels(file);
        !foreign.empty())
      lines.push_back(foreign);
    else if (is_table(name, file))
      lines.push_back(text(file, " is not read: give it as the data to use its labels"));
  return lines;
}

std::vector<std::string> unread_lists(const std::string& folder, const std::string& root) {
  std::vector<std::string> found;
  std::error_code error;
  for (const char* inside : {"", "meta", "labels", "splits", "lists", "annotations"})
    for (const std::string& name : files_in(fs::path(folder) / inside)) {
      if (!lower(name).ends_with(".txt") || !split_of_name(fs::path(name).stem().string())) continue;
      const std::string line = first_line(fs::path(folder) / inside / name),
                        word = line.substr(0, line.find(' '));
      if (!word.empty() && fs::is_regular_file(fs::path(root) / with_suffix(root, word), error))
        found.push_back((fs::path(inside) / name).string());
    }
  if (found.empty()) return {};
  return {text(folder, ": lists of splits are not read (", some_of(found),
               "): give one as the data and one as the validation data")};
}

namespace {

std::string text_next_to(const std::string& root, const std::string& image) {
  return fs::path(fs::path(root) / image).replace_extension(".txt").string();
}

// True if a text has the numbers of boxes, as those of YOLO, KITTI and ICDAR: half of its words or more.
bool is_box_text(const std::vector<std::string>& lines) {
  int64_t words = 0, numbers = 0;
  for (std::string line : lines) {
    std::replace_if(
        line.begin(), line.end(), [](char c) { return c == ',' || c == '\t'; }, ' ');
    for (const std::string& word : split(line, ' '))
      if (!word.empty()) ++words, numbers += parse_double(word).has_value();
  }
  return 2 * numbers >= words;
}

}  // namespace

std::vector<std::vector<std::string>> captions_next_to(const std::string& root,
                                                       const std::vector<std::string>& images) {
  const auto has_text = [&](const std::string& image) {
    std::error_code error;
    return fs::is_regular_file(text_next_to(root, image), error);
  };
  if (!std::ranges::all_of(images, has_text)) return {};
  std::vector<std::vector<std::string>> captions;
  int64_t boxes = 0;
  for (const std::string& image : images) try {
      const std::string file = text_next_to(root, image);
      captions.push_back(captions_of_lines(read_list_text(file, kMostCaptionBytes), file));
      if (captions.back().empty()) return {};
      boxes += is_box_text(captions.back());
    } catch (const Error&) {  // a text that is no caption
      return {};
    }
  return 2 * boxes >= std::ssize(captions) ? std::vector<std::vector<std::string>>() : captions;
}

}  // namespace tessera::data
