// A data set under corruptions: as a source that corrupts images when they are read, or written to folders
// CORRUPTION/SEVERITY/CLASS as in ImageNet-C.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/base/source.h"
#include "data/tools/check.h"
#include "data/tools/corruption.h"

namespace tessera::data {

// The images of another source, decoded, cropped to a square of `size` pixels if it is set, and corrupted. An
// image depends only on the seed, the corruption and the sample's own name (its last two path components).
class CorruptedSource final : public LabelledSource {
 public:
  struct Options {
    std::string corruption;
    int severity = 1;
    const CorruptionParameters* parameters = nullptr;
    std::shared_ptr<const FrostImages> frosts = nullptr;  // null: frost is drawn
    int64_t size =
        0;  // > 0: the shorter side becomes size / 0.875, then a centre crop of size x size; 0: unchanged
    uint64_t seed = 0;
  };
  // Throws a usage error if the source has no classes or an option names something unknown.
  CorruptedSource(std::shared_ptr<const Source> source, Options options);

  int64_t size() const override { return source_->size(); }
  RawSample read(int64_t index) const override;
  int64_t label(int64_t index) const override { return labels_.label(index); }
  std::vector<int64_t> labels(int64_t index) const override { return labels_.labels(index); }
  bool multi_label() const override { return labels_.multi_label(); }
  const std::vector<std::string>& class_names() const override { return labels_.class_names(); }
  uint64_t fingerprint() const override;
  std::string describe() const override;

 private:
  std::shared_ptr<const Source> source_;
  const ClassLabels& labels_;
  Options options_;
};

// Reads all images of a folder. Throws if it has none.
std::shared_ptr<const FrostImages> read_frosts(const std::string& folder);
// The note printed if no frost images are given.
inline constexpr const char* kDrawnFrost =
    "frost is drawn, not photographed: --frost DIR takes images of it, and numbers then compare with "
    "published "
    "ones";

// Returns the parameter set of that name. For "": CIFAR-10-C's if `size` (or if 0, the shorter side of the
// first image) is at most 64 pixels, else ImageNet-C's.
const CorruptionParameters& parameters_for(const std::string& name, int64_t size, const Source& source);
// Returns "CIFAR-10-C" or "ImageNet-C".
std::string published_name(const CorruptionParameters& parameters);

// Throws an error that names the first image and the count if images are too small to be corrupted. Checks
// `most` images, evenly spread over the source (0: all), and skips unreadable ones.
void require_corruptible(const Source& source, int64_t most = 0);

// Returns the part of an image's name that its corrupted file keeps: "IMG_1" from "photos/cat/IMG_1.jpg".
std::string kept_stem(const std::string& name);
// The same for a file that corrupt_set wrote: "IMG_1" of "DIR/fog/1/cat/000012-IMG_1.png".
std::string kept_stem_of_written(const std::string& file);

struct CorruptConfig {
  std::string output;                         // the folder; must not exist or must be empty
  std::vector<std::string> corruptions = {};  // empty: the benchmark's 15
  std::vector<int64_t> severities = {1, 2, 3, 4, 5};
  std::string parameters = "";  // "imagenet", "cifar"; "": cifar for images of at most 64 pixels
  std::string frost = "";       // folder of frost images; "": synthetic frost
  int64_t size = 0;             // as in CorruptedSource
  int64_t quality = 0;          // JPEG quality; 0: PNG, without further loss
  int64_t seed = 0;
};

struct CorruptReport {
  int64_t pictures = 0;      // written
  std::string parameters;    // name of the parameter set
  bool drawn_frost = false;  // frost was requested without a folder of frost images
};

// Writes DIR/CORRUPTION/SEVERITY/CLASS/NUMBER-NAME.png for every image of the source, and
// DIR/corruptions.json with the settings. The folder is written completely or not at all.
CorruptReport corrupt_set(std::shared_ptr<const Source> source, const CorruptConfig& config,
                          const Progress& progress = {});

}  // namespace tessera::data
