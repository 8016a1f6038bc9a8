// The origin of samples: size() and read(i). Batching, shuffling and augmentation happen elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "io/images/image.h"

namespace tessera::data {

// One object of a sample: its box in pixels of the image, [left, right) x [top, bottom), and its class.
struct Instance {
  double left = 0, top = 0, right = 0, bottom = 0;
  int64_t label = 0;
};

// A sample's data in addition to its pixels. Each part is empty if the source lacks that kind of annotation.
struct Annotation {
  std::vector<int64_t> classes = {};  // one, or several in a multi-label source
  std::optional<Image> mask = {};     // the class of every pixel, one channel, as large as the image
  std::vector<Instance> instances = {};
  std::vector<std::string> captions = {};
};

// One sample as its file stores it. `picture` is encoded bytes (JPEG, PNG, WebP), or the image itself for
// sources of raw pixels (CIFAR binary, IDX, shapes).
struct RawSample {
  std::string name;  // file path, or shard and member: for error messages
  std::variant<std::vector<std::byte>, Image> picture = {};
  Annotation annotation = {};
  bool without_image = false;  // text only: `picture` is a blank image as a placeholder
};

// Interface of sources with classes.
class ClassLabels {
 public:
  virtual ~ClassLabels() = default;
  // Returns the class of a sample, 0 … classes-1, without reading its image. Returns -1 for multi-label
  // sources.
  virtual int64_t label(int64_t index) const = 0;
  // Returns the classes of a multi-label sample; for single-label sources its one label.
  virtual std::vector<int64_t> labels(int64_t index) const { return {label(index)}; }
  virtual bool multi_label() const { return false; }
  virtual const std::vector<std::string>& class_names() const = 0;
};

class Annotations;

class Source {
 public:
  virtual ~Source() = default;
  virtual int64_t size() const = 0;
  // Thread-safe. Throws an Error that names the sample if it cannot be read. The annotation has no classes;
  // read_annotated() adds them.
  virtual RawSample read(int64_t index) const = 0;
  // Returns null if samples have no classes.
  virtual const ClassLabels* class_labels() const { return nullptr; }
  // Changes with the content that a run depends on (paths, sizes, labels). Checkpoints contain it.
  virtual uint64_t fingerprint() const = 0;
  // Returns one line: "ImageFolder DIR, 1280 images, 16 classes".
  virtual std::string describe() const = 0;
  // Returns one line per problem of the set as a whole (empty class, label out of range, image without a
  // label). Samples named here are not among those that read() returns. open_source throws for such a set;
  // `data check` lists every problem.
  virtual std::vector<std::string> problems() const { return {}; }
  // Returns one line per property of the set that may be a mistake, such as a class without training images.
  // Such a set can be used; `data check` and training print the lines.
  virtual std::vector<std::string> warnings() const { return {}; }
  // Returns the object that describes, checks, draws and packs annotations; see annotations.h.
  virtual std::unique_ptr<Annotations> annotations() const;
};

class LabelledSource : public Source, public ClassLabels {
 public:
  const ClassLabels* class_labels() const final { return this; }
};

// Returns the source's classes. If it has none, throws a usage error that names the source and `who` needs
// them.
const ClassLabels& require_labels(const Source& source, std::string_view who);

// Returns the names of a sample's classes, "cat, dog".
std::string label_text(const ClassLabels& labels, int64_t index, std::string_view separator);

// Returns the sample with its complete annotation.
RawSample read_annotated(const Source& source, int64_t index);

enum class Split { train, validation };

// The captions of a set: no part of it, for tasks that read no texts; read if the set has no other annotations; or read
// over the boxes of a COCO set.
enum class CaptionUse { none, as_found, over_boxes };

// Settings of `--data` and a recipe's [data].
struct SourceConfig {
  std::string path = "";         // shapes:…, a folder, train-{000..004}.tar.gz, a table, CIFAR or IDX files
  std::string val_path = "";     // path of the validation set, if separate
  double val_share = 0.1;        // share for validation if the source has no split
  int64_t split_seed = 0;        // selects that share; not the run's seed, so that all runs hold out the same
  std::string image_root = "";   // tables: folder that relative paths start from (default: the table's own)
  std::string class_names = "";  // file with one class name per line, for sources that contain only numbers
  std::string class_order = "alphabetical";  // of classes named by folders and tables, or "natural"
  bool reads_classes = true;  // false: a folder's wrong classes are only warnings; no key: set by the task
  bool reads_masks = false;   // Pascal VOC sets give masks instead of boxes; no key: set by the task
  CaptionUse captions = CaptionUse::as_found;  // no key: set by the task

  template <class V>
  void visit(V& v) {
    v("path", path, "where the images are");
    v("val_path", val_path, "the validation set, where it is another path");
    v("val_share", val_share, "share for validation where the source has no split of its own");
    v("split_seed", split_seed, "another number chooses other samples for validation");
    v("image_root", image_root, "CSV, TSV, JSON: folder that relative paths start from");
    v("class_names", class_names, "file with one class name a line");
    v("class_order", class_order,
      "order of classes that folders or a table name: alphabetical (c1, c10, c2) or natural (c1, c2, c10)");
  }
};

// Opens one split. The path determines the kind; an unknown kind is a usage error that lists the known ones.
std::unique_ptr<Source> open_source(const SourceConfig& config, Split split);

// Opens one split even if it has problems().
std::unique_ptr<Source> open_source_with_problems(const SourceConfig& config, Split split);

// True for .jpg .jpeg .png .webp .gif .bmp .tif .tiff in any case.
bool has_picture_extension(std::string_view path);

// Decodes a sample's image as convert("RGB") would.
Image decode_sample(const RawSample& sample, const DecodeOptions& options = {});

// Throws an error that names the first class that only one source has, unless both have the same classes in
// the same order, or neither has any.
void require_same_classes(const Source& train, const Source& validation);

// Counts the samples of each class; a multi-label sample counts for each of its classes. Returns an empty
// list if samples have no classes.
std::vector<int64_t> class_counts(const Source& source);

// Returns the sources' warnings, and a line for each class with only validation images or no images. Either
// source may be null.
std::vector<std::string> set_warnings(const Source* train, const Source* validation);

// Returns the kind of the source at a path ("ImageFolder", "WebDataset", …). Throws a usage error if no kind
// fits.
std::string source_kind(const std::string& path);

}  // namespace tessera::data
