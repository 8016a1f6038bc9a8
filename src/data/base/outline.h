// The outline of an object, as polygons or run lengths, and its transforms.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "io/images/run_lengths.h"

namespace tessera::data {

struct Outline {
  std::vector<std::vector<double>> polygons = {};  // x0, y0, x1, y1, … in pixels of the image
  RunLengths runs = {};                            // instead of polygons, of the image's size
  bool has_runs() const { return !runs.counts.empty(); }
  bool empty() const { return polygons.empty() && !has_runs(); }
};

struct Rectangle {
  double left = 0, top = 0, right = 0, bottom = 0;
};

// A view of an image: optionally mirrored, then resized, cropped at (left, top), and padded on the right and
// at the bottom to the output's size.
struct ImageView {
  int width = 0, height = 0;  // the image
  int resized_width = 0, resized_height = 0;
  int left = 0, top = 0;  // position of the output within the resized image
  int out_width = 0, out_height = 0;
  bool mirrored = false;

  double x(double at) const { return (mirrored ? width - at : at) * resized_width / width - left; }
  double y(double at) const { return at * resized_height / height - top; }
  // The part of the output that shows the image.
  int shown_width() const { return std::min(out_width, resized_width - left); }
  int shown_height() const { return std::min(out_height, resized_height - top); }
};

// Transforms an outline into the view. Polygons are clipped exactly to the part that shows the image; pixels
// are resampled as in Pillow's nearest resize. Returns an empty outline if nothing remains.
Outline outline_in_view(const Outline& outline, const ImageView& view);
// Moves and resizes an outline so that the box becomes a square of `side` pixels (detectron2's target of a
// mask head).
Outline outline_in_box(const Outline& outline, const Rectangle& box, int64_t side);
// Clips a convex or concave polygon to a rectangle (Sutherland & Hodgman 1974).
std::vector<double> cut_polygon(const std::vector<double>& polygon, const Rectangle& inside);

RunLengths runs_of_outline(const Outline& outline, int64_t height, int64_t width);
// Returns the smallest enclosing box; all zero if the outline is empty.
Rectangle box_of_outline(const Outline& outline);

// Keep-ratio resizing.
// The short side becomes `shortest` unless the long one would exceed `longest` (detectron2's, rounded half
// up).
void resize_shortest_edge(int& width, int& height, int shortest, int longest);
// Fits the size inside a target times `factor` (large-scale jitter; rounded half to even).
void resize_by_factor(int& width, int& height, double factor, int target_width, int target_height);
// Returns the start of a crop for a draw in [0, 1), rounded half to even.
int crop_offset(int size, int crop, double draw);

}  // namespace tessera::data
