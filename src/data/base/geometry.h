// Sizes and boxes of the test and training transforms, as plain functions. They match timm's transforms to
// the pixel.
#pragma once

#include <string>
#include <vector>

#include "data/base/draws.h"
#include "io/images/image.h"

namespace tessera::data {

struct Extent {
  int height = 0, width = 0;
  bool operator==(const Extent&) const = default;
};

// Python's round(): halves go to the even neighbour.
int round_half_even(double value);

// If a long side would exceed 1e9 pixels, the resize functions throw an Error.
// Resizes the short side to `side` and the long one in proportion, truncated (torchvision's Resize of one
// number).
// Short side to `side`, the long one in proportion and truncated (torchvision's Resize of one number).
Extent resize_short_side(Extent picture, int side);
// Divides both sides by one ratio: the larger one if `longest` (fits inside the target), else the smaller
// (covers it).
Extent resize_keep_ratio(Extent picture, Extent target, bool longest);

// The position of a centred image in the output: its region `window` goes to (left, top), and the rest of the
// output is padding.
struct Placement {
  Box window;
  int left = 0, top = 0;
};
Placement centre(Extent picture, Extent output);

// center: the short side becomes floor(size / crop), then a centre crop. squash: both sides become floor(size
// / crop), whatever the aspect ratio. border: the whole image fits inside, the rest is padding.
enum class CropMode { center, squash, border };
CropMode parse_crop_mode(const std::string& name);
Extent test_size(Extent picture, Extent output, double crop, CropMode mode);

// Draws a box of `scale` x the area and an aspect ratio within `ratio` (log-uniform). After ten failed
// attempts, takes the largest central box with an allowed ratio. (Szegedy et al., 2015, in timm's form.)
Box random_resized_crop(Extent picture, const std::vector<double>& scale, const std::vector<double>& ratio,
                        Draws& draws);

// Mirrors a position outside of 0 … size-1 at the edges, without repeating the edge itself.
int reflect(int position, int size);

}  // namespace tessera::data
