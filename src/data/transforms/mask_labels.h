// Sources whose samples have masks: the class of every pixel.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "data/base/source.h"

namespace tessera::data {

// What such a source is besides. A sample's mask holds 0 … classes - 1, and kIgnoredPixel where there is no class.
class MaskLabels {
 public:
  virtual ~MaskLabels() = default;
  virtual const std::vector<std::string>& mask_classes() const = 0;
};

// Null where samples have no masks.
const MaskLabels* mask_labels(const Source& source);
// A usage error that names the source and `who` needs masks where it has none.
const MaskLabels& require_masks(const Source& source, std::string_view who);
// Fails, naming the first difference, unless both have masks of the same classes in the same order.
void require_same_masks(const Source& train, const Source& validation);

// Fails, naming the mask, for values that mean nothing: each with its pixels. `classes` says what they may be ("0 to 10, or
// 255 for none"), `hint` what may be meant instead.
[[noreturn]] void refuse_values(const std::string& mask, const std::map<int64_t, int64_t>& pixels,
                                const std::string& classes, const std::string& hint = "");

// Pixels of each class, and last those without one, in `count` samples drawn by seed 0. Samples that cannot be read
// are left out.
std::vector<int64_t> mask_pixels(const Source& source, int64_t count);

// The colours of masks: dark and light ones alternate and hues that red-green blindness confuses are apart (Okabe &
// Ito 2008, then steps of lightness); index 255 is black.
std::array<uint8_t, 3> mask_colour(int64_t index);
// The picture with its mask laid over it, `share` of each pixel the mask's colour; borders between classes are drawn in
// full. Pixels without a class stay as they are.
Image overlay_mask(const Image& picture, const Image& mask, double share = 0.55);

}  // namespace tessera::data
