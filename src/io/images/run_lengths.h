// Object masks as run lengths, as in COCO files: pixels column by column, alternating runs of 0 and 1, first
// of 0 (possibly of length 0).
//
// Compressed form: a run is written in 5-bit pieces, lowest first, each a character from '0' (48) on. Bit 5
// marks that more pieces follow; the last piece has the sign. From the fourth run on, the difference to the
// run two before is written. (pycocotools' maskApi)
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct RunLengths {
  int64_t height = 0, width = 0;
  std::vector<uint32_t> counts = {};  // their sum is height * width
  bool operator==(const RunLengths&) const = default;
};

// A box [left, top, width, height] in pixels, as in COCO.
struct RunBox {
  double left = 0, top = 0, width = 0, height = 0;
};

// Converts `mask` [height, width], row-major; nonzero pixels belong to the object.
RunLengths runs_of_mask(std::span<const uint8_t> mask, int64_t height, int64_t width);
// The inverse, as 0 and 1.
std::vector<uint8_t> mask_of_runs(const RunLengths& runs);

std::string compress_runs(const RunLengths& runs);
// Both throw unless the runs fill exactly height * width pixels.
RunLengths parse_runs(std::string_view compressed, int64_t height, int64_t width);
RunLengths checked_runs(std::vector<uint32_t> counts, int64_t height, int64_t width);

int64_t area_of(const RunLengths& runs);
RunBox bounds_of(const RunLengths& runs);  // zeros for an empty mask

// Returns the union or the intersection of masks of one size.
RunLengths merge_runs(std::span<const RunLengths> masks, bool intersect = false);

// Returns intersection over union; for a `crowd`, intersection over the area of the first alone. -1 if the
// masks differ in size.
double overlap_of(const RunLengths& mask, const RunLengths& other, bool crowd = false);
double overlap_of(const RunBox& box, const RunBox& other, bool crowd = false);

// Returns the pixels inside a polygon x0, y0, x1, y1, … by COCO's rule, which traces the border on a grid
// five times as fine. Coordinates beyond kFarthestPoint are an error.
inline constexpr double kFarthestPoint = 1e6;
RunLengths runs_of_polygon(std::span<const double> points, int64_t height, int64_t width);
RunLengths runs_of_box(const RunBox& box, int64_t height, int64_t width);
// Returns the union of several polygons.
RunLengths runs_of_polygons(const std::vector<std::vector<double>>& polygons, int64_t height, int64_t width);

}  // namespace tessera
