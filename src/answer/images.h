// Images of requests: encoded files, pixels, or preprocessed arrays.
#pragma once

#include "ops/torch.h"

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "answer/answerer.h"
#include "data/transforms/transform.h"

namespace tessera::answer {

// `image` (encoded files) and `pixels` (uint8, [images, height, width, 3]).
std::vector<ArrayDescription> picture_inputs();
// Adds `prepared`: float32 [images, channels, height, width], preprocessed for the model.
std::vector<ArrayDescription> prepared_inputs(const std::vector<int64_t>& shape);
std::vector<std::string> names_of(const std::vector<ArrayDescription>& arrays);

// Returns the images of a request, still encoded, once their sizes are checked. Throws TooLarge for more than
// `max_pixels` of one, or 64 times as many of all.
std::vector<data::RawSample> read_samples(const Request& request, int64_t max_pixels);
// Decodes the images of a request. Before anything is decoded, calls `check_size` for each. Throws TooLarge for more
// than `max_pixels` of one, or four times as many of all.
std::vector<Image> read_images(const Request& request, bool apply_exif, int64_t max_pixels,
                               const std::function<void(int64_t height, int64_t width)>& check_size);
// The same for the first `most` images, transformed into float32 [images, channels, height, width]; others are not
// decoded. Throws TooLarge for more than 1 GB, and a usage error for a value in `prepared` that is not finite.
torch::Tensor read_prepared(const Request& request, const data::Transform& transform, int64_t max_pixels,
                            int64_t most = std::numeric_limits<int64_t>::max());

// Throws TooLarge if `count` transformed images of `numbers` floats each take more than 1 GB.
void check_prepared(int64_t count, int64_t numbers);

// Copies a tensor on the CPU into an output.
Array array_of(const std::string& name, const torch::Tensor& values);
Array texts_of(const std::string& name, std::vector<int64_t> shape, std::vector<std::string> texts);

// Returns size, crop, interpolation, mean, std, … as JSON.
nlohmann::ordered_json preprocess_json(const data::Preprocess& preprocess);

}  // namespace tessera::answer
