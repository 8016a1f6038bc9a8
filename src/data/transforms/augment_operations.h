// Operations of augmentation on 8-bit images, [height, width, channels].
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "data/base/draws.h"
#include "data/transforms/resize.h"
#include "io/images/image.h"

namespace tessera::data {

// Colour operations, bit for bit as in Pillow and torchvision on RGB images.

// Returns ITU-R 601 luma in fixed point, one channel: (19595 R + 38470 G + 7471 B + 2^15) >> 16.
Image luma(const Image& image);

// Computes degenerate + factor * (image - degenerate) in float32, clipped to 0 … 255 and truncated, in place.
void blend(Image& image, const Image& degenerate, double factor);

// Blend the image with black, with its mean luma, with its luma, and with its smoothed version. Factor 1
// changes nothing.
void adjust_brightness(Image& image, double factor);
void adjust_contrast(Image& image, double factor);
void adjust_saturation(Image& image, double factor);
void adjust_sharpness(Image& image, double factor);
// Shifts the hue by `shift` (a fraction of the circle, -0.5 … 0.5), in 8-bit HSV.
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
// Stretches the range of each channel to 0 … 255.
void autocontrast(Image& image);
// Flattens each channel's histogram.
void equalize(Image& image);

// Convert between RGB and HSV; hue, saturation and value are 0 … 255.
Image to_hsv(const Image& image);
Image from_hsv(const Image& image);

// Affine maps of images, bit for bit as in Pillow's Image.transform and Image.rotate on RGB.

using Colour = std::array<uint8_t, 3>;

// Output pixel (x, y) samples the image at (a x + b y + c, d x + e y + f), where `matrix` = {a, b, c, d, e,
// f} and pixel centres are at halves. Outside pixels become `fill`. Interpolation: nearest, bilinear or
// bicubic (not antialiased).
Image affine(const Image& image, const std::array<double, 6>& matrix, Interpolation interpolation,
             const Colour& fill);

// Rotates counterclockwise about the centre and keeps the size.
Image rotate(const Image& image, double degrees, Interpolation interpolation, const Colour& fill);

// Blurs, bit for bit as in Pillow on 8-bit images of 1 or 3 channels.

// Computes the mean over 2 * radius + 1 pixels; the outermost two are weighted by the radius' fraction; edges
// repeat. Runs `passes` times along the rows, then as often down the columns.
Image box_blur(const Image& image, double radius, int passes = 1);

// Applies three extended box blurs with a total variance of radius^2. (Gwosdek et al., "Theoretical
// foundations of Gaussian convolution by extended box filtering", 2011.)
Image gaussian_blur(const Image& image, double radius);

// Applies a 3x3 filter with weights 5 / 13 in the middle and 1 / 13 elsewhere; the border is unchanged.
Image smooth(const Image& image);

// Photometric distortion (Liu et al. 2016, "SSD"), in mmseg's form: bytes between the steps, OpenCV's HSV.
//
//   brightness v + d; contrast v a, before or after the next two; saturation S a; hue (H + d) mod 180
// each with probability 1/2.

struct PhotometricConfig {
  double brightness = 32;  // d in -32 … 32
  double contrast[2] = {0.5, 1.5}, saturation[2] = {0.5, 1.5};
  int hue = 18;  // half degrees; +18 itself is never drawn
};

// Distorts an image of 3 channels in place.
void distort_photometrically(const PhotometricConfig& config, Draws& draws, Image& image);

// Convert between RGB and OpenCV's 8-bit HSV: hue 0 … 179, saturation and value 0 … 255.
Image to_half_degree_hsv(const Image& image);
Image from_half_degree_hsv(const Image& image);

}  // namespace tessera::data
