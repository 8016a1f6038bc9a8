#include "data/preview.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/threads.h"
#include "data/info.h"
#include "data/resize.h"

namespace tessera::data {
namespace {

Image fitted(Image picture, int side) {
  constexpr int kLongest = 1 << 24;  // shrinking takes 44 bytes and more for each pixel of a side
  const int longest = std::max(picture.width, picture.height);
  if (longest > kLongest)
    fail(picture.width, "x", picture.height, " pixels are too long a strip to be shown");
  if (longest <= side) return picture;
  const double scale = static_cast<double>(side) / longest;
  const auto scaled = [&](int n) { return std::max(1, static_cast<int>(std::lround(n * scale))); };
  return resize(picture, scaled(picture.width), scaled(picture.height), Interpolation::bicubic);
}

}  // namespace

std::vector<PreviewCell> preview_cells(const Source& source, int64_t count, uint64_t seed, int side) {
  auto indices = draw_indices(source, count, seed);
  std::stable_sort(indices.begin(), indices.end(),
                   [&](int64_t a, int64_t b) { return source.labels(a) < source.labels(b); });
  std::vector<PreviewCell> cells(indices.size());
  parallel_for(static_cast<int64_t>(cells.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      PreviewCell& cell = cells[i];
      for (const int64_t label : source.labels(indices[i]))
        cell.caption += (cell.caption.empty() ? "" : ", ") + source.class_names()[static_cast<size_t>(label)];
      try {
        cell.picture = fitted(decode_sample(source.read(indices[i])), side);
      } catch (const Error& error) {
        cell.error = error.what();
      }
    }
  });
  return cells;
}

}  // namespace tessera::data
