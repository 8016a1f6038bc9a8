#include "data/base/outline.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "data/base/geometry.h"

namespace tessera::data {
namespace {

// Returns the source of each pixel of a resized side. Pillow adds up steps, whose rounding decides between two
// pixels at equal distance.
std::vector<int> nearest_pixels(int size, int resized) {
  std::vector<int> sources;
  const double step = static_cast<double>(size) / resized;
  for (double at = step * 0.5; std::ssize(sources) < resized; at += step)
    sources.push_back(std::min(static_cast<int>(at), size - 1));
  return sources;
}

// Returns the pixels of a mask in the view, [out_height, out_width].
std::vector<uint8_t> mask_in_view(const std::vector<uint8_t>& mask, const ImageView& view) {
  std::vector<uint8_t> out(static_cast<size_t>(view.out_width) * static_cast<size_t>(view.out_height));
  const std::vector<int> rows = nearest_pixels(view.height, view.resized_height),
                         columns = nearest_pixels(view.width, view.resized_width);
  for (int y = 0; y < view.shown_height(); ++y) {
    const int row = rows[static_cast<size_t>(y + view.top)];
    for (int x = 0; x < view.shown_width(); ++x) {
      int column = columns[static_cast<size_t>(x + view.left)];
      if (view.mirrored) column = view.width - 1 - column;
      out[static_cast<size_t>(y) * static_cast<size_t>(view.out_width) + static_cast<size_t>(x)] =
          mask[static_cast<size_t>(row) * static_cast<size_t>(view.width) + static_cast<size_t>(column)];
    }
  }
  return out;
}

// Clips to one side of a line x = limit (or y): below the limit if `sign` is 1, above it if -1.
std::vector<double> cut_side(const std::vector<double>& polygon, size_t axis, double limit, double sign) {
  std::vector<double> out;
  const size_t corners = polygon.size() / 2;
  for (size_t i = 0; i < corners; ++i) {
    const double* a = polygon.data() + 2 * i;
    const double* b = polygon.data() + 2 * ((i + 1) % corners);
    const double from = sign * (limit - a[axis]), to = sign * (limit - b[axis]);
    if (from >= 0) out.insert(out.end(), a, a + 2);
    if ((from > 0 && to < 0) || (from < 0 && to > 0)) {
      const double share = from / (from - to);
      double point[2] = {a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1])};
      point[axis] = limit;
      out.insert(out.end(), point, point + 2);
    }
  }
  return out;
}

double area_of_polygon(const std::vector<double>& p) {
  double twice = 0;
  for (size_t i = 0, corners = p.size() / 2; i < corners; ++i) {
    const size_t j = (i + 1) % corners;
    twice += p[2 * i] * p[2 * j + 1] - p[2 * j] * p[2 * i + 1];
  }
  return std::abs(twice) / 2;
}

}  // namespace

std::vector<double> cut_polygon(const std::vector<double>& polygon, const Rectangle& inside) {
  std::vector<double> p = cut_side(polygon, 0, inside.right, 1);
  p = cut_side(p, 0, inside.left, -1);
  p = cut_side(p, 1, inside.bottom, 1);
  return cut_side(p, 1, inside.top, -1);
}

Outline outline_in_view(const Outline& outline, const ImageView& view) {
  Outline out;
  if (outline.has_runs()) {
    check(outline.runs.width == view.width && outline.runs.height == view.height, "a mask has ",
          outline.runs.height, " x ", outline.runs.width, " pixels, its image ", view.height, " x ",
          view.width);
    out.runs = runs_of_mask(mask_in_view(mask_of_runs(outline.runs), view), view.out_height, view.out_width);
    return out;
  }
  const Rectangle shown{0, 0, static_cast<double>(view.shown_width()),
                        static_cast<double>(view.shown_height())};
  const bool cuts = view.left > 0 || view.top > 0 || view.out_width < view.resized_width ||
                    view.out_height < view.resized_height;
  for (const std::vector<double>& polygon : outline.polygons) {
    std::vector<double> moved(polygon.size());
    for (size_t i = 0; i + 1 < polygon.size(); i += 2)
      moved[i] = view.x(polygon[i]), moved[i + 1] = view.y(polygon[i + 1]);
    if (cuts) {
      moved = cut_polygon(moved, shown);
      if (moved.size() < 6 || area_of_polygon(moved) <= 0) continue;
    }
    out.polygons.push_back(std::move(moved));
  }
  return out;
}

Outline outline_in_box(const Outline& outline, const Rectangle& box, int64_t side) {
  Outline out;
  const auto cells = static_cast<double>(side);
  const double across = cells / std::max(box.right - box.left, 0.1),
               down = cells / std::max(box.bottom - box.top, 0.1);
  for (const std::vector<double>& polygon : outline.polygons) {
    std::vector<double>& moved = out.polygons.emplace_back(polygon.size());
    for (size_t i = 0; i + 1 < polygon.size(); i += 2) {
      moved[i] = (polygon[i] - box.left) * across;
      moved[i + 1] = (polygon[i + 1] - box.top) * down;
    }
  }
  return out;
}

RunLengths runs_of_outline(const Outline& outline, int64_t height, int64_t width) {
  if (!outline.has_runs()) return runs_of_polygons(outline.polygons, height, width);
  check(outline.runs.height == height && outline.runs.width == width, "a mask has ", outline.runs.height,
        " x ", outline.runs.width, " pixels, its image ", height, " x ", width);
  return outline.runs;
}

Rectangle box_of_outline(const Outline& outline) {
  if (outline.has_runs()) {
    const RunBox box = bounds_of(outline.runs);
    return {box.left, box.top, box.left + box.width, box.top + box.height};
  }
  constexpr double kFar = std::numeric_limits<double>::infinity();
  Rectangle box{kFar, kFar, -kFar, -kFar};
  for (const std::vector<double>& polygon : outline.polygons)
    for (size_t i = 0; i + 1 < polygon.size(); i += 2) {
      box.left = std::min(box.left, polygon[i]), box.right = std::max(box.right, polygon[i]);
      box.top = std::min(box.top, polygon[i + 1]), box.bottom = std::max(box.bottom, polygon[i + 1]);
    }
  return box.left > box.right ? Rectangle{} : box;
}

void resize_shortest_edge(int& width, int& height, int shortest, int longest) {
  const double scale = static_cast<double>(shortest) / std::min(width, height);
  double new_width = width < height ? shortest : scale * width,
         new_height = width < height ? scale * height : shortest;
  if (const double most = std::max(new_width, new_height); most > longest) {
    new_width *= longest / most;
    new_height *= longest / most;
  }
  width = std::max(static_cast<int>(new_width + 0.5), 1);
  height = std::max(static_cast<int>(new_height + 0.5), 1);
}

void resize_by_factor(int& width, int& height, double factor, int target_width, int target_height) {
  const double scale = std::min(target_height * factor / height, target_width * factor / width);
  width = std::max(round_half_even(width * scale), 1);
  height = std::max(round_half_even(height * scale), 1);
}

int crop_offset(int size, int crop, double draw) { return round_half_even(std::max(size - crop, 0) * draw); }

}  // namespace tessera::data
