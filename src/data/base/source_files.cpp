#include "data/base/source_files.h"

#include <filesystem>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "core/threads.h"
#include "data/base/image_files.h"
#include "data/base/source_kinds.h"

namespace tessera::data {

std::vector<int64_t> FileSet::counts() const {
  std::vector<int64_t> counts(classes.size());
  for (size_t i = 0; i < paths.size(); ++i) {
    if (!multi_label) ++counts[static_cast<size_t>(labels[i])];
    for (size_t k = 0; multi_label && k < label_lists[i].size(); ++k)
      ++counts[static_cast<size_t>(label_lists[i][k])];
  }
  return counts;
}

void FileSet::keep(const std::vector<int64_t>& chosen) {
  FileSet kept;
  for (const int64_t index : chosen) {
    const auto i = static_cast<size_t>(index);
    kept.paths.push_back(std::move(paths[i]));
    kept.labels.push_back(labels[i]);
    if (multi_label) kept.label_lists.push_back(std::move(label_lists[i]));
    if (!captions.empty()) kept.captions.push_back(std::move(captions[i]));
  }
  paths = std::move(kept.paths);
  labels = std::move(kept.labels);
  label_lists = std::move(kept.label_lists);
  captions = std::move(kept.captions);
}

std::string FileSource::full_path(int64_t index) const {
  return (std::filesystem::path(set_.root) / set_.paths[static_cast<size_t>(index)]).string();
}

RawSample FileSource::read(int64_t index) const {
  RawSample sample = read_image_file(full_path(index));
  if (!set_.captions.empty()) sample.annotation.captions = set_.captions[static_cast<size_t>(index)];
  return sample;
}

std::vector<int64_t> FileSource::labels(int64_t index) const {
  if (!multi_label()) return {label(index)};
  return set_.label_lists[static_cast<size_t>(index)];
}

std::vector<std::string> FileSource::warnings() const {
  std::vector<std::string> lines = set_.warnings;
  const auto stem_of = [](std::string_view path) { return path.substr(0, path.rfind('.')); };
  const auto image_of = [](std::string_view stem) {
    for (const std::string_view ending : kMaskEndings)
      if (!ending.empty() && stem.ends_with(ending)) return stem.substr(0, stem.size() - ending.size());
    return std::string_view();
  };
  std::unordered_map<std::string_view, std::string_view> masks;  // by the names that their images would have
  for (const std::string& path : set_.paths)
    if (const std::string_view image = image_of(stem_of(path)); !image.empty()) masks.emplace(image, path);
  std::string first;
  int64_t count = 0;
  for (size_t i = 0; i < set_.paths.size() && !masks.empty(); ++i)
    if (const auto found = masks.find(stem_of(set_.paths[i])); found != masks.end() && ++count == 1)
      first = found->second;
  if (count > 0)
    lines.push_back(text(set_.shown, ": ", counted(count, "file"), " such as '", printable(first, 60),
                         "' look like masks of other images, and are read as images"));
  return lines;
}

uint64_t FileSource::fingerprint() const {
  std::vector<int64_t> sizes(set_.paths.size(), -1);
  parallel_for(size(), 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::error_code error;
      const auto bytes = std::filesystem::file_size(full_path(i), error);
      if (!error) sizes[static_cast<size_t>(i)] = static_cast<int64_t>(bytes);
    }
  });
  Fingerprint print;
  print.add(set_.classes);
  print.add(set_.paths);
  for (const int64_t bytes : sizes) print.add(bytes);
  for (int64_t i = 0; i < size(); ++i) {
    const auto of_sample = labels(i);
    print.add(static_cast<int64_t>(of_sample.size()));
    for (const int64_t one : of_sample) print.add(one);
  }
  for (const auto& captions : set_.captions) print.add(captions);
  return print.value();
}

std::string FileSource::describe() const {
  return text(kind(), " ", set_.shown, ", ", counted(size(), "image"), ", ",
              counted(static_cast<int64_t>(set_.classes.size()), "class", "classes"),
              set_.left_out.empty() ? "" : "; left out: ", set_.left_out);
}

}  // namespace tessera::data
