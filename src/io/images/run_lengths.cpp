#include "io/images/run_lengths.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/error.h"

namespace tessera {
namespace {

// A run can be no longer than the largest decoded image.
void check_extent(int64_t height, int64_t width) {
  constexpr int64_t kLargest = 1 << 20;
  check(height >= 0 && width >= 0 && height <= kLargest && width <= kLargest &&
            height * width <= (int64_t{1} << 31),
        "a mask of ", height, " x ", width, " pixels is too large");
}

// Traverses the runs of two masks together; calls `visit(length, in_first, in_second)`.
template <class Visit>
void walk_both(const RunLengths& a, const RunLengths& b, const Visit& visit) {
  uint64_t left_a = a.counts.empty() ? 0 : a.counts[0], left_b = b.counts.empty() ? 0 : b.counts[0];
  size_t next_a = 1, next_b = 1;
  bool in_a = false, in_b = false;
  for (;;) {
    while (left_a == 0 && next_a < a.counts.size()) left_a = a.counts[next_a++], in_a = !in_a;
    while (left_b == 0 && next_b < b.counts.size()) left_b = b.counts[next_b++], in_b = !in_b;
    const uint64_t length = std::min(left_a, left_b);
    if (length == 0) return;
    visit(length, in_a, in_b);
    left_a -= length, left_b -= length;
  }
}

// Appends runs; merges neighbours of the same value.
class RunWriter {
 public:
  void add(uint64_t length, bool inside) {
    if (length == 0) return;
    if (inside != inside_) {
      counts.push_back(static_cast<uint32_t>(run_));
      run_ = 0, inside_ = inside;
    }
    run_ += length;
  }
  std::vector<uint32_t> finish() {
    counts.push_back(static_cast<uint32_t>(run_));
    return std::move(counts);
  }

 private:
  std::vector<uint32_t> counts;
  uint64_t run_ = 0;
  bool inside_ = false;
};

struct Point {
  int x = 0, y = 0;
};

// Appends the points of the line on the fine grid, both ends included.
void walk_line(Point from, Point to, std::vector<Point>& out) {
  const int wide = std::abs(to.x - from.x), high = std::abs(to.y - from.y);
  const bool by_columns = wide >= high;
  const bool flip = by_columns ? from.x > to.x : from.y > to.y;
  if (flip) std::swap(from, to);
  const int steps = by_columns ? wide : high;
  const double slope = steps == 0   ? 0
                       : by_columns ? static_cast<double>(to.y - from.y) / wide
                                    : static_cast<double>(to.x - from.x) / high;
  for (int i = 0; i <= steps; ++i) {
    const int t = flip ? steps - i : i;
    if (by_columns)
      out.push_back({from.x + t, static_cast<int>(from.y + slope * t + .5)});
    else
      out.push_back({static_cast<int>(from.x + slope * t + .5), from.y + t});
  }
}

}  // namespace

RunLengths runs_of_mask(std::span<const uint8_t> mask, int64_t height, int64_t width) {
  check_extent(height, width);
  check(std::ssize(mask) == height * width, "a mask of ", mask.size(), " pixels is not ", height, " x ",
        width);
  RunWriter writer;
  for (int64_t x = 0; x < width; ++x)
    for (int64_t y = 0; y < height; ++y) writer.add(1, mask[static_cast<size_t>(y * width + x)] != 0);
  return {height, width, writer.finish()};
}

std::vector<uint8_t> mask_of_runs(const RunLengths& runs) {
  check_extent(runs.height, runs.width);
  std::vector<uint8_t> mask(static_cast<size_t>(runs.height * runs.width));
  int64_t at = 0;
  for (size_t i = 0; i < runs.counts.size(); at += runs.counts[i++]) {
    check(at + runs.counts[i] <= std::ssize(mask), "runs are longer than their mask");
    if (i % 2 == 0) continue;
    for (int64_t p = at; p < at + runs.counts[i]; ++p)
      mask[static_cast<size_t>(p % runs.height * runs.width + p / runs.height)] = 1;
  }
  return mask;
}

std::string compress_runs(const RunLengths& runs) {
  std::string out;
  for (size_t i = 0; i < runs.counts.size(); ++i) {
    int64_t value = runs.counts[i];
    if (i > 2) value -= runs.counts[i - 2];
    for (bool more = true; more;) {
      int64_t piece = value & 31;
      value >>= 5;
      more = piece & 16 ? value != -1 : value != 0;
      if (more) piece |= 32;
      out += static_cast<char>(piece + 48);
    }
  }
  return out;
}

RunLengths checked_runs(std::vector<uint32_t> counts, int64_t height, int64_t width) {
  check_extent(height, width);
  uint64_t pixels = 0;
  for (const uint32_t count : counts) pixels += count;
  check(pixels == static_cast<uint64_t>(height * width), "run lengths cover ", pixels, " pixels, must be ",
        height, " x ", width, " = ", height * width);
  return {height, width, std::move(counts)};
}

RunLengths parse_runs(std::string_view compressed, int64_t height, int64_t width) {
  check_extent(height, width);
  std::vector<uint32_t> counts;
  int64_t pixels = 0;
  for (size_t at = 0; at < compressed.size();) {
    int64_t value = 0;
    for (int shift = 0;; shift += 5) {
      check(at < compressed.size(), "run lengths end within a number");
      const int piece = static_cast<unsigned char>(compressed[at++]) - 48;
      check(piece >= 0 && piece < 64, "run lengths hold the character '", compressed[at - 1],
            "', must be '0' to 'o'");
      check(shift <= 35, "a run length has too many digits");
      value |= static_cast<int64_t>(piece & 31) << shift;
      if (piece & 32) continue;
      if (piece & 16) value |= -(int64_t{1} << (shift + 5));
      break;
    }
    if (counts.size() > 2) value += counts[counts.size() - 2];
    check(value >= 0 && value <= height * width - pixels, "run length ", counts.size(), " is ", value,
          ", which exceeds the ", height, " x ", width, " pixels of the mask");
    pixels += value;
    counts.push_back(static_cast<uint32_t>(value));
  }
  return checked_runs(std::move(counts), height, width);
}

int64_t area_of(const RunLengths& runs) {
  int64_t area = 0;
  for (size_t i = 1; i < runs.counts.size(); i += 2) area += runs.counts[i];
  return area;
}

RunBox bounds_of(const RunLengths& runs) {
  int64_t left = runs.width, right = -1, top = runs.height, bottom = -1, at = 0;
  for (size_t i = 0; i < runs.counts.size(); at += runs.counts[i++]) {
    if (i % 2 == 0 || runs.counts[i] == 0) continue;
    const int64_t last = at + runs.counts[i] - 1, first_x = at / runs.height, last_x = last / runs.height;
    left = std::min(left, first_x), right = std::max(right, last_x);
    const bool wraps = first_x < last_x;
    top = std::min(top, wraps ? 0 : at % runs.height);
    bottom = std::max(bottom, wraps ? runs.height - 1 : last % runs.height);
  }
  if (right < 0) return {};
  return {static_cast<double>(left), static_cast<double>(top), static_cast<double>(right - left + 1),
          static_cast<double>(bottom - top + 1)};
}

RunLengths merge_runs(std::span<const RunLengths> masks, bool intersect) {
  if (masks.empty()) return {};
  RunLengths merged = masks[0];
  for (const RunLengths& mask : masks.subspan(1)) {
    check(mask.height == merged.height && mask.width == merged.width, "masks of ", merged.height, " x ",
          merged.width, " and ", mask.height, " x ", mask.width, " pixels cannot be merged");
    RunWriter writer;
    walk_both(merged, mask,
              [&](uint64_t length, bool a, bool b) { writer.add(length, intersect ? a && b : a || b); });
    merged.counts = writer.finish();
  }
  return merged;
}

double overlap_of(const RunBox& box, const RunBox& other, bool crowd) {
  const double width =
      std::min(box.left + box.width, other.left + other.width) - std::max(box.left, other.left);
  const double height =
      std::min(box.top + box.height, other.top + other.height) - std::max(box.top, other.top);
  if (!(width > 0) || !(height > 0)) return 0;
  const double inside = width * height, area = box.width * box.height;
  return inside / (crowd ? area : area + other.width * other.height - inside);
}

double overlap_of(const RunLengths& mask, const RunLengths& other, bool crowd) {
  if (mask.height != other.height || mask.width != other.width) return -1;
  uint64_t both = 0, any = 0, own = 0;
  walk_both(mask, other, [&](uint64_t length, bool a, bool b) {
    if (a && b) both += length;
    if (a || b) any += length;
    if (a) own += length;
  });
  if (both == 0) return 0;
  return static_cast<double>(both) / static_cast<double>(crowd ? own : any);
}

RunLengths runs_of_polygon(std::span<const double> points, int64_t height, int64_t width) {
  check_extent(height, width);
  constexpr double kFine = 5;
  const size_t corners = points.size() / 2;
  std::vector<Point> fine(corners), walk;
  for (size_t i = 0; i < corners; ++i) {
    for (const double value : {points[2 * i], points[2 * i + 1]})
      check(std::abs(value) <= kFarthestPoint, "a polygon has the coordinate ", value, ", must be within ",
            kFarthestPoint, " pixels");
    fine[i] = {static_cast<int>(kFine * points[2 * i] + .5),
               static_cast<int>(kFine * points[2 * i + 1] + .5)};
  }
  for (size_t i = 0; i < corners; ++i) walk_line(fine[i], fine[(i + 1) % corners], walk);
  // Crossings of the border with the middle of a pixel column, as column-major positions.
  std::vector<uint64_t> places;
  for (size_t i = 1; i < walk.size(); ++i) {
    if (walk[i].x == walk[i - 1].x) continue;
    const double x = ((walk[i].x < walk[i - 1].x ? walk[i].x : walk[i].x - 1) + .5) / kFine - .5;
    if (std::floor(x) != x || x < 0 || x > static_cast<double>(width - 1)) continue;
    const double y = (std::min(walk[i].y, walk[i - 1].y) + .5) / kFine - .5;
    const double row = std::ceil(std::clamp(y, 0.0, static_cast<double>(height)));
    places.push_back(static_cast<uint64_t>(x) * static_cast<uint64_t>(height) + static_cast<uint64_t>(row));
  }
  places.push_back(static_cast<uint64_t>(height * width));
  std::sort(places.begin(), places.end());
  RunWriter writer;
  uint64_t at = 0;
  bool inside = false;
  for (const uint64_t place : places) {
    writer.add(place - at, inside);
    at = place, inside = !inside;
  }
  return {height, width, writer.finish()};
}

RunLengths runs_of_box(const RunBox& box, int64_t height, int64_t width) {
  const double right = box.left + box.width, bottom = box.top + box.height;
  const double corners[] = {box.left, box.top, box.left, bottom, right, bottom, right, box.top};
  return runs_of_polygon(corners, height, width);
}

RunLengths runs_of_polygons(const std::vector<std::vector<double>>& polygons, int64_t height, int64_t width) {
  std::vector<RunLengths> masks;
  for (const auto& polygon : polygons) masks.push_back(runs_of_polygon(polygon, height, width));
  if (masks.empty()) return {height, width, {static_cast<uint32_t>(height * width)}};
  return merge_runs(masks);
}

}  // namespace tessera
