#include "data/base/source.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <map>

#include "core/error.h"
#include "core/text.h"
#include "data/base/class_names.h"
#include "data/base/image_files.h"
#include "data/base/objects.h"
#include "data/base/source_kinds.h"
#include "data/sources/conversations.h"
#include "data/sources/interleaved.h"
#include "data/tools/check.h"
#include "data/transforms/mask_labels.h"
#include "io/files/path.h"

namespace tessera::data {
namespace {

// Needs no files, so error messages list it first.
constexpr SourceKind kShapes = {"shapes", "shapes:train=20000,val=2000,size=32", is_shapes_path, open_shapes};

// A new kind of source takes a file and a line here. The first match opens the path, so kinds that inspect a
// folder precede the one that accepts any folder.
std::vector<SourceKind>& kinds() {
  static std::vector<SourceKind> all = {
      {"shapes objects", "shapes:task=detect,train=20000", is_shapes_objects_path, open_shapes_objects},
      {"COCO", "a folder with annotations/instances_train.json, or such a file", is_coco_path, open_coco},
      kShapes,
      {"texts", "text:FOLDER, text:FILE.txt, text:FILE.jsonl or text:classes,FILE.jsonl", is_text_path,
       open_text, "texts without images", check_texts},
      {"conversations", "conversations:FILE.jsonl,IMAGES", is_conversations_path, open_conversations},
      {"interleaved", "interleaved:DOCS.jsonl or interleaved:docs-{000..004}.tar", is_interleaved_path,
       open_interleaved},
      {"named", "named:PATH of images with classes, captioned by class name", is_named_path, open_named},
      {"latents", "a folder with latents.json", is_latents_path, open_latents, "latents, which are no images",
       check_latents},
      {"mask shards", "a folder with masks.json and shards", is_mask_shards_path, open_mask_shards},
      {"CIFAR", "a folder with data_batch_1[.bin] or train.bin, or such a file", is_cifar_path, open_cifar},
      {"IDX", "a folder with train-images-idx3-ubyte[.gz], or such a file", is_idx_path, open_idx},
      {"WebDataset", "train-{000..004}.tar.gz", is_webdataset_path, open_webdataset},
      {"COCO captions", "captions_train2017.json", is_coco_captions_path, open_coco_captions},
      {"table", "labels.csv, labels.tsv, labels.json or list.txt", is_table_path, open_table},
      {"npz", "samples.npz of generated images", is_npz_path, open_npz},
      {"masks", "a folder with images/ and annotations/, or leftImg8bit/ and gtFine/; or a set.toml",
       is_masks_path, open_masks},
      {"Pascal VOC", "a folder with Annotations/*.xml and JPEGImages/", is_voc_path, open_voc},
      {"YOLO", "data.yaml, or a folder with it or with images/ and labels/*.txt", is_yolo_path, open_yolo},
      {"labelme", "a folder of images with labelme's JSON files", is_labelme_path, open_labelme},
      {"mask files", "a folder with ID/images/ID.png and ID/masks/*.png", is_mask_files_path,
       open_mask_files},
      {"metadata objects", "a folder of images with metadata.jsonl that has objects",
       is_metadata_objects_path, open_metadata_objects},
      {"metadata", "a folder of images with metadata.csv or metadata.jsonl, or with train.csv and val.csv",
       is_metadata_path, open_metadata},
      {"ImageFolder", "a folder with a folder for each class", is_folder_path, open_folder},
  };
  return all;
}

// Throws if a path is that of one image: as broken if it cannot be decoded, else as no set.
void refuse_image(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return;
  const RawSample file = read_image_file(path);
  const auto& bytes = std::get<std::vector<std::byte>>(file.picture);
  if (!has_picture_extension(path) && !is_image(bytes)) return;
  decode_sample(file);
  fail_usage("data path '", path,
             "' is one image, must be a set: a folder of images, or a list or table of them; ",
             "`tessera predict` takes single images");
}

// Returns the folder of a set of objects or masks, which archives put into further folders (archive/VOCdevkit/VOC2012); else the
// path itself.
std::string set_inside(const std::string& path) {
  std::error_code error;
  if (path.empty() || !std::filesystem::is_directory(path, error)) return path;
  const auto is_set = [](const std::string& folder) {
    return is_coco_path(folder) || is_coco_captions_path(folder) || is_masks_path(folder) ||
           is_voc_path(folder) || is_yolo_path(folder) || is_labelme_path(folder) ||
           is_mask_files_path(folder);
  };
  const std::string found = folder_below(path, is_set, false);
  return found.empty() ? path : found;
}

// Takes the files of captions of a COCO folder instead of its boxes.
void take_captions(SourceConfig& config) {
  for (const bool held_out : {true, false}) {
    std::string& path = held_out ? config.val_path : config.path;
    const std::string folder = set_inside(path.empty() ? config.path : path);
    const std::string train = coco_captions_file(folder, Split::train),
                      own = held_out ? coco_captions_file(folder, Split::validation) : train;
    if (!own.empty() || (!path.empty() && !train.empty())) path = own.empty() ? train : own;
  }
}

}  // namespace

void add_source_kind(const SourceKind& kind) { kinds().insert(kinds().begin(), kind); }

const SourceKind& find_source_kind(const std::string& path) {
  if (path.empty()) fail_usage("no data: give a path such as ", kShapes.example);
  refuse_remote_path(path);
  const std::string set = set_inside(path);
  for (const SourceKind& kind : kinds())
    if (kind.matches(set)) return kind;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    const std::string scheme = path.substr(0, path.find(':'));
    fail("data path '", path, "' does not exist",
         did_you_mean(scheme, std::vector<std::string>{kShapes.name}));
  }
  refuse_image(path);
  refuse_foreign_file(path);
  std::string known;
  for (const SourceKind& kind : kinds())
    known += text(known.empty() ? "" : "; ", kind.name, ": ", kind.example);
  fail_usage("data path '", path, "' is of no known kind (", known, ")");
}

std::unique_ptr<Source> open_source_with_problems(const SourceConfig& config, Split split) {
  if (!(config.val_share >= 0 && config.val_share < 1))
    fail_usage("val_share is ", config.val_share, ", must be at least 0 and below 1");
  SourceConfig inside = config;
  if (config.captions == CaptionUse::over_boxes) take_captions(inside);
  for (std::string* path : {&inside.path, &inside.val_path}) {
    *path = set_inside(*path);
    if (config.reads_masks && !path->empty() && is_voc_path(*path))
      if (const std::string masks = voc_masks(*path, true); !masks.empty()) *path = masks;
  }
  return find_source_kind(path_of(inside, split)).open(inside, split);
}

namespace {

std::string why_empty(const SourceConfig& config, Split split) {
  const std::string path = path_of(config, split);
  const bool texts = is_text_path(path);
  std::string line =
      text(path, " has no ", split == Split::train ? "training " : "validation ", texts ? "texts" : "images");
  if (texts && split == Split::validation && config.val_path.empty() && config.val_share > 0)
    line += ": equal texts are not divided, so give others as data.val_path";
  return line;
}

}  // namespace

std::unique_ptr<Source> open_source(const SourceConfig& config, Split split) {
  auto source = open_source_with_problems(config, split);
  const auto problems = source->problems();
  if (!problems.empty()) {
    const std::string more =
        problems.size() == 1 ? std::string() : text(" (and ", problems.size() - 1, " more)");
    fail(problems[0], more);
  }
  if (source->size() == 0) fail(why_empty(config, split));
  return source;
}

std::string source_kind(const std::string& path) { return find_source_kind(path).name; }

Image decode_sample(const RawSample& sample, const DecodeOptions& options) {
  if (const auto* image = std::get_if<Image>(&sample.picture)) return *image;
  return decode_image(std::get<std::vector<std::byte>>(sample.picture), sample.name, options);
}

const ClassLabels& require_labels(const Source& source, std::string_view who) {
  const ClassLabels* labels = source.class_labels();
  if (!labels) fail_usage(who, " needs a class for each image, which ", source.describe(), " does not have");
  return *labels;
}

std::string label_text(const ClassLabels& labels, int64_t index, std::string_view separator) {
  std::vector<std::string> names;
  for (const int64_t label : labels.labels(index))
    names.push_back(labels.class_names()[static_cast<size_t>(label)]);
  return join(names, separator);
}

RawSample read_annotated(const Source& source, int64_t index) {
  RawSample sample = source.read(index);
  if (const ClassLabels* labels = source.class_labels()) sample.annotation.classes = labels->labels(index);
  return sample;
}

void require_same_classes(const Source& train, const Source& validation) {
  // Documents have no classes, but may be evaluated on images with classes.
  if (document_images(train) || document_images(validation)) return;
  const auto labels = [](const Source& source) {
    const ClassLabels* classes = source.class_labels();
    return !classes ? "no label" : classes->multi_label() ? "several labels" : "one label";
  };
  if (train.size() > 0 && validation.size() > 0 && labels(train) != std::string_view(labels(validation)))
    fail(train.describe(), " has ", labels(train), " an image, but ", validation.describe(), " has ",
         labels(validation),
         validation.class_labels() ? "" : "; --val-data names a table of its images and their classes");
  if (!train.class_labels() || !validation.class_labels()) return;
  const std::string difference =
      first_difference(train.class_labels()->class_names(), train.describe(),
                       validation.class_labels()->class_names(), validation.describe());
  if (!difference.empty()) fail(difference);
}

namespace {

constexpr size_t kMostNamed = 20;  // classes

// Returns the names of the classes of images, objects or masks.
std::vector<std::string> names_in(const Source& source) {
  if (const ClassLabels* classes = source.class_labels()) return classes->class_names();
  if (const ObjectLabels* objects = object_labels(source)) return objects->object_classes();
  const MaskLabels* masks = mask_labels(source);
  return masks ? masks->mask_classes() : std::vector<std::string>();
}

// Returns a line for each class whose name repeats another's or is a table's word for a missing value.
std::vector<std::string> name_warnings(const std::vector<std::string>& names) {
  constexpr std::array kMissing = {"nan", "null", "n/a", "#n/a", "<na>"};
  std::vector<std::string> lines;
  std::map<std::string, size_t> first;
  for (size_t c = 0; c < names.size() && lines.size() < kMostNamed; ++c) {
    const std::string &name = names[c], plain = lower(trim(name));
    const auto [found, is_new] = first.try_emplace(plain, c);
    const std::string& other = names[found->second];
    if (!is_new)
      lines.push_back(text("classes ", found->second, " ('", printable(other, 60), "') and ", c, " ('",
                           printable(name, 60), "') have ",
                           name == other ? "one name" : "names that differ by capitals or spaces alone"));
    if (std::ranges::count(kMissing, plain) > 0)
      lines.push_back(
          text("class ", c, " has the name '", name, "', which tables write for a missing value"));
  }
  return lines;
}

// Returns lines about labels that look like something else: measurements, ids, or one class in a form for several.
std::vector<std::string> form_warnings(const Source& source, const ClassLabels& labels,
                                       const std::vector<int64_t>& counts) {
  std::vector<std::string> lines;
  const std::vector<std::string>& names = labels.class_names();
  const auto is_number = [](const std::string& name) {
    const auto value = parse_double(name);
    return value && std::isfinite(*value);
  };
  if (names.size() > 1 && std::ranges::all_of(names, is_number) &&
      std::ranges::any_of(names, [](const std::string& name) { return !parse_int(name); }))
    lines.push_back(text("the classes ", some_of(names),
                         " are numbers with fractions: each is a class, not a measurement"));
  if (names.size() > kMostNamed && std::ranges::all_of(counts, [](int64_t count) { return count == 1; }))
    lines.push_back(
        text("each of the ", names.size(), " classes has one training image: they look like ids"));
  bool one_each = labels.multi_label();
  for (int64_t i = 0; one_each && i < source.size(); ++i) one_each = labels.labels(i).size() == 1;
  if (one_each)
    lines.push_back(
        "every image has exactly one class, but in a form for several (columns of 0 and 1, or lists): "
        "classifiers take it as multi-label");
  return lines;
}

// Adds a line for each class without a `kind` ("image", "object") in training.
void add_empty_classes(const std::vector<std::string>& names, const std::vector<int64_t>& counts,
                       const std::vector<int64_t>& others, const char* kind,
                       std::vector<std::string>& lines) {
  size_t empty = 0;
  for (size_t c = 0; c < counts.size(); ++c) {
    if (counts[c] > 0 || ++empty > kMostNamed) continue;
    const int64_t held_out = c < others.size() ? others[c] : 0;
    lines.push_back(text("class ", c, " ('", names[c], "') has no training ", kind,
                         held_out > 0 ? text(", but ", held_out, " for validation") : std::string()));
  }
  if (empty > kMostNamed) lines.push_back(text(empty - kMostNamed, " more classes have no training ", kind));
}

}  // namespace

std::vector<std::string> set_warnings(const Source* train, const Source* validation) {
  std::vector<std::string> lines;
  for (const Source* source : {train, validation})
    for (std::string& line : source ? source->warnings() : std::vector<std::string>())
      if (std::ranges::count(lines, line) == 0) lines.push_back(std::move(line));
  if (!train || train->size() == 0) return lines;
  const ClassLabels* labels = train->class_labels();
  const std::vector<std::string> names = names_in(*train);
  std::ranges::move(name_warnings(names), std::back_inserter(lines));
  if (object_labels(*train))
    add_empty_classes(names, object_counts(*train),
                      validation ? object_counts(*validation) : std::vector<int64_t>(), "object", lines);
  if (!labels) return lines;
  if (names.size() == 1 && !labels->multi_label())
    lines.push_back(text("all images are of one class ('", printable(names[0], 60),
                         "'): a classifier needs two or more to learn anything"));
  const std::vector<int64_t> counts = class_counts(*train);
  std::ranges::move(form_warnings(*train, *labels, counts), std::back_inserter(lines));
  add_empty_classes(names, counts, validation ? class_counts(*validation) : std::vector<int64_t>(), "image",
                    lines);
  return lines;
}

std::vector<int64_t> class_counts(const Source& source) {
  const ClassLabels* labels = source.class_labels();
  if (!labels) return {};
  std::vector<int64_t> counts(labels->class_names().size());
  for (int64_t i = 0; i < source.size(); ++i)
    for (const int64_t label : labels->labels(i)) ++counts[static_cast<size_t>(label)];
  return counts;
}

}  // namespace tessera::data
