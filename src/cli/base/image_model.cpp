#include "cli/base/image_model.h"

#include <algorithm>
#include <iostream>

#include "core/text.h"
#include "data/base/source_kinds.h"
#include "io/files/file.h"
#include "open/device.h"

namespace tessera::cli {
namespace {

std::vector<std::byte> read_standard_input() {
  return read_stream(std::cin, "standard input", data::kMaxPictureBytes);
}

int decoders_of(const ImageModelRequest& request) {
  if (request.batch > 0) return train::use_threads_for_walk(request.compute.threads);
  train::use_threads(request.compute.threads);
  return 1;
}

// Prints the reason for each broken image; if it is the only image, throws the reason.
std::function<void(const std::string&)> named(int64_t images) {
  return [images](const std::string& error) {
    if (images == 1) fail(error);
    std::cerr << "tessera: " << one_line(error) << "\n";
  };
}

}  // namespace

ImageModel::ImageModel(const ImageModelRequest& request) : ImageModel(request, decoders_of(request)) {}

ImageModel::ImageModel(const ImageModelRequest& request, int workers)
    : ReadyTask(request.weights, request.how, request.compute.device, request.compute.precision),
      batch_(request.batch > 0 ? batch_that_fits(request.batch, info().preprocess.size) : 1),
      workers_(workers) {
  for (const std::string& note : opened().notes) std::cerr << one_line(note) << "\n";
}

train::ImageWalk ImageModel::walk() const { return {.batch = batch_, .workers = workers_}; }

int64_t ImageModel::for_each_batch(const data::Source& images,
                                   const std::function<void(const train::WalkedBatch& batch)>& see) const {
  const auto transform = data::make_eval_transform(info().preprocess);
  train::ImageWalk how = walk();
  how.broken = named(images.size());
  return train::for_each_batch(images, *transform, how, see);
}

int64_t ImageModel::for_each_image(const data::Source& images, DecodeOptions decode,
                                   const std::function<void(int64_t index, const Image& image)>& see) const {
  train::ImageWalk how = walk();
  how.broken = named(images.size());
  decode.apply_exif = info().preprocess.apply_exif;
  return train::for_each_image(images, decode, how, see);
}

data::ImageFiles given_images(const std::vector<std::string>& words) {
  data::ImageFiles images(words, read_standard_input);
  for (const std::string& note : images.notes()) std::cerr << one_line(note) << "\n";
  return images;
}

void require_described(const std::string& weights, bool raw, const std::string& example) {
  const std::string file = train::weights_file_of(weights, raw);
  if (const WeightFile opened(file); !train::read_weights_info(opened.metadata(), file).ours)
    fail_usage("'", file, "' does not name its model and heads: write a file that does by `tessera convert ",
               file, " OUT.safetensors --recipe RECIPE`, with the recipe of such a run (as ", example, ")");
}

void fail_for_broken(int64_t broken, int64_t images) {
  if (broken > 0) fail(broken, " of ", counted(images, "image"), " could not be read");
}

}  // namespace tessera::cli
