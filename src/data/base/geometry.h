// Sizes and boxes of the test and training transforms, as plain functions; they agree with timm's transforms
// to the pixel.
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

// The long side of a strip may not grow past 1e9 pixels: Error.
// Short side to `side`, the long one in proportion and truncated (torchvision's Resize of one number).
Extent resize_short_side(Extent picture, int side);
// Both sides divided by one ratio, the smaller (`longest` false: covers the target) or the larger one (fits
// inside it).
Extent resize_keep_ratio(Extent picture, Extent target, bool longest);

// Where the centre of a resized picture lands in the output: `window` of the picture goes to (left, top) of
// the output, the rest of the output is padding.
struct Placement {
  Box window;
  int left = 0, top = 0;
};
Placement centre(Extent picture, Extent output);

// center: the short side becomes floor(size / crop), the centre is cut. squash: both sides become floor(size
// / crop) whatever the proportions. border: the whole picture fits inside, the rest is padding.
enum class CropMode { center, squash, border };
CropMode parse_crop_mode(const std::string& name);
Extent test_size(Extent picture, Extent output, double crop, CropMode mode);

// A box of `scale` x the area and of aspect ratio within `ratio` (log-uniform): ten tries, then the largest
// central box of an allowed ratio. (Szegedy et al., 2015, in timm's form.)
Box random_resized_crop(Extent picture, const std::vector<double>& scale, const std::vector<double>& ratio,
                        Draws& draws);

// Index into 0 … size-1 of a position outside, mirrored at the edges without repeating them.
int reflect(int position, int size);

}  // namespace tessera::data
