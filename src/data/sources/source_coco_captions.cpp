// COCO captions (Chen et al. 2015): {"images": [{"id", "file_name"}], "annotations": [{"image_id",
// "caption"}]}. The image folder is coco_image_folder(), unless image_root is set.
//
// Karpathy's files of COCO, Flickr8k and Flickr30k, with the splits that retrieval is measured on, have the captions at
// their image: {"images": [{"filepath", "filename", "split", "sentences": [{"raw"}]}]}.
#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

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

// Returns an id of an entry, a number or a text; "000001" is 1.
std::string id_of(const nlohmann::json& entry, const char* key, const std::string& where) {
  const auto found = entry.is_object() ? entry.find(key) : entry.end();
  const bool given = entry.is_object() && found != entry.end();
  if (const auto number = given ? whole_number(*found) : std::nullopt) return std::to_string(*number);
  if (!given || !found->is_string() || found->get_ref<const std::string&>().empty())
    fail(where, " has no number or text '", key, "'");
  return found->get<std::string>();
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

using Places = std::map<std::string, size_t>;  // places in the set, by an image's id

// Returns whether an image is new; it may be listed twice with one file.
bool add_image(const nlohmann::json& image, const std::string& where, FileSet& set, Places& places) {
  const std::string id = id_of(image, "id", where), name = file_name_of(image, where);
  const auto [place, is_new] = places.try_emplace(id, set.paths.size());
  if (is_new)
    set.paths.push_back(name);
  else if (set.paths[place->second] != name)
    fail(where, ": id ", printable(id, 40), " occurs twice");
  return is_new;
}

// Returns whether the image of a caption is listed.
bool add_caption(const nlohmann::json& annotation, const std::string& where, const Places& places,
                 FileSet& set) {
  const auto found = places.find(id_of(annotation, "image_id", where));
  std::vector<std::string> captions = captions_of_json(annotation, where);
  if (captions.size() != 1 || captions[0].empty()) fail(where, " has an empty caption, or none");
  if (found != places.end()) set.captions[found->second].push_back(std::move(captions[0]));
  return found != places.end();
}

// Returns the value of an optional key that is text, else "".
std::string text_at(const nlohmann::json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// Returns the split of an image in Karpathy's files; "restval" belongs to training.
std::optional<Split> split_at(const nlohmann::json& image) {
  const std::string word = text_at(image, "split");
  return word == "restval" ? std::optional(Split::train) : split_of_name(word);
}

void add_sentences(const nlohmann::json& image, const std::string& where, FileSet& set) {
  const std::string folder = text_at(image, "filepath"), name = text_at(image, "filename");
  if (name.empty() || name.find('\0') != std::string::npos) fail(where, " has no text 'filename'");
  std::vector<std::string> captions;
  for (const nlohmann::json& sentence : list_of(image, "sentences", where))
    captions.push_back(text_at(sentence, "raw"));
  const auto blank = [](const std::string& caption) { return trim(caption).empty(); };
  if (captions.empty() || std::ranges::any_of(captions, blank))
    fail(where, " has an empty sentence, or none");
  set.paths.push_back(portable_path(folder.empty() ? name : folder + "/" + name));
  set.captions.push_back(std::move(captions));
}

// Adds the images of a split. If the file has "val", its "test" is left out; if it has one split, that is `by_share`.
bool add_split(const nlohmann::json& images, const SourceConfig& config, Split split, FileSet& set,
               ProblemList& problems) {
  const auto any = [&](const auto& fits) { return std::any_of(images.begin(), images.end(), fits); };
  const bool has_val = any([](const auto& image) { return text_at(image, "split") == "val"; });
  const bool marked = any([](const auto& image) { return split_at(image) == Split::train; }) &&
                      any([](const auto& image) { return split_at(image) == Split::validation; });
  for (size_t i = 0; i < images.size(); ++i) try {
      const bool other = split_at(images[i]) != split || (has_val && text_at(images[i], "split") == "test");
      if (!marked || !other) add_sentences(images[i], text(path_of(config, split), " image ", i), set);
    } catch (const Error& wrong) {
      problems.add(wrong.what());
    }
  return !marked && config.val_path.empty();
}

bool has_sentences(const nlohmann::json& all) {
  const auto images = all.is_object() ? all.find("images") : all.end();
  return all.is_object() && images != all.end() && images->is_array() && !images->empty() &&
         images->front().is_object() && images->front().contains("sentences");
}

// Adds the images and captions of COCO's form.
void add_annotated(const nlohmann::json& all, const std::string& path, FileSet& set, ProblemList& problems) {
  Places places;
  const nlohmann::json &images = list_of(all, "images", path),
                       &annotations = list_of(all, "annotations", path);
  int64_t repeated = 0, unlisted = 0;
  for (size_t i = 0; i < images.size(); ++i) try {
      repeated += !add_image(images[i], text(path, " image ", i), set, places);
    } catch (const Error& wrong) {
      problems.add(wrong.what());
    }
  set.captions.resize(set.paths.size());
  for (size_t i = 0; i < annotations.size(); ++i) try {
      unlisted += !add_caption(annotations[i], text(path, " annotation ", i), places, set);
    } catch (const Error& wrong) {
      problems.add(wrong.what());
    }
  if (repeated > 0)
    set.warnings.push_back(text(path, ": ", counted(repeated, "image"), " listed more than once"));
  if (unlisted > 0)
    set.warnings.push_back(text(path, ": left out ", counted(unlisted, "caption"),
                                " of images that are not in the list of images"));
  for (size_t i = 0; i < set.paths.size(); ++i)
    if (set.captions[i].empty()) problems.add(path, ": ", printable(set.paths[i]), " has no caption");
}

}  // namespace

std::string coco_captions_file(const std::string& folder, Split split) {
  std::string found;
  std::error_code error;
  for (fs::directory_iterator entry(fs::path(folder) / "annotations", error), end; !error && entry != end;
       entry.increment(error))
    if (const std::string name = entry->path().filename().string();
        name.starts_with("captions_") && name.ends_with(".json") && split_of_name(name) == split)
      found = std::max(found, entry->path().string());  // val before test
  return found;
}

bool is_coco_captions_path(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return !coco_captions_file(path, Split::train).empty();
  if (!lower(path).ends_with(".json") || !fs::is_regular_file(path, error)) return false;
  try {
    const MappedFile file(path);
    const std::string_view content = as_text(file.bytes());
    const size_t first = content.find_first_not_of(" \t\r\n");
    const auto has = [&](std::string_view key) { return content.find(key) != std::string_view::npos; };
    return first != std::string_view::npos && content[first] == '{' &&
           ((has("\"caption\"") && has("\"annotations\"")) || (has("\"sentences\"") && has("\"images\"")));
  } catch (const Error&) {
    return false;
  }
}

std::unique_ptr<Source> open_coco_captions(const SourceConfig& config, Split split) {
  std::string path = path_of(config, split);
  const bool folder = is_folder_path(path);
  if (folder) path = coco_captions_file(path, coco_captions_file(path, split).empty() ? Split::train : split);
  const nlohmann::json all =
      parse_json(read_text(path, kMostBytes), path, {.max_bytes = kMostBytes, .max_depth = 8});
  FileSet set;
  set.shown = path;
  set.classes = {""};
  ProblemList problems;
  bool by_share = true;
  if (has_sentences(all))
    by_share = add_split(all["images"], config, split, set, problems);
  else
    add_annotated(all, path, set, problems);
  const std::string first = set.paths.empty() ? "" : set.paths[0];
  set.root = config.image_root.empty() ? coco_image_folder(path, first) : config.image_root;
  std::vector<std::string*> files;
  for (std::string& file : set.paths) files.push_back(&file);
  if (std::string line = find_coco_images(files, set.root, path); !line.empty())
    set.warnings.push_back(std::move(line));
  set.labels.assign(set.paths.size(), 0);
  if (config.captions == CaptionUse::none) set.captions.clear();
  if (by_share && (!folder || coco_captions_file(config.path, Split::validation).empty()))
    set.keep(select_split(config, split, set.paths, set.labels));
  set.problems = problems.lines();
  return without_labels(std::make_unique<CocoCaptionsSource>(std::move(set)));
}

}  // namespace tessera::data
