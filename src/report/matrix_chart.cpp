#include "report/matrix_chart.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/text.h"
#include "report/markup.h"

namespace tessera::report {
namespace {

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  void add(double value) {
    if (std::isfinite(value)) low = std::min(low, value), high = std::max(high, value);
  }
  bool empty() const { return !(low <= high); }
  double place(double value) const {
    return high > low ? std::clamp((value - low) / (high - low), 0.0, 1.0) : 0.5;
  }
};

Range range_of(const Matrix& matrix, const MatrixOptions& options) {
  Range range;
  if (!options.whole_range) return {options.low, options.high};
  for (const double value : matrix.values) range.add(value);
  return range;
}

double names_width(const std::vector<std::string>& names) {
  double width = 0;
  for (const std::string& name : names) width = std::max(width, text_width(name, 11));
  return std::min(width, 120.0);
}

// Distance between readable names: horizontal lines, or names slanted by 45 degrees.
constexpr double kLine = 13, kSlantedLine = 18;
size_t every(double cell, double apart) {
  return std::max<size_t>(1, static_cast<size_t>(std::ceil(apart / cell)));
}

// The corner of the first cell, and the side of a cell.
struct Frame {
  double left, top, cell;
  double x(double column) const { return left + column * cell; }
  double y(double row) const { return top + row * cell; }
};

void draw_names(Svg& svg, const Frame& frame, const Matrix& matrix) {
  for (size_t r = 0; r < matrix.rows.size(); r += every(frame.cell, kLine))
    svg.text(frame.left - 8, frame.y(static_cast<double>(r) + 0.5) + 4, Svg::Anchor::end, "ink",
             fit_text(matrix.rows[r], 11, 120));
  for (size_t c = 0; c < matrix.columns.size(); c += every(frame.cell, kSlantedLine)) {
    const std::string place = pixels(frame.x(static_cast<double>(c) + 0.5) + 3) + " " + pixels(frame.top - 7);
    svg.text(0, 0, Svg::Anchor::start, "ink", fit_text(matrix.columns[c], 11, 120),
             "transform=\"translate(" + place + ") rotate(-45)\"");
  }
}

void draw_cells(Svg& svg, const Frame& frame, const Matrix& matrix, const Range& range, int digits) {
  const double cell = frame.cell, gap = cell > 10 ? 1 : 0;
  const size_t columns = matrix.columns.size();
  for (size_t i = 0; i < matrix.values.size(); ++i) {
    const size_t r = i / columns, c = i % columns;
    const double value = matrix.values[i];
    if (!std::isfinite(value)) continue;
    const double x = frame.x(static_cast<double>(c)), y = frame.y(static_cast<double>(r));
    const double depth = range.place(value);
    svg.rect(x + gap / 2, y + gap / 2, cell - gap, cell - gap, "bar",
             "fill-opacity=\"" + compact(0.04 + 0.96 * depth, 3) + "\"",
             text(matrix.rows[r], ", ", matrix.columns[c], ": ", compact(value)));
    if (cell >= 26)
      svg.text(x + cell / 2, y + cell / 2 + 4, Svg::Anchor::middle, depth > 0.55 ? "light" : "ink",
               fixed(value, digits), "pointer-events=\"none\"");
  }
}

// Draws marks in white with dark letters in both themes, since the background may have any shade.
void draw_marks(Svg& svg, const Frame& frame, const std::vector<MatrixMark>& marks) {
  for (const MatrixMark& mark : marks) {
    const double x = frame.x(mark.column + 0.5), y = frame.y(mark.row + 0.5);
    svg.circle(x, y, 8, "fill=\"#fff\" stroke=\"#1c2230\"", mark.name);
    svg.text(x, y + 4, Svg::Anchor::middle, "", mark.letter,
             "font-size=\"11\" font-weight=\"600\" fill=\"#1c2230\" pointer-events=\"none\"");
  }
}

}  // namespace

std::string matrix_chart(const Matrix& matrix, const MatrixOptions& options) {
  const size_t rows = matrix.rows.size(), columns = matrix.columns.size();
  check(rows > 0 && columns > 0 && matrix.values.size() == rows * columns,
        "matrix chart: ", matrix.values.size(), " values for ", rows, "x", columns);
  check(matrix.values.size() <= kMostMatrixCells, "matrix chart: ", matrix.values.size(), " cells, at most ",
        kMostMatrixCells);
  const Range range = range_of(matrix, options);
  const double left = names_width(matrix.rows) + 40, top = 58 + names_width(matrix.columns) * 0.72;
  const Frame frame{left, top,
                    std::clamp((options.width - left - 24) / static_cast<double>(columns), 2.0, 44.0)};
  const double right = frame.x(static_cast<double>(columns)), bottom = frame.y(static_cast<double>(rows));
  Svg svg(options.width, bottom + 44, options.title);
  svg.text(16, 22, Svg::Anchor::start, "title", options.title);
  svg.text(16, 39, Svg::Anchor::start, "label", options.note);
  draw_names(svg, frame, matrix);
  svg.rect(left, top, right - left, bottom - top, "frame");
  draw_cells(svg, frame, matrix, range, options.digits);
  draw_marks(svg, frame, options.marks);
  const std::string axes =
      options.row_label.empty() ? "" : "rows: " + options.row_label + "    columns: " + options.column_label;
  svg.text(left, bottom + 18, Svg::Anchor::start, "label", axes);
  if (!range.empty())
    svg.text(left, bottom + 34, Svg::Anchor::start, "label",
             "pale " + compact(range.low, 3) + "    dark " + compact(range.high, 3));
  return svg.finish();
}

std::string scatter_chart(const std::vector<Dot>& dots, const std::vector<std::string>& groups,
                          const ScatterOptions& options) {
  constexpr size_t kMostNames = 24;
  constexpr double kLine = 16;
  Range xs, ys;
  for (const Dot& dot : dots) xs.add(dot.x), ys.add(dot.y);
  const size_t named = std::min(groups.size(), kMostNames);
  const size_t across = std::max<size_t>(1, static_cast<size_t>((options.width - 32) / 130));
  const double legend = static_cast<double>((named + across - 1) / across) * kLine;
  const double left = 34, top = 44 + legend, right = options.width - 20,
               bottom = options.height + legend - 34;
  Svg svg(options.width, options.height + legend, options.title);
  svg.text(16, 22, Svg::Anchor::start, "title", options.title);
  svg.rect(left, top, right - left, bottom - top, "frame");
  if (xs.empty()) {
    svg.text((left + right) / 2, (top + bottom) / 2, Svg::Anchor::middle, "label", "no data");
    return svg.finish();
  }
  for (size_t g = 0; g < named; ++g) {
    const double x = 18 + static_cast<double>(g % across) * 130,
                 y = 40 + static_cast<double>(g / across) * kLine;
    svg.circle(x, y - 4, 4, "fill=\"" + series_colour(g) + "\"");
    svg.text(x + 9, y, Svg::Anchor::start, "ink", fit_text(groups[g], 11, 110));
  }
  for (const Dot& dot : dots) {
    if (!std::isfinite(dot.x) || !std::isfinite(dot.y)) continue;
    const double x = left + 8 + xs.place(dot.x) * (right - left - 16),
                 y = bottom - 8 - ys.place(dot.y) * (bottom - top - 16);
    svg.circle(x, y, 2.6, "fill=\"" + series_colour(dot.group) + "\" fill-opacity=\"0.75\"",
               dots.size() <= 3000 && dot.group < groups.size() ? groups[dot.group] : "");
  }
  svg.text((left + right) / 2, bottom + 20, Svg::Anchor::middle, "label", options.x_label);
  svg.text(left - 8, (top + bottom) / 2, Svg::Anchor::middle, "label", options.y_label,
           "transform=\"rotate(-90 " + pixels(left - 10) + " " + pixels((top + bottom) / 2) + ")\"");
  return svg.finish();
}

}  // namespace tessera::report
