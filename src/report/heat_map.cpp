#include "report/heat_map.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "report/markup.h"

namespace tessera::report {
namespace {

// The position of the squares, with names on the left and, rotated, on top.
struct Frame {
  double left = 0, top = 0, cell = 0;
};

Frame frame_of(const Confusion& confusion, double width) {
  double names = 0;
  for (const std::string& name : confusion.class_names) names = std::max(names, text_width(name, 11));
  names = std::min(names, 130.0);
  const double n = static_cast<double>(confusion.classes());
  const double left = names + 40;
  return {left, names * 0.72 + 52, std::clamp((width - left - names * 0.5 - 16) / n, 7.0, 46.0)};
}

void draw_names(Svg& svg, const Confusion& confusion, const Frame& frame) {
  const size_t n = confusion.classes();
  const size_t every = std::max<size_t>(1, static_cast<size_t>(std::ceil(11 / frame.cell)));
  for (size_t i = 0; i < n; i += every) {
    const double at = (static_cast<double>(i) + 0.5) * frame.cell;
    const std::string name = fit_text(confusion.class_names[i], 11, 130);
    svg.text(frame.left - 8, frame.top + at + 4, Svg::Anchor::end, "ink", name);
    const std::string place = pixels(frame.left + at + 3) + " " + pixels(frame.top - 7);
    svg.text(0, 0, Svg::Anchor::start, "ink", name, "transform=\"translate(" + place + ") rotate(-45)\"");
  }
}

void draw_cell(Svg& svg, const Confusion& confusion, const Frame& frame, size_t truth, size_t predicted) {
  const int64_t count = confusion.count(truth, predicted), total = confusion.row_total(truth);
  if (count == 0) return;
  const double share = static_cast<double>(count) / static_cast<double>(total);
  const double x = frame.left + static_cast<double>(predicted) * frame.cell;
  const double y = frame.top + static_cast<double>(truth) * frame.cell;
  const std::string& name = confusion.class_names[truth];
  const std::string tooltip =
      truth == predicted ? text(name, ": ", count, " of ", total, " right (", compact(share * 100, 3), " %)")
                         : text(name, " taken for ", confusion.class_names[predicted], ": ", count, " of ",
                                total, " (", compact(share * 100, 3), " %)");
  // The square root makes rare mistakes visible against the background.
  svg.rect(x + 0.5, y + 0.5, frame.cell - 1, frame.cell - 1, truth == predicted ? "bar" : "miss",
           "rx=\"2\" fill-opacity=\"" + compact(0.08 + 0.92 * std::sqrt(share), 3) + "\"", tooltip);
  if (frame.cell < 24) return;
  const double percent = share * 100;
  const std::string label =
      percent >= 9.95 ? text(std::llround(percent)) : compact(std::round(percent * 10) / 10, 2);
  svg.text(x + frame.cell / 2, y + frame.cell / 2 + 4, Svg::Anchor::middle, share > 0.2 ? "light" : "ink",
           percent < 0.05 ? "<0.1" : label, "pointer-events=\"none\"");
}

}  // namespace

int64_t Confusion::row_total(size_t truth) const {
  int64_t total = 0;
  for (size_t i = 0; i < classes(); ++i) total += count(truth, i);
  return total;
}

int64_t Confusion::column_total(size_t predicted) const {
  int64_t total = 0;
  for (size_t i = 0; i < classes(); ++i) total += count(i, predicted);
  return total;
}

void check_confusion(const Confusion& confusion) {
  const size_t n = confusion.classes();
  check(confusion.counts.size() == n * n, "confusion matrix: ", confusion.counts.size(), " counts for ", n,
        " classes, must be ", n * n);
  for (const int64_t count : confusion.counts)
    check(count >= 0, "confusion matrix: a count is ", count, ", must not be negative");
}

std::string confusion_chart(const Confusion& confusion, double width) {
  check_confusion(confusion);
  const size_t n = confusion.classes();
  check(n <= kMostClasses, "confusion matrix: ", n, " classes, a chart shows at most ", kMostClasses);
  const Frame frame = frame_of(confusion, width);
  const double side = static_cast<double>(n) * frame.cell;
  Svg svg(width, frame.top + side + 34, "confusion matrix");
  svg.text(16, 22, Svg::Anchor::start, "title", "Confusion matrix");
  svg.text(16, 39, Svg::Anchor::start, "label", "percent of the true class");
  draw_names(svg, confusion, frame);
  svg.rect(frame.left, frame.top, side, side, "frame", "rx=\"2\"");
  for (size_t truth = 0; truth < n; ++truth)
    for (size_t predicted = 0; predicted < n; ++predicted) draw_cell(svg, confusion, frame, truth, predicted);
  svg.text(frame.left + side / 2, frame.top + side + 22, Svg::Anchor::middle, "label",
           "rows: true class, columns: predicted class");
  return svg.finish();
}

std::vector<ConfusedPair> most_confused(const Confusion& confusion, size_t at_most) {
  check_confusion(confusion);
  std::vector<ConfusedPair> pairs;
  const size_t n = confusion.classes();
  for (size_t truth = 0; truth < n; ++truth) {
    const auto total = static_cast<double>(confusion.row_total(truth));
    for (size_t predicted = 0; predicted < n; ++predicted) {
      const int64_t count = confusion.count(truth, predicted);
      if (truth != predicted && count > 0)
        pairs.push_back({truth, predicted, count, static_cast<double>(count) / total});
    }
  }
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const ConfusedPair& a, const ConfusedPair& b) { return a.count > b.count; });
  if (pairs.size() > at_most) pairs.resize(at_most);
  return pairs;
}

}  // namespace tessera::report
