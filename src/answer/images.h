// Images of requests: encoded files, pixels, or preprocessed arrays.
#pragma once

#include "ops/torch.h"

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
// `max_pixels`.
std::vector<data::RawSample> read_samples(const Request& request, int64_t max_pixels);
// Decodes the images of a request. Throws TooLarge for more than `max_pixels`, before anything is decoded.
std::vector<Image> read_images(const Request& request, bool apply_exif, int64_t max_pixels);
// The same, transformed into float32 [images, channels, height, width]. Throws a usage error for a value in
// `prepared` that is not finite.
torch::Tensor read_prepared(const Request& request, const data::Transform& transform, int64_t max_pixels);

// Copies a tensor on the CPU into an output.
Array array_of(const std::string& name, const torch::Tensor& values);
Array texts_of(const std::string& name, std::vector<int64_t> shape, std::vector<std::string> texts);

// Returns size, crop, interpolation, mean, std, … as JSON.
nlohmann::ordered_json preprocess_json(const data::Preprocess& preprocess);

}  // namespace tessera::answer
