#include "data/tools/check.h"

#include <algorithm>

#include "core/error.h"
#include "core/threads.h"
#include "data/base/annotations.h"
#include "data/base/info.h"
#include "data/transforms/resize.h"

namespace tessera::data {

std::vector<PreviewCell> preview_cells(const Source& source, int64_t count, uint64_t seed, int side) {
  auto indices = draw_indices(source, count, seed);
  const ClassLabels* labels = source.class_labels();
  const auto annotations = source.annotations();
  if (labels)
    std::stable_sort(indices.begin(), indices.end(),
                     [&](int64_t a, int64_t b) { return labels->labels(a) < labels->labels(b); });
  std::vector<PreviewCell> cells(indices.size());
  parallel_for(static_cast<int64_t>(cells.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      PreviewCell& cell = cells[i];
      if (labels) {
        for (const int64_t label : labels->labels(indices[i]))
          cell.numbers += (cell.numbers.empty() ? "" : ", ") + std::to_string(label);
        cell.numbers = (labels->labels(indices[i]).size() == 1 ? "class " : "classes ") + cell.numbers;
      }
      try {
        const RawSample sample = source.read(indices[i]);
        cell.picture = annotations->drawn(indices[i], sample, decode_sample(sample));
        cell.caption = annotations->caption_of(indices[i], sample);
        cell.picture = shrunk_to_fit(cell.picture, side);
      } catch (const Error& error) {
        cell.error = error.what();
      }
    }
  });
  return cells;
}

}  // namespace tessera::data
