// Weights and images of a command that processes images: predict, segment, caption, …
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "answer/pictures.h"
#include "cli/base/common.h"
#include "data/base/image_files.h"
#include "open/image_walk.h"
#include "open/ready_task.h"

namespace tessera::cli {

struct ImageModelRequest {
  std::string weights;
  train::OpenOptions how = {};
  ComputeOptions compute = {};
  int64_t batch = 0;  // batch size; 0: images are read one by one, at their own size
};

class ImageModel : public train::ReadyTask {
 public:
  // Sets the compute threads, opens the weights and prints their notes.
  explicit ImageModel(const ImageModelRequest& request);

  // Walks over all images as train::for_each_batch() and for_each_image() do, and prints the reason for each
  // unreadable one. Returns the number of these; if there is only one image, throws the reason. Images are
  // rotated as the weights specify.
  int64_t for_each_batch(const data::Source& images,
                         const std::function<void(const train::WalkedBatch& batch)>& see) const;
  int64_t for_each_image(const data::Source& images, DecodeOptions decode,
                         const std::function<void(int64_t index, const Image& image)>& see) const;
  // A walk with the request's batch size and threads, for commands that handle broken images differently.
  train::ImageWalk walk() const;

 private:
  ImageModel(const ImageModelRequest& request, int workers);

  int64_t batch_;
  int workers_;
};

// Returns the images that the user listed, including "-" for standard input; prints notes on folders.
data::ImageFiles given_images(const std::vector<std::string>& words);

// Throws a usage error if weights of another program do not describe their model and heads. The error shows
// how to convert them, with a recipe such as `example`.
void require_described(const std::string& weights, bool raw, const std::string& example);

// Fails with the number of images that could not be read, if there are any.
void fail_for_broken(int64_t broken, int64_t images);

using answer::choose_views;

}  // namespace tessera::cli
