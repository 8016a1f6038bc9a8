// Which model a published file of vision and language holds, told by the names and shapes of its tensors. What those
// leave open is given, or as in all published files: heads of 64 channels but for a few sizes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/value.h"
#include "models/base/family.h"
#include "models/pairs/coca.h"
#include "models/pairs/two_tower.h"
#include "weights/base/name_table.h"

namespace tessera::models {

// What a file's configuration says; 0 = nothing.
struct TowerHints {
  double image_eps = 0, text_eps = 0;  // of the norms
  int64_t pad_token = 0;
  int64_t image_heads = 0, text_heads = 0, pooler_heads = 0, decoder_heads = 0;
  int64_t image_rows = 0,
          image_columns = 0;  // of a Transformer's images in pixels, where they are no squares
  int64_t image_side = 0;     // of squares that are no whole number of patches: what is over is left out
  // published: GELU, of SigLIP its approximation with tanh. OpenAI's weights have quick_gelu.
  Activation image_activation = Activation::published, text_activation = Activation::published;
  bool text_told = false;  // the text tower is as the other hints say, also where the images' is SigLIP's
  int64_t end_token = -1;  // the text is read at the first of these instead of at the largest id
  // The text is read at its last place, or its first; no place is hidden.
  bool text_read_last = false, text_read_first = false, text_sees_all = false;
  // The image is the mean of its patches' tokens, normed behind that mean or before.
  bool mean_of_patches = false, norm_after_mean = false;
};

struct PublishedTowers {
  std::vector<train::NamePlace> places;  // of every tensor of the file
  std::string family;                    // of the image tower
  Value image;                           // its settings
  bool coca = false;
  TwoTowerConfig towers;   // of CLIP and SigLIP; image_width is the backbone's
  CocaConfig captioner;    // of CoCa
  bool siglip = false;     // trained by pairs' sigmoids
  int64_t image_side = 0;  // that images are brought to; 0 = as the settings say
};

// The table of names of a model of images and texts; null for other files.
const train::NameTable* tower_table(const std::vector<std::string>& names);

using PublishedShapes = std::vector<std::pair<std::string, std::vector<int64_t>>>;
// Fails naming what is missing or of no sensible shape.
PublishedTowers describe_towers(const PublishedShapes& tensors, const TowerHints& hints = {});

}  // namespace tessera::models
