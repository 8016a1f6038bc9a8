// Images for a single pass of a model: one by one from the command line, or in batches, decoded by threads
// of their own.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "data/base/image_files.h"
#include "data/base/source.h"
#include "data/transforms/transform.h"

namespace tessera::cli {

// Images and folders of images, among them perhaps one "-": the image on standard input, which can be read once.
class GivenImages {
 public:
  explicit GivenImages(const std::vector<std::string>& words);

  int64_t size() const { return files_.size(); }
  // As they are shown and as outputs are named after them: standard input is "stdin".
  const std::string& name(int64_t index) const {
    return index == piped_ ? piped_name_ : files_.paths()[static_cast<size_t>(index)];
  }
  // Files that are read: none of standard input.
  std::vector<std::string> paths() const;
  const std::vector<std::string>& notes() const { return files_.notes(); }
  data::RawSample read(int64_t index) const;

 private:
  data::ImageFiles files_;
  int64_t piped_ = -1;  // the place of standard input
  std::string piped_name_ = "stdin";
};

struct ImageBatch {
  int64_t first = 0;                // place of its first image among all
  torch::Tensor images;             // [images, channels, height, width]; rows of broken ones are zero
  std::vector<std::string> names;   // as the source names what it read, "" where it could not
  std::vector<std::string> errors;  // one an image, "" where it could be read
};

class ImageBatches {
 public:
  // Batches of `batch` images, the last one smaller. `workers` threads, in addition to the compute threads,
  // decode one batch ahead. Both arguments must outlive this object.
  ImageBatches(const data::Source& source, const data::Transform& transform, int64_t batch, int workers);
  ~ImageBatches();  // waits for the batch that is being decoded
  ImageBatches(const ImageBatches&) = delete;

  std::optional<ImageBatch> next();  // empty at the end

 private:
  ImageBatch decode(int64_t first) const;
  void begin(int64_t first);

  const data::Source& source_;
  const data::Transform& transform_;
  int64_t batch_;
  int workers_;
  std::future<ImageBatch> coming_;
};

}  // namespace tessera::cli
