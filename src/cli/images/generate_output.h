// Outputs of `tessera generate`: a grid in one image, a folder of PNGs or of shards, a batch in .npz for
// ADM's tools, or the network's numbers as arrays.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/images/generate_options.h"
#include "io/images/image.h"
#include "open/ready_task.h"

namespace tessera::cli {

using answer::AskedImage;

struct DrawnImage {
  Image picture;                    // empty for outputs of raw network values
  torch::Tensor values;             // [channels, height, width], the network's
  std::vector<Image> moments = {};  // intermediate steps of each picture, as a row of the grid
};

// Shards of a folder.
struct ShardLayout {
  int64_t images = 0;                         // images per shard; 0 = each image is a file
  int64_t classes = 0;                        // labels from here on are not classes
  std::vector<std::string> class_names = {};  // empty if unknown
};
// Throws a usage error for shards if the output is not a folder, or if they do not hold whole batches.
void check_shards(const ShardLayout& shards, const std::string& path, int64_t batch);

class GenerateOutput {
 public:
  virtual ~GenerateOutput() = default;
  // Number of images that one process generates together, counted from the first, or 1.
  virtual int64_t together() const { return 1; }
  // True if an earlier run has already written this image completely.
  virtual bool has(const AskedImage& asked) = 0;
  virtual void add(const AskedImage& asked, const DrawnImage& drawn) = 0;
  // Describes the images that --resume finds after an error; "" without any.
  virtual std::string left() const { return ""; }
  // Puts the file in place.
  virtual void finish() = 0;
};

// Which batches, or shards of batches, one process generates: "2/4" is batches 1, 5, 9, … (counted from 0),
// the second of four processes.
struct DrawnPart {
  int64_t index = 0, of = 1;
};
// Throws a usage error for words that are not a part, for several parts of a single file other than an .npz,
// and, without `resume`, for several parts into a folder that has files.
DrawnPart drawn_part_of(const std::string& words, const std::string& path, bool resume);

// The size of the images of an .npz, and the share of its batches that one process generates.
struct BatchLayout {
  int64_t width = 0, height = 0, batch = 1;
  DrawnPart part = {};
};

// The key of the JSON in an image's PNG: the settings with its seed and class.
inline constexpr const char* kImageTextKey = "tessera";
std::string image_text(const std::string& settings, const AskedImage& asked);

// Calls `draw` for every batch of the part with a missing image, and adds the missing images. It draws only
// whole batches, so the numbers do not depend on interruptions. `first` is the index of the batch's first
// image. Returns the number of added images.
using DrawBatch = std::function<std::vector<DrawnImage>(std::span<const AskedImage> batch, int64_t first)>;
int64_t draw_missing(GenerateOutput& output, const std::vector<AskedImage>& asked, int64_t batch,
                     const DrawnPart& part, const DrawBatch& draw);

// Throws a usage error if the path is a grid, which has no room for as many images.
void check_count(const std::string& path, int64_t count);

// True if the path's ending is one for raw network values.
bool takes_values(const std::string& path);

// Opens the output by the ending of its path: .png, .jpg, .jpeg, .webp a grid; .npz; .npy and .safetensors
// values; otherwise a folder, of shards if `shards` has a size. `settings` is JSON of everything that
// determines the images: each PNG of a folder or shard has it, and a run can only be resumed with the same.
// Throws a usage error for a folder that has images already.
std::unique_ptr<GenerateOutput> open_generate_output(const std::string& path,
                                                     const std::vector<AskedImage>& asked,
                                                     const std::string& settings, const BatchLayout& layout,
                                                     int64_t channels, bool resume,
                                                     const ShardLayout& shards = {});

// A folder of samples-00000.tar, …: KEY.png of each image and, if every image has a class, KEY.cls; class
// names in classes.txt. A shard is written completely or not at all.
std::unique_ptr<GenerateOutput> open_shard_output(const std::string& path,
                                                  const std::vector<AskedImage>& asked,
                                                  const std::string& settings, const ShardLayout& shards,
                                                  bool resume);

// Draws images from nothing into a grid, a folder, a batch or values, and prints a summary.
void generate_patches(const GenerateOptions& options, const train::ReadyTask& model);

}  // namespace tessera::cli
