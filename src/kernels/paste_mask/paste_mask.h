// Pastes a box's small mask onto the image, by the two published rules.
//
//   grid     (detectron2, mmdet) looks up pixel centres in the mask, bilinear, zeros outside:
//            u = (x + 0.5 - left) / (right - left) M - 0.5; a pixel belongs to the object at >= threshold
//   resized  (torchvision) pads the mask with zeros, enlarges its box in proportion, rounds it to integers,
//            and resizes the mask to it (bilinear, half-pixel centres); at > threshold
//
// Both are separable in rows and columns. A box without area covers nothing.
#pragma once

#include <stdint.h>

namespace tessera::kernels {

enum class PasteRule { grid, resized };

// `mask` (side, side), box left, top, right, bottom in pixels of the image; overwrites all of `out` (height,
// width). Linear in the image.
void paste_mask(const float* mask, int64_t side, const float* box, PasteRule rule, int64_t height,
                int64_t width, float* out);
void paste_mask(const double* mask, int64_t side, const double* box, PasteRule rule, int64_t height,
                int64_t width, double* out);
// Writes 1 inside the object, else 0.
void paste_mask_binary(const float* mask, int64_t side, const float* box, PasteRule rule, double threshold,
                       int64_t height, int64_t width, uint8_t* out);
void paste_mask_binary(const double* mask, int64_t side, const double* box, PasteRule rule, double threshold,
                       int64_t height, int64_t width, uint8_t* out);

}  // namespace tessera::kernels
