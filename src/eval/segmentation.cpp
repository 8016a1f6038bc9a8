#include "eval/segmentation.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"

namespace tessera::eval {
namespace {

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole)
                   : std::numeric_limits<double>::quiet_NaN();
}

// Returns the mean of the values that are not NaN, or NaN if none is left.
template <class Value>
double mean_of(const std::vector<SegmentationClass>& classes, const Value& value) {
  double sum = 0;
  int64_t count = 0;
  for (const SegmentationClass& one : classes)
    if (!std::isnan(value(one))) sum += value(one), ++count;
  return count > 0 ? sum / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

SegmentationMeter::SegmentationMeter(int64_t classes) : classes_(static_cast<size_t>(classes)) {
  check(classes >= 1 && classes <= 255, "a mask of ", classes, " classes, must be 1 to 255");
  confusion_.resize(classes_ * classes_);
}

void SegmentationMeter::add(std::span<const uint8_t> predicted, std::span<const uint8_t> labels,
                            int ignored) {
  check(predicted.size() == labels.size(), "a prediction of ", predicted.size(), " pixels for a mask of ",
        labels.size());
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] == ignored) continue;
    check(labels[i] < classes_ && predicted[i] < classes_, "a pixel of class ", static_cast<int>(labels[i]),
          " was predicted as ", static_cast<int>(predicted[i]), ", both must be below ", classes_);
    ++confusion_[labels[i] * classes_ + predicted[i]];
  }
}

void SegmentationMeter::add_counts(std::span<const int64_t> counts) {
  check(counts.size() == confusion_.size(), counts.size(), " counts of pixels, must be ", confusion_.size());
  for (size_t i = 0; i < counts.size(); ++i) confusion_[i] += counts[i];
}

SegmentationScores SegmentationMeter::scores() const {
  SegmentationScores out;
  int64_t right = 0, labelled = 0;
  for (size_t c = 0; c < classes_; ++c) {
    SegmentationClass one;
    one.right = confusion_[c * classes_ + c];
    for (size_t other = 0; other < classes_; ++other) {
      one.labelled += confusion_[c * classes_ + other];
      one.predicted += confusion_[other * classes_ + c];
    }
    one.joined = one.predicted + one.labelled - one.right;
    one.iou = share(one.right, one.joined);
    one.accuracy = share(one.right, one.labelled);
    one.dice = share(2 * one.right, one.predicted + one.labelled);
    right += one.right, labelled += one.labelled;
    out.classes.push_back(one);
  }
  out.mean_iou = mean_of(out.classes, [](const auto& c) { return c.iou; });
  out.mean_accuracy = mean_of(out.classes, [](const auto& c) { return c.accuracy; });
  out.mean_dice = mean_of(out.classes, [](const auto& c) { return c.dice; });
  out.pixel_accuracy = share(right, labelled);
  return out;
}

void reduce_zero_label(std::span<uint8_t> labels, uint8_t ignored) {
  for (uint8_t& label : labels)
    if (label != ignored) label = label == 0 ? ignored : static_cast<uint8_t>(label - 1);
}

namespace {

// If a window would cross the edge, moves it back to the last multiple of `unit` at which it fits.
std::vector<Window> windows_of(int height, int width, int crop, int stride, int unit) {
  check(height > 0 && width > 0 && crop > 0 && stride > 0, "windows of ", crop, " pixels, ", stride,
        " apart, over an image of ", width, "x", height);
  const auto along = [&](int side) {
    const int count = std::max(side - crop + stride - 1, 0) / stride + 1;
    std::vector<std::pair<int, int>> pieces;
    for (int i = 0; i < count; ++i) {
      const int begin = std::min(i * stride, std::max(side - crop, 0) / unit * unit);
      // If a window is moved back to the start of the previous one, it replaces that one.
      if (!pieces.empty() && pieces.back().first == begin) pieces.pop_back();
      pieces.emplace_back(begin, i + 1 == count ? side : begin + crop);
    }
    return pieces;
  };
  std::vector<Window> windows;
  const auto columns = along(width);
  for (const auto& [top, bottom] : along(height))
    for (const auto& [left, right] : columns) windows.push_back({top, bottom, left, right});
  return windows;
}

}  // namespace

std::vector<Window> sliding_windows(int height, int width, int crop, int stride) {
  return windows_of(height, width, crop, stride, /*unit=*/1);
}

std::vector<Window> aligned_windows(int height, int width, int crop, int stride, int unit) {
  check(unit > 0 && stride % unit == 0, "windows ", stride, " pixels apart, must be a multiple of ", unit);
  return windows_of(height, width, crop, stride, unit);
}

}  // namespace tessera::eval
