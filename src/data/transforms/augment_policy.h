// RandAugment (Cubuk et al., 2019) and AutoAugment (Cubuk et al., 2018) with timm's operations, levels and
// names.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/base/draws.h"
#include "data/transforms/augment_operations.h"
#include "io/images/image.h"

namespace tessera::data {

// The parameters of operations in addition to their level.
struct OpSettings {
  double translate_pixels = 100;  // TranslateX, TranslateY at level 10
  double translate_share = 0.45;  // TranslateXRel, TranslateYRel at level 10: share of the side
  Colour fill = {128, 128, 128};  // colour of pixels from outside
  // For operations that move pixels; if unset, bilinear or bicubic is chosen at random each time.
  std::optional<Interpolation> interpolation;
};

// "AutoContrast", "Rotate", "SolarizeIncreasing", …
std::vector<std::string> op_names();

// Returns the argument of an operation at a magnitude of 0 … 10 (or more), or nothing if it takes none.
// `negative`: the opposite direction, for operations that have one. Throws a usage error for an unknown name.
std::optional<double> op_argument(const std::string& name, double magnitude, const OpSettings& settings,
                                  bool negative);

// Applies an operation with its argument (see op_argument). Posterize to 0 bits makes the image black.
void apply_op(const std::string& name, double argument, const OpSettings& settings, Draws& draws,
              Image& image);

// An operation in a policy.
struct PolicyOp {
  std::string name;
  double probability = 0.5;
  double magnitude = 10;
  double deviation = 0;  // normal, on the magnitude; infinite: uniform from 0 to magnitude
  double most = 10;      // the magnitude is clipped to 0 … most
};

// `layers` times, one choice is drawn and its operations are applied in order, each with its probability.
// With weights no choice is drawn twice; without them all have the same probability.
struct Policy {
  std::vector<std::vector<PolicyOp>> choices;
  int layers = 1;
  std::vector<double> weights;
};

// Parses timm's strings: "rand-m9-mstd0.5-inc1" (m magnitude, n layers, p probability, mstd, mmax, inc, t set
// of operations: 3a, 3aw or weights), or "original", "originalr", "v0", "v0r", "3a" with an optional
// "-mstd…". Throws a usage error that names an invalid part.
Policy parse_policy(const std::string& description);

void apply_policy(const Policy& policy, const OpSettings& settings, Draws& draws, Image& image);

}  // namespace tessera::data
