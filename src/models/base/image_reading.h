// How a language model that answers questions reads images; LLaVA, Frozen and Flamingo differ in it.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>

#include "models/base/generation.h"

namespace tessera::models {

struct ImageReading {
  int64_t image_token = -1;  // the id at the places of an image
  bool among_words = true;   // each feature replaces a word; false: an image takes one place
  // Computes the features of images [images, 3, height, width], read once: [images, features, width].
  std::function<torch::Tensor(const torch::Tensor& images)> features = {};
  // For generate(): reads a prompt int64 [rows, tokens] that refers to these images, in order over its rows.
  // `features` is undefined if it refers to none.
  std::function<NextTokenModel(const torch::Tensor& prompt, const torch::Tensor& features, int64_t beams)>
      begin = {};

  int64_t places_of(const torch::Tensor& read) const { return among_words ? read.size(1) : 1; }
};

}  // namespace tessera::models
