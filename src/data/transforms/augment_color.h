// Operations on the colours of a picture, as Pillow and torchvision compute them on 8-bit RGB; bit for bit.
// All take pictures of 3 channels, [height, width, 3].
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "io/images/image.h"

namespace tessera::data {

// ITU-R 601 luma in fixed point: (19595 R + 38470 G + 7471 B + 2^15) >> 16. One channel.
Image luma(const Image& image);

// degenerate + factor * (image - degenerate) in float32, cut to 0 … 255 and truncated; in place of `image`.
void blend(Image& image, const Image& degenerate, double factor);

// Blends with black, with the picture's mean luma, with its luma, and with its smoothed self. Factor 1
// changes nothing.
void adjust_brightness(Image& image, double factor);
void adjust_contrast(Image& image, double factor);
void adjust_saturation(Image& image, double factor);
void adjust_sharpness(Image& image, double factor);
// Shifts the hue by `shift` of the circle, -0.5 … 0.5, in 8-bit HSV.
void adjust_hue(Image& image, double shift);
// 255.999 (v / 255)^gamma, truncated.
void adjust_gamma(Image& image, double gamma);
// Luma in all three channels.
void grayscale(Image& image);

void invert(Image& image);
// Values of at least `threshold` (0 … 256) are inverted.
void solarize(Image& image, int threshold);
// Values below 128 grow by `amount`, at most to 255.
void solarize_add(Image& image, int amount);
// Keeps the upper `bits`, 1 … 8.
void posterize(Image& image, int bits);
// Stretches each channel to 0 … 255.
void autocontrast(Image& image);
// Makes each channel's histogram as flat as it can be.
void equalize(Image& image);

// Hue, saturation, value of 0 … 255 each.
Image to_hsv(const Image& image);
Image from_hsv(const Image& image);

}  // namespace tessera::data
