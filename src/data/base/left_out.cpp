#include "data/base/image_files.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <vector>

#include "core/text.h"
#include "data/base/source.h"
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

}  // namespace tessera::data
