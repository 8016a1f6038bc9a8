#include "tasks/dense/segment_inference.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "core/error.h"
#include "core/memory.h"
#include "core/progress.h"
#include "core/text.h"
#include "data/transforms/segmentation_crop.h"
#include "eval/segmentation.h"

namespace tessera::tasks {
namespace {

constexpr int64_t kBandScores = int64_t{1} << 23;  // of one band: a few copies of them are in memory at once

torch::Tensor to_input(const PixelModel& model, const Image& picture) {
  torch::Tensor planes = torch::empty({1, 3, picture.height, picture.width}, torch::kFloat32);
  data::normalise(picture, *model.normalisation, planes.mutable_data_ptr<float>());
  return planes.to(model.options);
}

// Writes the best classes of scores [1, classes, rows, width].
void write_classes(const torch::Tensor& scores, int top, Image& mask, bool& finite) {
  const auto [largest, index] = scores.max(1);
  finite = finite && largest.sum().isfinite().item<bool>();
  const torch::Tensor best = index.to(torch::kUInt8).cpu().contiguous();
  std::memcpy(mask.row(top), best.const_data_ptr<uint8_t>(), best.nbytes());
}

Image resized_to(const Image& picture, data::Extent size, data::Interpolation interpolation) {
  if (size.height == picture.height && size.width == picture.width) return picture;
  return data::resize(picture, size.width, size.height, interpolation);
}

// Returns the size of the picture at a factor.
data::Extent size_at(const Image& picture, const SegmentInference& how, double factor) {
  const auto scaled = [&](int64_t side) {
    return std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(side) * factor));
  };
  if (how.scale.empty())
    return {std::max(1, static_cast<int>(picture.height * factor + 0.5)),
            std::max(1, static_cast<int>(picture.width * factor + 0.5))};
  return data::fit_into({picture.height, picture.width}, {scaled(how.scale.at(0)), scaled(how.scale.at(1))});
}

WindowPlan plan_of(const PixelModel& model, const SegmentInference& how) {
  return {static_cast<int>(how.crop), static_cast<int>(how.stride), how.fading, model.unit};
}

// Sums of scores and of weights, [1, channels, rows, width], for the rows from `top` on.
struct Band {
  torch::Tensor sum, count;
  int top = 0;

  // Drops the rows above `from`, and appends empty ones up to `height` rows.
  void move_to(int from, int height) {
    for (torch::Tensor* rows : {&sum, &count}) {
      const int64_t kept = rows->size(2) - (from - top);
      const torch::Tensor last = rows->narrow(2, from - top, kept).clone();
      if (rows->size(2) == height)
        rows->zero_();
      else
        *rows = torch::zeros({1, rows->size(1), height, rows->size(3)}, rows->options());
      rows->narrow(2, 0, kept).copy_(last);
    }
    top = from;
  }
};

// Writes the best classes of the band's first rows, a few rows at a time.
void write_rows(const Band& band, int64_t rows, Image& mask, bool& finite) {
  const int64_t step = std::max<int64_t>(1, kBandScores / (band.sum.size(1) * band.sum.size(3)));
  for (int64_t first = 0; first < rows; first += step) {
    const int64_t some = std::min(step, rows - first);
    write_classes(band.sum.narrow(2, first, some) / band.count.narrow(2, first, some),
                  band.top + static_cast<int>(first), mask, finite);
  }
}

Band empty_band(const PixelModel& model, int height, int width) {
  const auto options =
      model.options.dtype(model.options.dtype() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32);
  return {torch::zeros({1, model.classes, height, width}, options),
          torch::zeros({1, 1, height, width}, options)};
}

// Scores windows of one size in one batch.
torch::Tensor score_windows(const PixelModel& model, const Image& picture,
                            std::span<const eval::Window> windows) {
  std::vector<torch::Tensor> crops;
  for (const eval::Window& w : windows)
    crops.push_back(to_input(model, cut(picture, {w.left, w.top, w.right - w.left, w.bottom - w.top})));
  return model.score(torch::cat(crops));
}

// Keeps sums only for rows that later windows still cover; writes the other rows.
Image in_bands(const PixelModel& model, const Image& picture, const SegmentInference& how, bool& finite) {
  const WindowPlan plan = plan_of(model, how);
  const auto windows = plan.windows(picture.height, picture.width);
  Image mask(picture.width, picture.height, 1);
  Band band;
  for (size_t first = 0; first < windows.size();) {
    size_t end = first;
    while (end < windows.size() && windows[end].top == windows[first].top) ++end;
    const eval::Window& row = windows[first];
    const int height = row.bottom - row.top;
    if (!band.sum.defined()) {
      band = empty_band(model, height, picture.width);
    } else if (row.top > band.top) {  // rows above are finished
      write_rows(band, row.top - band.top, mask, finite);
      band.move_to(row.top, height);
    }
    while (first < end) {
      if (interrupted()) throw Error(ErrorKind::interrupted, "interrupted");
      const size_t last = std::min(end, end_of_equal_windows(windows, first, how.at_once));
      const torch::Tensor scored =
          score_windows(model, picture, std::span(windows).subspan(first, last - first))
              .to(band.sum.scalar_type());
      for (size_t i = first; i < last; ++i) {
        const int left = windows[i].left, width = windows[i].right - left;
        plan.add(scored.narrow(0, static_cast<int64_t>(i - first), 1),
                 plan.weights(windows[i], picture.height, picture.width, band.sum.options()),
                 band.sum.narrow(3, left, width), band.count.narrow(3, left, width));
      }
      first = last;
    }
  }
  write_rows(band, band.sum.size(2), mask, finite);
  return mask;
}

// Returns rows `top` to `bottom` of scores resized to the image, up to rounding.
torch::Tensor resized_rows(const torch::Tensor& scores, const Image& picture, int64_t top, int64_t bottom) {
  const int64_t rows = scores.size(2);
  const auto options = torch::TensorOptions(scores.device()).dtype(torch::kFloat64);
  const torch::Tensor at =
      ((torch::arange(top, bottom, options) + 0.5) * (static_cast<double>(rows) / picture.height) - 0.5)
          .clamp(0, rows - 1);
  const torch::Tensor above = at.floor().to(torch::kInt64), below = (above + 1).clamp_max(rows - 1);
  const torch::Tensor share = (at - above).to(scores.scalar_type()).unsqueeze(1);
  const torch::Tensor band =
      scores.index_select(2, above) * (1 - share) + scores.index_select(2, below) * share;
  return resize_scores(band, bottom - top, picture.width);
}

// Returns the best classes by the views' scores, each of any grid, in bands of `rows` rows. Several views are added as
// probabilities.
Image classes_in_bands(const std::vector<torch::Tensor>& views, const Image& picture, int64_t rows,
                       bool& finite) {
  Image mask(picture.width, picture.height, 1);
  for (int64_t top = 0; top < picture.height; top += rows) {
    if (interrupted()) throw Error(ErrorKind::interrupted, "interrupted");
    const int64_t bottom = std::min<int64_t>(top + rows, picture.height);
    torch::Tensor sum = resized_rows(views.front(), picture, top, bottom);
    if (views.size() > 1) sum = sum.softmax(1);
    for (size_t i = 1; i < views.size(); ++i)
      sum.add_(resized_rows(views[i], picture, top, bottom).softmax(1));
    write_classes(sum, static_cast<int>(top), mask, finite);
  }
  return mask;
}

// Throws if the scores of the largest view cannot fit into the machine's memory.
void check_memory(const PixelModel& model, const Image& picture, const SegmentInference& how) {
  double scores = 0;
  for (const double factor : how.scales) {
    const data::Extent size = size_at(picture, how, factor);
    scores += static_cast<double>(model.classes) * size.height * size.width * (how.flip ? 2 : 1);
  }
  const double bytes = scores * sizeof(float);
  if (const uint64_t memory = main_memory_bytes(); memory > 0 && bytes > static_cast<double>(memory))
    fail("an image of ", picture.width, "x", picture.height, " has ",
         human_bytes(static_cast<uint64_t>(bytes)), " of scores of ", model.classes,
         " classes, more than the machine's memory: --tile 512 takes less");
}

}  // namespace

void check_inference(const SegmentInference& how) {
  if (how.crop < 1 || how.crop > 16384) fail_usage("windows of ", how.crop, " pixels, must be 1 to 16384");
  if (how.stride < 1 || how.stride > how.crop)
    fail_usage("windows ", how.stride, " pixels apart, must be 1 to their side, ", how.crop);
  if (!how.scale.empty() && (how.scale.size() != 2 || how.scale[0] < 1 || how.scale[1] < 1))
    fail_usage("the test scale must be two sides in pixels, or empty");
  if (how.scales.empty()) fail_usage("inference needs a scale at least, such as 1.0");
  for (const double factor : how.scales)
    if (!(factor > 0 && factor <= 16))
      fail_usage("a test scale is ", shortest(factor), ", must be above 0 and at most 16");
}

Image segment_image(const PixelModel& model, const Image& picture, const SegmentInference& how,
                    bool& finite) {
  const bool one_view = how.scales.size() == 1 && !how.flip;
  const data::Extent first = size_at(picture, how, how.scales.front());
  if (one_view && how.slide && first.height == picture.height && first.width == picture.width)
    return in_bands(model, picture, how, finite);
  check_memory(model, picture, how);
  const int64_t rows = how.most_scores / (model.classes * picture.width);
  const bool whole = rows >= picture.height;
  std::vector<torch::Tensor> views;  // whole: their sum
  for (const double factor : how.scales) {
    const torch::Tensor image =
        to_input(model, resized_to(picture, size_at(picture, how, factor), model.interpolation));
    for (const bool mirrored : {false, true}) {
      if (mirrored && !how.flip) continue;
      const torch::Tensor seen = mirrored ? image.flip({3}) : image;
      torch::Tensor scores =
          how.slide ? sliding_scores(seen, plan_of(model, how), how.at_once, model.score) : model.score(seen);
      if (mirrored) scores = scores.flip({3});
      // Sum the views at the image's size one by one: the scores of a view are large.
      if (whole) scores = resize_scores(scores, picture.height, picture.width);
      if (whole && !one_view) scores = scores.softmax(1);
      if (whole && !views.empty())
        views.front().add_(scores);
      else
        views.push_back(scores);
    }
  }
  if (!whole) {
    const int64_t band = std::min(rows, kBandScores / (model.classes * picture.width));
    return classes_in_bands(views, picture, std::max<int64_t>(1, band), finite);
  }
  Image mask(picture.width, picture.height, 1);
  write_classes(views.front(), 0, mask, finite);
  return mask;
}

torch::Tensor score_padded(const torch::Tensor& images, int64_t unit, const ScoreImages& score) {
  const int64_t height = images.size(2), width = images.size(3);
  const int64_t below = (unit - height % unit) % unit, right = (unit - width % unit) % unit;
  const torch::Tensor padded =
      below > 0 || right > 0 ? torch::constant_pad_nd(images, {0, right, 0, below}) : images;
  const torch::Tensor scores = resize_scores(score(padded), height + below, width + right);
  return scores.narrow(2, 0, height).narrow(3, 0, width);
}

}  // namespace tessera::tasks
