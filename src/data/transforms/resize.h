// Pillow's antialiased resize, bit for bit on uint8 (Resample.c: support scaled by the ratio, horizontal pass
// first, coefficients in 22-bit fixed point, 8-bit rounding between the passes, a pass without change
// skipped).
#pragma once

#include <array>
#include <string>
#include <vector>

#include "io/images/image.h"

namespace tessera::data {

enum class Interpolation { nearest, box, bilinear, hamming, bicubic, lanczos };

// Usage error naming the right names.
Interpolation parse_interpolation(const std::string& name);

// The part of a picture that is resized, in pixels; fractions allowed, as in Pillow's `box` argument.
struct FloatBox {
  double left, top, right, bottom;
};
// The longest side that is resized, in pixels: shrinking takes 44 bytes and more for each.
inline constexpr int kLongestSide = 1 << 24;

// 1 or 3 channels.
Image resize(const Image& image, int width, int height, Interpolation interpolation);
Image resize(const Image& image, int width, int height, Interpolation interpolation, const FloatBox& box);

// The picture, or where a side is longer than `side` pixels the same shrunk so that none is.
Image shrunk_to_fit(const Image& image, int side);

// What a model is fed: resize, then cut, then mirror, without the pixels that are cut off ever being
// computed. `window` lies within the resized picture of width x height pixels. Writes planes, [3,
// window.height, window.width]; one channel is repeated three times.
struct ResizePlan {
  FloatBox box;
  int width = 0, height = 0;
  Interpolation interpolation = Interpolation::bicubic;
  Box window;
  bool mirrored = false;
};
void resize_planes(const Image& image, const ResizePlan& plan, uint8_t* out);
// The same as a picture; 3 channels always.
Image resize(const Image& image, const ResizePlan& plan);

// Bytes to the floats that a model is fed: (byte / 255 - mean) / std in float32, step by step as
// torchvision's ToTensor and Normalize compute it.
class Normalisation {
 public:
  // Three numbers each.
  Normalisation(const std::vector<double>& mean, const std::vector<double>& std);
  // The results for the bytes 0 … 255 of a channel.
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
// A picture of 3 channels as normalised planes.
void normalise(const Image& image, const Normalisation& normalisation, float* out);

// The instruction sets that this processor can resize with, fastest first; TESSERA_RESAMPLE in the
// environment and use_resample_form (tests, benchmarks; "" is the fastest) choose one. All give the same
// bits.
std::vector<std::string> resample_form_names();
void use_resample_form(const std::string& name);

}  // namespace tessera::data
