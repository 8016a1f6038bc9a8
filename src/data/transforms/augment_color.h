// Colour operations, bit for bit as in Pillow and torchvision on 8-bit RGB images, [height, width, 3].
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "io/images/image.h"

namespace tessera::data {

// Returns ITU-R 601 luma in fixed point, one channel: (19595 R + 38470 G + 7471 B + 2^15) >> 16.
Image luma(const Image& image);

// Computes degenerate + factor * (image - degenerate) in float32, clipped to 0 … 255 and truncated, in place.
void blend(Image& image, const Image& degenerate, double factor);

// Blend with black, with the image's mean luma, with its luma, and with its smoothed version. Factor 1
// changes nothing.
void adjust_brightness(Image& image, double factor);
void adjust_contrast(Image& image, double factor);
void adjust_saturation(Image& image, double factor);
void adjust_sharpness(Image& image, double factor);
// Shifts the hue by `shift` of the circle, -0.5 … 0.5, in 8-bit HSV.
void adjust_hue(Image& image, double shift);
// Computes 255.999 (v / 255)^gamma, truncated.
void adjust_gamma(Image& image, double gamma);
// Sets all three channels to the luma.
void grayscale(Image& image);

void invert(Image& image);
// Inverts values of at least `threshold` (0 … 256).
void solarize(Image& image, int threshold);
// Increases values below 128 by `amount`, at most to 255.
void solarize_add(Image& image, int amount);
// Keeps the upper `bits`, 1 … 8.
void posterize(Image& image, int bits);
// Stretches each channel to 0 … 255.
void autocontrast(Image& image);
// Flattens each channel's histogram.
void equalize(Image& image);

// Convert between RGB and HSV; hue, saturation and value are 0 … 255.
Image to_hsv(const Image& image);
Image from_hsv(const Image& image);

}  // namespace tessera::data
