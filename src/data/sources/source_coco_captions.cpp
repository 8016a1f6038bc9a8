// COCO captions (Chen et al. 2015): {"images": [{"id", "file_name"}], "annotations": [{"image_id",
// "caption"}]}. The image folder is coco_image_folder(), unless image_root is set.
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/text.h"
#include "data/base/captions.h"
#include "data/base/source_files.h"
#include "data/base/source_kinds.h"
#include "data/sources/coco_file.h"
#include "io/files/file.h"
#include "io/files/json.h"
#include "io/files/path.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostBytes = uint64_t{512} << 20;

class CocoCaptionsSource final : public FileSource {
 public:
  using FileSource::FileSource;
  const char* kind() const override { return "COCO captions"; }
};

const nlohmann::json& list_of(const nlohmann::json& object, const char* key, const std::string& path) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array()) fail(path, " has no list '", key, "'");
  return *found;
}

// Returns a whole number of an entry.
int64_t number_of(const nlohmann::json& entry, const char* key, const std::string& where) {
  const auto found = entry.is_object() ? entry.find(key) : entry.end();
  const auto number = entry.is_object() && found != entry.end() ? whole_number(*found) : std::nullopt;
  if (!number) fail(where, " has no number '", key, "'");
  return *number;
}

// Returns the image's path of an entry, relative to the image folder.
std::string file_name_of(const nlohmann::json& entry, const std::string& where) {
  const auto found = entry.find("file_name");
  if (found == entry.end() || !found->is_string() || found->get_ref<const std::string&>().empty())
    fail(where, " has no text 'file_name'");
  const auto& name = found->get_ref<const std::string&>();
  if (name.find('\0') != std::string::npos) fail(where, ": 'file_name' holds a zero byte");
  return portable_path(name);
}

using Places = std::map<int64_t, size_t>;  // places in the set, by an image's id

void add_image(const nlohmann::json& image, const std::string& where, FileSet& set, Places& places) {
  const int64_t id = number_of(image, "id", where);
  const std::string name = file_name_of(image, where);
  if (!places.try_emplace(id, set.paths.size()).second) fail(where, ": id ", id, " occurs twice");
  set.paths.push_back(name);
}

void add_caption(const nlohmann::json& annotation, const std::string& where, const Places& places,
                 FileSet& set) {
  const int64_t id = number_of(annotation, "image_id", where);
  const auto found = places.find(id);
  if (found == places.end()) fail(where, " is a caption of image ", id, ", which is not among the images");
  std::vector<std::string> captions = captions_of_json(annotation, where);
  if (captions.size() != 1 || captions[0].empty()) fail(where, " has an empty caption, or none");
  set.captions[found->second].push_back(std::move(captions[0]));
}

}  // namespace

bool is_coco_captions_path(const std::string& path) {
  std::error_code error;
  if (!lower(path).ends_with(".json") || !fs::is_regular_file(path, error)) return false;
  try {
    const MappedFile file(path);
    const std::string_view content = as_text(file.bytes());
    const size_t first = content.find_first_not_of(" \t\r\n");
    return first != std::string_view::npos && content[first] == '{' &&
           content.find("\"caption\"") != std::string_view::npos &&
           content.find("\"annotations\"") != std::string_view::npos;
  } catch (const Error&) {
    return false;
  }
}

std::unique_ptr<Source> open_coco_captions(const SourceConfig& config, Split split) {
  const std::string& path = path_of(config, split);
  const nlohmann::json all =
      parse_json(read_text(path, kMostBytes), path, {.max_bytes = kMostBytes, .max_depth = 8});
  FileSet set;
  set.shown = path;
  set.classes = {""};
  set.root = config.image_root.empty() ? coco_image_folder(path) : config.image_root;
  ProblemList problems;
  Places places;
  const nlohmann::json &images = list_of(all, "images", path),
                       &annotations = list_of(all, "annotations", path);
  for (size_t i = 0; i < images.size(); ++i) try {
      add_image(images[i], text(path, " image ", i), set, places);
    } catch (const Error& wrong) {
      problems.add(wrong.what());
    }
  set.captions.resize(set.paths.size());
  for (size_t i = 0; i < annotations.size(); ++i) try {
      add_caption(annotations[i], text(path, " annotation ", i), places, set);
    } catch (const Error& wrong) {
      problems.add(wrong.what());
    }
  for (size_t i = 0; i < set.paths.size(); ++i)
    if (set.captions[i].empty()) problems.add(path, ": ", printable(set.paths[i]), " has no caption");
  set.labels.assign(set.paths.size(), 0);
  set.keep(select_split(config, split, set.paths, set.labels));
  set.problems = problems.lines();
  return without_labels(std::make_unique<CocoCaptionsSource>(std::move(set)));
}

}  // namespace tessera::data
