// Sources with masks: the class of every pixel.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "data/base/source.h"

namespace tessera::data {

// Interface of such a source. A sample's mask contains 0 … classes - 1, and kIgnoredPixel for pixels without
// a class.
class MaskLabels {
 public:
  virtual ~MaskLabels() = default;
  virtual const std::vector<std::string>& mask_classes() const = 0;
};

// Returns null if samples have no masks.
const MaskLabels* mask_labels(const Source& source);
// If the source has no masks, throws a usage error that names the source and `who` needs them.
const MaskLabels& require_masks(const Source& source, std::string_view who);
// Throws an error that names the first difference, unless both have masks of the same classes in the same
// order.
void require_same_masks(const Source& train, const Source& validation);

// Throws an error that names the mask and lists invalid values with their pixel counts. `classes` describes
// the valid values ("0 to 10, or 255 for none"), `hint` a likely intention.
[[noreturn]] void refuse_values(const std::string& mask, const std::map<int64_t, int64_t>& pixels,
                                const std::string& classes, const std::string& hint = "");

// Returns a line that lists classes without a pixel, and the usual reason if masks have pixels without a
// class; "" if none.
std::string no_pixels_of(const std::vector<std::string>& classes, bool ignored_pixels = true);

// Counts the pixels of each class, and last those without one, in `count` samples drawn by seed 0. Skips
// unreadable samples.
std::vector<int64_t> mask_pixels(const Source& source, int64_t count);

// Returns the colour of a class. Dark and light colours alternate, and hues that are easily confused with
// red-green blindness differ strongly (Okabe & Ito 2008, then steps of lightness); index 255 is black.
std::array<uint8_t, 3> mask_colour(int64_t index);
// Blends the mask's colours into the image with weight `share`; borders between classes have the full colour.
// Pixels without a class are unchanged. Adds `rows_below` black rows, for a legend.
inline constexpr double kOverlayShare = 0.55;
Image overlay_mask(const Image& picture, const Image& mask, double share = kOverlayShare, int rows_below = 0);

}  // namespace tessera::data
