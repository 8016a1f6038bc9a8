// Pillow's antialiased resize, bit for bit on uint8 (Resample.c: support scaled by the ratio, horizontal pass
// first, coefficients in 22-bit fixed point, 8-bit rounding between the passes, a pass that changes nothing
// is skipped).
#pragma once

#include <array>
#include <string>
#include <vector>

#include "io/images/image.h"

namespace tessera::data {

enum class Interpolation { nearest, box, bilinear, hamming, bicubic, lanczos };

// Throws a usage error that lists the valid names.
Interpolation parse_interpolation(const std::string& name);

// The part of an image to resize, in pixels; fractions allowed, as in Pillow's `box` argument.
struct FloatBox {
  double left, top, right, bottom;
};
// The longest side that resize accepts, in pixels: shrinking needs at least 44 bytes for each pixel of it.
inline constexpr int kLongestSide = 1 << 24;

// Resizes images of 1 or 3 channels.
Image resize(const Image& image, int width, int height, Interpolation interpolation);
Image resize(const Image& image, int width, int height, Interpolation interpolation, const FloatBox& box);

// Returns the image, shrunk if a side is longer than `side` pixels.
Image shrunk_to_fit(const Image& image, int side);

// Makes the model input: resize, then crop, then mirror, without computing pixels outside the crop. `window`
// is inside the resized image of width x height pixels. Writes planes, [3, window.height, window.width]; a
// single channel is repeated three times.
struct ResizePlan {
  FloatBox box;
  int width = 0, height = 0;
  Interpolation interpolation = Interpolation::bicubic;
  Box window;
  bool mirrored = false;
};
void resize_planes(const Image& image, const ResizePlan& plan, uint8_t* out);
// The same as an image instead of planes; always 3 channels.
Image resize(const Image& image, const ResizePlan& plan);

// Maps bytes to the model's floats: (byte / 255 - mean) / std in float32, step by step as in torchvision's
// ToTensor and Normalize.
class Normalisation {
 public:
  // Both have three numbers.
  Normalisation(const std::vector<double>& mean, const std::vector<double>& std);
  // Returns the results for the bytes 0 … 255 of a channel.
  const float* table(int channel) const { return table_.data() + 256 * channel; }
  float mean(int channel) const { return mean_[static_cast<size_t>(channel)]; }
  float std(int channel) const { return std_[static_cast<size_t>(channel)]; }
  bool by_fma(int channel) const { return by_fma_[static_cast<size_t>(channel)]; }

 private:
  std::array<float, 3> mean_{}, std_{};
  std::array<bool, 3> by_fma_{};
  std::array<float, 3 * 256> table_{};
};
void resize_planes(const Image& image, const ResizePlan& plan, const Normalisation& normalisation,
                   float* out);
// Writes an image of 3 channels as normalised planes.
void normalise(const Image& image, const Normalisation& normalisation, float* out);

// Returns the instruction sets that this processor supports for resizing, fastest first. The environment
// variable TESSERA_RESAMPLE or use_resample_form (tests, benchmarks; "" is the fastest) selects one. All
// return the same bits.
std::vector<std::string> resample_form_names();
void use_resample_form(const std::string& name);

}  // namespace tessera::data
