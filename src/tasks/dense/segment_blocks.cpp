#include "tasks/dense/segment.h"

#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "data/transforms/mask_labels.h"
#include "data/transforms/resize.h"

namespace tessera::tasks {
namespace {

constexpr int kLongestSide = 320;   // largest side of a picture
constexpr size_t kMostTabled = 64;  // largest number of classes with a confusion matrix
constexpr int kSwatch = 24;         // side of a colour in the legend

std::string share_text(double share) { return std::isnan(share) ? "-" : fixed(share, 4); }

Image swatch(int64_t index) {
  Image image(kSwatch, kSwatch);
  const auto colour = data::mask_colour(index);
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = colour[i % 3];
  return image;
}

}  // namespace

report::TableBlock class_table(const eval::SegmentationScores& scores,
                               const std::vector<std::string>& names) {
  report::TableBlock table{
      .name = "classes", .heading = "Classes", .note = "Over the pixels of the whole set."};
  table.columns = {{"class"}, {"pixels", true}, {"iou", true}, {"accuracy", true}, {"dice", true}};
  for (size_t c = 0; c < scores.classes.size(); ++c) {
    const eval::SegmentationClass& one = scores.classes[c];
    table.rows.push_back({c < names.size() ? names[c] : text("class ", c), text(one.labelled),
                          share_text(one.iou), share_text(one.accuracy), share_text(one.dice)});
  }
  return table;
}

std::string classes_without_pixels(const eval::SegmentationScores& scores,
                                   const std::vector<std::string>& names) {
  std::vector<std::string> without;
  for (size_t c = 0; c < scores.classes.size(); ++c)
    if (scores.classes[c].labelled == 0) without.push_back(c < names.size() ? names[c] : text("class ", c));
  return data::no_pixels_of(without);
}

report::ConfusionBlock pixel_confusion(const eval::SegmentationMeter& meter,
                                       const std::vector<std::string>& names) {
  report::ConfusionBlock block{.counted = "pixels"};
  if (names.size() > kMostTabled) return block;
  block.confusion.class_names = names;
  block.confusion.counts = meter.confusion();
  return block;
}

report::PicturesBlock segmented_pictures(const std::vector<SegmentedSample>& samples,
                                         const data::Source& source, const std::vector<std::string>& names) {
  report::PicturesBlock block{.heading = "Masks",
                              .note = "Validation images, with prediction and truth; the worst ones last.",
                              .together = 3};
  for (size_t c = 0; c < names.size() && c < kMostTabled; ++c)
    block.legend.push_back({swatch(static_cast<int64_t>(c)), names[c], ""});
  for (const SegmentedSample& one : samples) try {
      const data::RawSample sample = source.read(one.index);
      const Image picture = data::decode_sample(sample);
      const auto shown = [&](const Image& image) { return data::shrunk_to_fit(image, kLongestSide); };
      const std::string right = fixed(100 * one.right, 1) + " % of the pixels right";
      block.pictures.push_back({shown(picture), "image", ""});
      block.pictures.push_back({shown(data::overlay_mask(picture, one.predicted)), "predicted", right});
      block.pictures.push_back(
          {shown(data::overlay_mask(picture, sample.annotation.mask.value())), "true", ""});
    } catch (const Error&) {
      continue;  // the image cannot be read any more
    }
  return block;
}

}  // namespace tessera::tasks
