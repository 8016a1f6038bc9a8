// The corruptions of ImageNet-C and CIFAR-10-C (Hendrycks & Dietterich 2019): 15 of the benchmark and 3 of its extra ones, in 5
// severities, for images of any size.
//
// What a corruption draws is apart from what it does with it: corrupt() is a plain function, and the same numbers give the
// same image. Where the benchmark's code and its description differ, this is the code.
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
// Sides below it are refused.
inline constexpr int kLeastCorruptedSide = 16;

// The names of the benchmark's 15, and behind them speckle_noise, gaussian_blur, saturate.
std::span<const std::string> corruption_names();
inline constexpr size_t kBenchmarkCorruptions = 15;

// What each severity sets, as in the benchmark's code; what the numbers are stands beside each corruption in corruption.cpp.
struct CorruptionParameters {
  std::string name;  // "imagenet" or "cifar"
  std::map<std::string, std::array<std::vector<double>, kSeverities>> by_corruption;
  // Severity 1 to 5. A usage error that names the nearest corruption, or the severities that there are.
  const std::vector<double>& of(const std::string& corruption, int severity) const;
};
const CorruptionParameters& imagenet_c_parameters();  // made for 224 pixels
const CorruptionParameters& cifar_10_c_parameters();  // made for 32 pixels
const CorruptionParameters& corruption_parameters(
    const std::string& name);  // a usage error where there is none

// The random numbers of one image and corruption; a corruption reads those of its own.
struct CorruptionDraws {
  std::vector<double> normal;                // [height, width, 3]: gaussian_noise, speckle_noise
  std::vector<double> normal_2d;             // [height, width]: snow
  std::vector<double> uniform_1, uniform_2;  // [height, width, 3] in [0, 1): impulse_noise, whether and which
  std::vector<int64_t> counts;               // [height, width, 3], Poisson: shot_noise
  std::vector<std::array<int, 2>> offsets;   // (x, y) in the order of the pixels: glass_blur
  std::vector<double> plasma;                // in [-1, 1), in the order of use: fog
  std::vector<double> field_x, field_y;      // [height, width] in [-1, 1): elastic_transform
  std::array<std::array<double, 2>, 3> affine{};  // in [-1, 1): elastic_transform
  double angle = 0;                               // in degrees: motion_blur, snow
  Image frost = {};                               // as large as the image
};

// How many numbers a plasma map of that side takes, a power of two.
int64_t plasma_draws(int side);
int plasma_side(int height, int width);

// Images that frost is cut from; without any a frost is drawn.
using FrostImages = std::vector<Image>;
CorruptionDraws draw_corruption(const std::string& corruption, std::span<const double> parameters,
                                const Image& image, const FrostImages& frosts, RandomStream& stream);

// The corrupted image, [height, width, 3] on the scale of 0 to 255 before the last step, which truncates. The image has three
// channels. Fails on images too small.
std::vector<double> corrupt_unrounded(const Image& image, const std::string& corruption,
                                      std::span<const double> parameters, const CorruptionDraws& draws);
Image corrupt(const Image& image, const std::string& corruption, std::span<const double> parameters,
              const CorruptionDraws& draws);

// The map of fog, [side, side] in [0, 1], by diamonds and squares; `decay` divides the roughness from step size to step size.
std::vector<double> plasma_map(int side, double decay, std::span<const double> draws);

}  // namespace tessera::data
