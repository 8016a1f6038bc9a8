// Where `tessera generate` puts its images: a grid in one picture, a folder of PNGs or of shards, a batch in .npz as ADM's
// tools read it, or the network's own numbers as arrays.
#pragma once

#include "ops/torch.h"

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/images/image.h"

namespace tessera::cli {

// One image that is asked for.
struct AskedImage {
  int64_t index = 0;  // among all
  uint64_t seed = 0;
  int64_t label = 0;
  std::string caption;  // its class in words; empty of a generator that knows none
};

struct DrawnImage {
  Image picture;                    // empty where the network's numbers are asked for
  torch::Tensor values;             // [channels, height, width], the network's
  std::vector<Image> moments = {};  // on the way to the picture: a row of the grid
};

// Shards of a folder.
struct ShardLayout {
  int64_t images = 0;                         // a shard; 0 = each image a file
  int64_t classes = 0;                        // labels from here on stand for none
  std::vector<std::string> class_names = {};  // empty where nobody knows
};
// Usage errors: shards of an output that is no folder, or that do not hold whole batches.
void check_shards(const ShardLayout& shards, const std::string& path, int64_t batch);

class GenerateOutput {
 public:
  virtual ~GenerateOutput() = default;
  // Images from the first on that one process draws together, or 1.
  virtual int64_t together() const { return 1; }
  // Whether an earlier run has left this image whole.
  virtual bool has(const AskedImage& asked) = 0;
  virtual void add(const AskedImage& asked, const DrawnImage& drawn) = 0;
  // Says in words what of it --resume finds after an error; "" where nothing is left.
  virtual std::string left() const { return ""; }
  // Puts the file in place.
  virtual void finish() = 0;
};

// Which batches, or shards of batches, one process draws: "2/4" are batches 1, 5, 9, … of four processes' work, counted
// from 0.
struct DrawnPart {
  int64_t index = 0, of = 1;
};
// Usage errors: words that are no such share; several parts of one file other than an .npz; several parts into a folder that
// holds files, without `resume`.
DrawnPart drawn_part_of(const std::string& words, const std::string& path, bool resume);

// The size of the images of an .npz, and the share of its batches that one process draws.
struct BatchLayout {
  int64_t width = 0, height = 0, batch = 1;
  DrawnPart part = {};
};

// The JSON that stands in an image's PNG under `kImageTextKey`: those settings with its seed and class.
inline constexpr const char* kImageTextKey = "tessera";
std::string image_text(const std::string& settings, const AskedImage& asked);

// Asks `draw` for every batch of that part of which an image is missing, and adds those that are. A whole batch or nothing
// of it is drawn: the same numbers however often a run was cut off. `first` is the batch's first image among all.
// Returns how many were added.
using DrawBatch = std::function<std::vector<DrawnImage>(std::span<const AskedImage> batch, int64_t first)>;
int64_t draw_missing(GenerateOutput& output, const std::vector<AskedImage>& asked, int64_t batch,
                     const DrawnPart& part, const DrawBatch& draw);

// Whether a path of that ending takes the network's numbers.
bool takes_values(const std::string& path);

// The kind follows from the ending: .png, .jpg, .jpeg, .webp a grid; .npz; .npy and .safetensors the values; a path
// without one of these a folder, of shards where `shards` says how large they are. `settings` is JSON of all that decides the
// images: it stands in each PNG of a folder or shard, and another run may only be resumed with the same. Usage errors: a
// folder that holds images already.
std::unique_ptr<GenerateOutput> open_generate_output(const std::string& path,
                                                     const std::vector<AskedImage>& asked,
                                                     const std::string& settings, const BatchLayout& layout,
                                                     int64_t channels, bool resume,
                                                     const ShardLayout& shards = {});

}  // namespace tessera::cli
