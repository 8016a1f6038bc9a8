// Where samples come from. A source is size() and read(i); batching, shuffling and augmentation are others'
// work.
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

// One object of a sample: its box in pixels of the picture, [left, right) x [top, bottom), and its class.
struct Instance {
  double left = 0, top = 0, right = 0, bottom = 0;
  int64_t label = 0;
};

// What a source says of a picture besides its pixels; each part is empty where it says nothing of the kind.
struct Annotation {
  std::vector<int64_t> classes = {};  // one, or several of a multi-label source
  std::optional<Image> mask = {};     // the class of every pixel, one channel, as large as the picture
  std::vector<Instance> instances = {};
  std::vector<std::string> captions = {};
};

// One sample as it lies in its file. `picture` is encoded bytes (JPEG, PNG, WebP) or, for sources that hold
// raw pixels (CIFAR binary, IDX, shapes), the picture itself.
struct RawSample {
  std::string name;  // file path, or shard and member: what an error line needs
  std::variant<std::vector<std::byte>, Image> picture = {};
  Annotation annotation = {};
};

// What a source can do whose samples have classes.
class ClassLabels {
 public:
  virtual ~ClassLabels() = default;
  // The class of a sample, 0 … classes-1, without reading its picture. For multi-label sources -1.
  virtual int64_t label(int64_t index) const = 0;
  // The classes of a multi-label sample; for single-label sources its one label.
  virtual std::vector<int64_t> labels(int64_t index) const { return {label(index)}; }
  virtual bool multi_label() const { return false; }
  virtual const std::vector<std::string>& class_names() const = 0;
};

class Source {
 public:
  virtual ~Source() = default;
  virtual int64_t size() const = 0;
  // Thread-safe. Throws Error naming the sample when it cannot be read. Classes are not among the annotation:
  // read_annotated() adds them.
  virtual RawSample read(int64_t index) const = 0;
  // Null where samples have no classes.
  virtual const ClassLabels* class_labels() const { return nullptr; }
  // Changes when the content that a run depends on changes (paths, sizes, labels): kept in checkpoints.
  virtual uint64_t fingerprint() const = 0;
  // One line: "ImageFolder DIR, 1280 images, 16 classes".
  virtual std::string describe() const = 0;
  // What is wrong with the set as a whole (empty class, label out of range, picture without a label), a line
  // each; samples named here are not among 0 … size-1. open_source refuses such a set, `data check` lists
  // all of it.
  virtual std::vector<std::string> problems() const { return {}; }
};

class LabelledSource : public Source, public ClassLabels {
 public:
  const ClassLabels* class_labels() const final { return this; }
};

// The source's classes; a usage error that names the source and `who` needs them where it has none.
const ClassLabels& require_labels(const Source& source, std::string_view who);

// The names of a sample's classes, "cat, dog".
std::string label_text(const ClassLabels& labels, int64_t index, std::string_view separator);

// The sample with all that the source says of it.
RawSample read_annotated(const Source& source, int64_t index);

enum class Split { train, validation };

// What `--data` and a recipe's [data] say.
struct SourceConfig {
  std::string path = "";      // shapes:…, a folder, train-{000..004}.tar.gz, a table, CIFAR or IDX files
  std::string val_path = "";  // the validation set, where it is another path
  double val_share = 0.1;     // share for validation where the source has no split
  int64_t split_seed = 0;  // which samples that share is; not the run's seed: an evaluation would meet them
  std::string image_root = "";   // tables: folder that relative paths start from (default: the table's own)
  std::string class_names = "";  // file with one class name a line, for sources that hold numbers only
  template <class V>
  void visit(V& v) {
    v("path", path, "where the images are");
    v("val_path", val_path, "the validation set, where it is another path");
    v("val_share", val_share, "share for validation where the source has no split of its own");
    v("split_seed", split_seed, "another number chooses other samples for validation");
    v("image_root", image_root, "CSV, TSV, JSON: folder that relative paths start from");
    v("class_names", class_names, "file with one class name a line");
  }
};

// Opens one split. The kind is told from the path; an unknown kind is a usage error that lists the known
// ones.
std::unique_ptr<Source> open_source(const SourceConfig& config, Split split);

// The same without refusing a set that has problems().
std::unique_ptr<Source> open_source_with_problems(const SourceConfig& config, Split split);

// True for .jpg .jpeg .png .webp .gif .bmp .tif .tiff in any case.
bool has_picture_extension(std::string_view path);

// The picture of a sample, decoded as convert("RGB") would.
Image decode_sample(const RawSample& sample, const DecodeOptions& options = {});

// Fails, naming the first class that only one of them has, unless both have the same classes in the same
// order, or neither has any.
void require_same_classes(const Source& train, const Source& validation);

// Samples of each class; of multi-label sources a sample counts for each of its classes. Empty where samples
// have no classes.
std::vector<int64_t> class_counts(const Source& source);

// Name of the source's kind ("ImageFolder", "WebDataset", …) for a path; usage error if there is none.
std::string source_kind(const std::string& path);

}  // namespace tessera::data
