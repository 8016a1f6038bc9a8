// A data set under corruptions: as a source that corrupts what it reads, and written as folders, CORRUPTION/SEVERITY/CLASS as in
// ImageNet-C.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/base/source.h"
#include "data/tools/check.h"
#include "data/tools/corruption.h"

namespace tessera::data {

// The images of another source, decoded, cut to a square of `size` pixels where one is given, and corrupted. An image depends on
// the seed, the corruption and the sample's own name (its last two path components) alone.
class CorruptedSource final : public LabelledSource {
 public:
  struct Options {
    std::string corruption;
    int severity = 1;
    const CorruptionParameters* parameters = nullptr;
    std::shared_ptr<const FrostImages> frosts = nullptr;  // null: frost is drawn
    int64_t size =
        0;  // > 0: the shorter side becomes size / 0.875, and the centre of size x size is cut; 0: as it is
    uint64_t seed = 0;
  };
  // A usage error where the source has no classes or the options name what there is not.
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

// All images of a folder, decoded; fails where there is none.
std::shared_ptr<const FrostImages> read_frosts(const std::string& folder);
// What is said where there are none.
inline constexpr const char* kDrawnFrost =
    "frost is drawn, not photographed: --frost DIR takes images of it, and numbers then compare with "
    "published "
    "ones";

// The parameters of that name; of "" those of CIFAR-10-C where `size`, or where it is 0 the shorter side of the first image, is at
// most 64 pixels, else ImageNet-C's.
const CorruptionParameters& parameters_for(const std::string& name, int64_t size, const Source& source);
// "CIFAR-10-C" or "ImageNet-C".
std::string published_name(const CorruptionParameters& parameters);

// Fails, naming the first and how many there are, where some of `most` images evenly spread over a source (0: all) are too small
// to be corrupted. Images that cannot be read are passed over.
void require_corruptible(const Source& source, int64_t most = 0);

// What of an image's name is kept in that of its corrupted file: "IMG_1" of "photos/cat/IMG_1.jpg".
std::string kept_stem(const std::string& name);
// The same of the file that corrupt_set wrote: "IMG_1" of "DIR/fog/1/cat/000012-IMG_1.png".
std::string kept_stem_of_written(const std::string& file);

struct CorruptConfig {
  std::string output;                         // the folder; must not exist or be empty
  std::vector<std::string> corruptions = {};  // empty: the benchmark's 15
  std::vector<int64_t> severities = {1, 2, 3, 4, 5};
  std::string parameters = "";  // "imagenet", "cifar"; "": cifar for images of at most 64 pixels
  std::string frost = "";       // folder of images of frost; "": drawn
  int64_t size = 0;             // as CorruptedSource has it
  int64_t quality = 0;          // of JPEGs; 0: PNG, without a further loss
  int64_t seed = 0;
};

struct CorruptReport {
  int64_t pictures = 0;      // written
  std::string parameters;    // whose
  bool drawn_frost = false;  // frost was asked for, and there were no images of it
};

// Writes DIR/CORRUPTION/SEVERITY/CLASS/NUMBER-NAME.png for every image of the source, and DIR/corruptions.json with what made
// them. The folder is there whole or not at all.
CorruptReport corrupt_set(std::shared_ptr<const Source> source, const CorruptConfig& config,
                          const Progress& progress = {});

}  // namespace tessera::data
