// A loop over images, for all code that reads each of them once.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/base/source.h"
#include "data/transforms/transform.h"

namespace tessera::train {

struct ImageWalk {
  int64_t batch = 16;  // images at a time
  int workers = 1;     // number of decoding threads, in addition to the compute threads
  // Called for each image that cannot be read, with the reason; it may throw.
  std::function<void(const std::string& error)> broken = {};
  // Called after each batch or image, with the number of images so far.
  std::function<void(int64_t done)> progress = {};
  std::string interruption = "interrupted";  // the message of ErrorKind::interrupted
};

struct WalkedBatch {
  int64_t first = 0;                // index of its first image
  torch::Tensor images;             // [images, channels, height, width]; rows of unreadable images are zero
  std::vector<std::string> names;   // as in the source, "" for unreadable images
  std::vector<std::string> errors;  // one per image, "" if it could be read
  int64_t size() const { return std::ssize(errors); }
  bool readable(int64_t image) const { return errors[static_cast<size_t>(image)].empty(); }
};

// Returns `count` images [images, channels, height, width] as a test transform makes them from these samples.
torch::Tensor prepared_images(const data::Transform& transform, int64_t count,
                              const std::function<data::RawSample(int64_t index)>& sample);

// Sets the compute threads so that a walk's decoders have room. Returns the number of decoders, for
// ImageWalk::workers.
int use_threads_for_walk(int64_t threads);

// Calls `see` with batches of transformed images, decoded one batch ahead of `see`. Returns the number of
// images that could not be read. Throws ErrorKind::interrupted after SIGINT.
int64_t for_each_batch(const data::Source& source, const data::Transform& transform, const ImageWalk& walk,
                       const std::function<void(const WalkedBatch& batch)>& see);

// The same with single images of their own size; skips those that cannot be read.
int64_t for_each_image(const data::Source& source, const DecodeOptions& decode, const ImageWalk& walk,
                       const std::function<void(int64_t index, const Image& image)>& see);

}  // namespace tessera::train
