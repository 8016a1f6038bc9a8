// Masks of objects as run lengths, as files of COCO hold them: pixels column by column, runs of 0 and of 1 in
// turn, the first of 0 (perhaps of length 0).
//
// Compressed form: a run is written in pieces of 5 bits, the lowest first, each a character from '0' (48) on; bit 5
// says that more follow, the sign is that of the last piece. From the fourth run on the difference to the run two
// before is written. (pycocotools' maskApi)
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

// A box [left, top, width, height] in pixels, as COCO writes it.
struct RunBox {
  double left = 0, top = 0, width = 0, height = 0;
};

// `mask` [height, width], row by row; what is not 0 belongs to the object.
RunLengths runs_of_mask(std::span<const uint8_t> mask, int64_t height, int64_t width);
// The way back, 0 and 1.
std::vector<uint8_t> mask_of_runs(const RunLengths& runs);

std::string compress_runs(const RunLengths& runs);
// Both fail, naming what is wrong, unless the runs fill height * width pixels exactly.
RunLengths parse_runs(std::string_view compressed, int64_t height, int64_t width);
RunLengths checked_runs(std::vector<uint32_t> counts, int64_t height, int64_t width);

int64_t area_of(const RunLengths& runs);
RunBox bounds_of(const RunLengths& runs);  // zeros for an empty mask

// The union, or the intersection, of masks of one size.
RunLengths merge_runs(std::span<const RunLengths> masks, bool intersect = false);

// Intersection over union; of a `crowd` over the area of `mask` alone. -1 for masks of different sizes.
double overlap_of(const RunLengths& mask, const RunLengths& other, bool crowd = false);
double overlap_of(const RunBox& box, const RunBox& other, bool crowd = false);

// The pixels inside a polygon x0, y0, x1, y1, … by COCO's rule: its border is walked on a grid five times as fine.
// Coordinates beyond kFarthestPoint are an error.
inline constexpr double kFarthestPoint = 1e6;
RunLengths runs_of_polygon(std::span<const double> points, int64_t height, int64_t width);
RunLengths runs_of_box(const RunBox& box, int64_t height, int64_t width);
// The union of several.
RunLengths runs_of_polygons(const std::vector<std::vector<double>>& polygons, int64_t height, int64_t width);

}  // namespace tessera
