#include "data/tools/preview.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "core/threads.h"
#include "data/base/info.h"
#include "data/base/objects.h"
#include "data/sources/conversations.h"
#include "data/sources/draw_objects.h"
#include "data/sources/interleaved.h"
#include "data/transforms/mask_labels.h"
#include "data/transforms/resize.h"

namespace tessera::data {
namespace {

// Returns the classes that fill most of a mask.
std::string mask_caption(const Source& source, const Image& mask) {
  constexpr size_t kNamed = 3;
  const MaskLabels* masks = mask_labels(source);
  if (!masks) return "";
  std::vector<std::pair<int64_t, size_t>> counts(masks->mask_classes().size());
  for (size_t c = 0; c < counts.size(); ++c) counts[c].second = c;
  for (const uint8_t value : mask.pixels)
    if (value < counts.size()) --counts[value].first;
  std::sort(counts.begin(), counts.end());
  std::string caption;
  for (size_t i = 0; i < std::min(kNamed, counts.size()) && counts[i].first < 0; ++i)
    caption += (caption.empty() ? "" : ", ") + masks->mask_classes()[counts[i].second];
  return caption;
}

// Draws boxes and masks over the image, and counts the objects of each class.
void show_objects(const ObjectLabels& labels, int64_t index, PreviewCell& cell) {
  const std::vector<ObjectAnnotation> objects = labels.objects(index);
  std::vector<RunLengths> masks(objects.size());
  std::vector<DrawnObject> drawn;
  std::vector<int64_t> counts(labels.object_classes().size());
  for (size_t i = 0; i < objects.size(); ++i) {
    const ObjectAnnotation& object = objects[i];
    const bool outlined = object.outline.has_runs() || !object.outline.polygons.empty();
    if (outlined) masks[i] = runs_of_outline(object.outline, cell.picture.height, cell.picture.width);
    const Instance& box = object.box;
    drawn.push_back({box.left, box.top, box.right, box.bottom, box.label, outlined ? &masks[i] : nullptr});
    ++counts[static_cast<size_t>(box.label)];
  }
  cell.picture = draw_objects(cell.picture, drawn);
  for (size_t k = 0; k < counts.size(); ++k)
    if (counts[k] > 0)
      cell.caption += text(cell.caption.empty() ? "" : ", ", counts[k], " ", labels.object_classes()[k]);
}

}  // namespace

std::vector<PreviewCell> preview_cells(const Source& source, int64_t count, uint64_t seed, int side) {
  auto indices = draw_indices(source, count, seed);
  const ClassLabels* labels = source.class_labels();
  const bool asked = dynamic_cast<const Conversations*>(&source) != nullptr;
  const auto* documents = dynamic_cast<const Interleaved*>(&source);
  if (labels)
    std::stable_sort(indices.begin(), indices.end(),
                     [&](int64_t a, int64_t b) { return labels->labels(a) < labels->labels(b); });
  std::vector<PreviewCell> cells(indices.size());
  parallel_for(static_cast<int64_t>(cells.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      PreviewCell& cell = cells[i];
      if (labels) {
        cell.caption = label_text(*labels, indices[i], ", ");
        for (const int64_t label : labels->labels(indices[i]))
          cell.numbers += (cell.numbers.empty() ? "" : ", ") + std::to_string(label);
        cell.numbers = (labels->labels(indices[i]).size() == 1 ? "class " : "classes ") + cell.numbers;
      }
      try {
        const RawSample sample = source.read(indices[i]);
        const auto& mask = sample.annotation.mask;
        cell.picture = decode_sample(sample);
        if (mask) cell.picture = overlay_mask(cell.picture, *mask);
        if (mask && !labels) cell.caption = mask_caption(source, *mask);
        if (!labels && !sample.annotation.captions.empty())
          cell.caption = documents ? documents->line_of(indices[i])
                         : asked   ? join(sample.annotation.captions, " ")
                                   : sample.annotation.captions[0];
        if (const ObjectLabels* objects = object_labels(source)) show_objects(*objects, indices[i], cell);
        cell.picture = shrunk_to_fit(cell.picture, side);
      } catch (const Error& error) {
        cell.error = error.what();
      }
    }
  });
  return cells;
}

}  // namespace tessera::data
