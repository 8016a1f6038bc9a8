// The corruptions of ImageNet-C and CIFAR-10-C (Hendrycks & Dietterich 2019): the benchmark's 15 and its 3
// extra ones, in 5 severities, for images of any size.
//
// Random draws are separate from their use: corrupt() is a plain function, so the same random numbers give
// the same image. If the benchmark's code and its description differ, this follows the code.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/random.h"
#include "io/images/image.h"

namespace tessera::data {

inline constexpr int kSeverities = 5;
// Smaller sides are errors.
inline constexpr int kLeastCorruptedSide = 16;

// Returns the names of the benchmark's 15, then speckle_noise, gaussian_blur, saturate.
std::span<const std::string> corruption_names();
inline constexpr size_t kBenchmarkCorruptions = 15;

// Parameters of each severity, as in the benchmark's code; corruption.cpp documents those of each corruption.
struct CorruptionParameters {
  std::string name;  // "imagenet" or "cifar"
  std::map<std::string, std::array<std::vector<double>, kSeverities>> by_corruption;
  // Returns the parameters of severity 1 to 5. Throws a usage error with the nearest corruption, or the valid
  // severities.
  const std::vector<double>& of(const std::string& corruption, int severity) const;
};
const CorruptionParameters& imagenet_c_parameters();  // made for 224 pixels
const CorruptionParameters& cifar_10_c_parameters();  // made for 32 pixels
const CorruptionParameters& corruption_parameters(
    const std::string& name);  // throws a usage error if unknown

// The random numbers of one image and corruption; each corruption reads only its own.
struct CorruptionDraws {
  std::vector<double> normal;                // [height, width, 3]: gaussian_noise, speckle_noise
  std::vector<double> normal_2d;             // [height, width]: snow
  std::vector<double> uniform_1, uniform_2;  // [height, width, 3] in [0, 1), for impulse_noise: which pixels
  std::vector<int64_t> counts;               // [height, width, 3], Poisson: shot_noise
  std::vector<std::array<int, 2>> offsets;   // (x, y) in pixel order: glass_blur
  std::vector<double> plasma;                // numbers in [-1, 1), in the order of use: fog
  std::vector<double> field_x, field_y;      // [height, width] in [-1, 1): elastic_transform
  std::array<std::array<double, 2>, 3> affine{};  // in [-1, 1): elastic_transform
  double angle = 0;                               // in degrees: motion_blur, snow
  Image frost = {};                               // has the image's size
};

// Returns the number of draws for a plasma map; `side` is a power of two.
int64_t plasma_draws(int side);
int plasma_side(int height, int width);

// Images that frost is cropped from; if there are none, frost is synthesised.
using FrostImages = std::vector<Image>;
CorruptionDraws draw_corruption(const std::string& corruption, std::span<const double> parameters,
                                const Image& image, const FrostImages& frosts, RandomStream& stream);

// Returns the corrupted image, [height, width, 3] in 0 to 255, before truncation to bytes. The image must
// have three channels. Throws if it is too small.
std::vector<double> corrupt_unrounded(const Image& image, const std::string& corruption,
                                      std::span<const double> parameters, const CorruptionDraws& draws);
Image corrupt(const Image& image, const std::string& corruption, std::span<const double> parameters,
              const CorruptionDraws& draws);

// Computes fog's map by the diamond-square algorithm, [side, side] in [0, 1]; `decay` divides the roughness
// at each step size.
std::vector<double> plasma_map(int side, double decay, std::span<const double> draws);

}  // namespace tessera::data
