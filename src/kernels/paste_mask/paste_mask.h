// A small mask of a box laid over the image, by the two published rules.
//
//   grid     (detectron2, mmdet) pixel centres are looked up in the mask: u = (x + 0.5 - left) / (right - left) M - 0.5,
//            bilinear, zeros outside of the mask; a pixel belongs to the object at >= threshold
//   resized  (torchvision) the mask is given a border of zeros, its box grown in proportion and cut to whole numbers,
//            and the mask resized to it (bilinear, half-pixel centres); at > threshold
//
// Both weigh rows and columns apart. A box without area covers nothing.
#pragma once

#include <stdint.h>

namespace tessera::kernels {

enum class PasteRule { grid, resized };

// `mask` (side, side), box left, top, right, bottom in pixels of the image; `out` (height, width) is written whole.
// Linear in the image.
void paste_mask(const float* mask, int64_t side, const float* box, PasteRule rule, int64_t height,
                int64_t width, float* out);
void paste_mask(const double* mask, int64_t side, const double* box, PasteRule rule, int64_t height,
                int64_t width, double* out);
// 1 where the object is, else 0.
void paste_mask_binary(const float* mask, int64_t side, const float* box, PasteRule rule, double threshold,
                       int64_t height, int64_t width, uint8_t* out);
void paste_mask_binary(const double* mask, int64_t side, const double* box, PasteRule rule, double threshold,
                       int64_t height, int64_t width, uint8_t* out);

// The definition: each pixel by itself.
namespace reference {
double pasted_value(const double* mask, int64_t side, const double* box, PasteRule rule, int64_t y,
                    int64_t x);
}

}  // namespace tessera::kernels
