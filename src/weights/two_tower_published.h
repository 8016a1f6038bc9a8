// Infers the model in a published vision-language file from the names and shapes of its tensors. Hints supply
// the rest. Defaults are those of all published files: heads of 64 channels, except for a few sizes.
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

// Settings from a file's configuration; 0 = not set.
struct TowerHints {
  double image_eps = 0, text_eps = 0;  // epsilon of norms
  int64_t pad_token = 0;
  int64_t image_heads = 0, text_heads = 0, pooler_heads = 0, decoder_heads = 0;
  int64_t image_rows = 0,
          image_columns = 0;  // pixels, for Transformers with images that are not square
  int64_t image_side = 0;     // pixels, if not a multiple of the patch size: the border is dropped
  // published: GELU, or its tanh approximation in SigLIP. OpenAI's weights use quick_gelu.
  Activation image_activation = Activation::published, text_activation = Activation::published;
  bool text_told = false;  // the hints also describe the text tower of a SigLIP image tower
  int64_t end_token = -1;  // pools at the first of these instead of at the largest id
  // Pools the text at its last or first position; text_sees_all: no causal mask.
  bool text_read_last = false, text_read_first = false, text_sees_all = false;
  // Averages the patch tokens; the norm is before the mean, or after it with norm_after_mean.
  bool mean_of_patches = false, norm_after_mean = false;
};

struct PublishedTowers {
  std::vector<train::NamePlace> places;  // places in the model of all the file's tensors
  std::string family;                    // image tower's family
  Value image;                           // image tower's settings
  bool coca = false;
  TwoTowerConfig towers;   // for CLIP and SigLIP; image_width is the backbone's
  CocaConfig captioner;    // for CoCa
  bool siglip = false;     // trained with pairwise sigmoids
  int64_t image_side = 0;  // size to resize images to; 0 = given by the settings
};

// Returns the ratio of hidden channels to width. Half a channel more protects against rounding.
double mlp_ratio(int64_t hidden, int64_t dim);

// Returns the name table of an image-text model, null for other files.
const train::NameTable* tower_table(const std::vector<std::string>& names);

using PublishedShapes = std::vector<std::pair<std::string, std::vector<int64_t>>>;
// Throws Error that names a tensor if it is missing or has an invalid shape.
PublishedTowers describe_towers(const PublishedShapes& tensors, const TowerHints& hints = {});

}  // namespace tessera::models
