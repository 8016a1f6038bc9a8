// For the tests of images: a scene, and the comparison of two images.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "core/random.h"
#include "io/images/image.h"

namespace tessera {

inline void expect_same(const Image& got, const Image& want, const std::string& what) {
  ASSERT_EQ(got.width, want.width) << what;
  ASSERT_EQ(got.height, want.height) << what;
  ASSERT_TRUE(got.pixels == want.pixels) << what;
}

// Smooth colour, edges and noise.
inline Image scene(int width, int height, int channels, uint64_t seed) {
  RandomStream random(seed, "scene");
  Image image(width, height, channels);
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < channels; ++c) {
        const double v = 127 + 90 * std::sin(x / 9.0 + c) * std::cos(y / (6.0 + c)) + (x > 2 * y ? 50 : 0);
        image.row(y)[x * channels + c] =
            static_cast<uint8_t>(std::clamp(v + random.normal() * 12, 0.0, 255.0));
      }
  return image;
}

}  // namespace tessera
