#include "data/preview.h"

#include <algorithm>

#include "core/error.h"
#include "core/threads.h"
#include "data/info.h"
#include "data/resize.h"

namespace tessera::data {

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
        cell.picture = shrunk_to_fit(decode_sample(source.read(indices[i])), side);
      } catch (const Error& error) {
        cell.error = error.what();
      }
    }
  });
  return cells;
}

}  // namespace tessera::data
