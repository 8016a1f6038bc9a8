#include "report/dot_chart.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "report/markup.h"

namespace tessera::report {
namespace {

constexpr double kEdge = 16, kRowHeight = 24, kLegendRow = 18;

std::string percent(double share) { return compact(share * 100, 3) + " %"; }

// Maps rows and shares to positions in the drawing.
struct Field {
  double left = 0, top = 0, width = 0;
  bool falling = false;
  double x(double share) const {
    const double place = std::clamp(share, 0.0, 1.0);
    return left + width * (falling ? 1 - place : place);
  }
  double y(size_t row) const { return top + (static_cast<double>(row) + 0.5) * kRowHeight; }
};

bool has_share(const std::vector<DotSeries>& series) {
  return std::any_of(series.begin(), series.end(), [](const DotSeries& one) {
    return std::any_of(one.shares.begin(), one.shares.end(),
                       [](double share) { return std::isfinite(share); });
  });
}

// Draws each name with its mean, as many side by side as fit the width; returns the height.
double draw_legend_names(Svg& svg, const std::vector<DotSeries>& series, const DotOptions& options,
                         double top) {
  const double room = options.width - 2 * kEdge;
  double column = 0;
  const auto mean_of = [](const DotSeries& one) {
    return std::isfinite(one.mean) ? "  " + percent(one.mean) : std::string();
  };
  for (const DotSeries& one : series) column = std::max(column, text_width(one.name + mean_of(one), 11) + 28);
  column = std::min(std::max(column, 1.0), room);
  const auto across = std::max<size_t>(1, static_cast<size_t>(room / column));
  for (size_t s = 0; s < series.size(); ++s) {
    const double x = kEdge + column * static_cast<double>(s % across),
                 y = top + kLegendRow * static_cast<double>(s / across);
    const std::string mean = mean_of(series[s]);
    svg.circle(x + 4, y - 4, 4, "fill=\"" + series_colour(s) + "\"");
    svg.text(x + 13, y, Svg::Anchor::start, "ink",
             fit_text(series[s].name, 11, column - 22 - text_width(mean, 11)) + mean);
  }
  return kLegendRow * static_cast<double>((series.size() + across - 1) / across);
}

void draw_field(Svg& svg, const std::vector<std::string>& rows, const Field& field,
                const DotOptions& options) {
  const double bottom = field.top + kRowHeight * static_cast<double>(rows.size());
  for (const double share : {0.0, 0.25, 0.5, 0.75, 1.0}) {
    svg.line(field.x(share), field.top, field.x(share), bottom, "grid");
    svg.text(field.x(share), bottom + 16, Svg::Anchor::middle, "label", percent(share));
  }
  for (size_t r = 0; r < rows.size(); ++r) {
    svg.line(field.left, field.y(r), field.left + field.width, field.y(r), "grid");
    svg.text(field.left - 10, field.y(r) + 4, Svg::Anchor::end, "ink",
             fit_text(rows[r], 11, options.width * 0.3));
  }
  svg.line(field.left, bottom, field.left + field.width, bottom, "axis");
  svg.text(field.left, field.top - 8, Svg::Anchor::start, "label", options.left);
  svg.text(field.left + field.width, field.top - 8, Svg::Anchor::end, "label", options.right);
  svg.text(field.left + field.width, bottom + 34, Svg::Anchor::end, "label", options.label);
}

}  // namespace

std::string dot_chart(const std::vector<std::string>& rows, const std::vector<DotSeries>& series,
                      const DotOptions& options) {
  for (const DotSeries& one : series)
    check(one.shares.size() == rows.size(), "dot chart: ", one.name, " has ", one.shares.size(),
          " shares for ", rows.size(), " rows");
  // The legend's height determines the total height, so it is drawn on a scratch sheet first.
  Svg unused(options.width, 0, "");
  const double legend = draw_legend_names(unused, series, options, 44);
  double names = 0;
  for (const std::string& row : rows)
    names = std::max(names, std::min(options.width * 0.3, text_width(row, 11)));
  const Field field{kEdge + names + 12, 44 + legend + 18, options.width - (kEdge + names + 12) - 28,
                    options.falling};
  const double bottom = field.top + kRowHeight * static_cast<double>(rows.size());
  Svg svg(options.width, bottom + 44, options.title);
  svg.text(kEdge, 22, Svg::Anchor::start, "title", options.title);
  draw_legend_names(svg, series, options, 44);
  if (!has_share(series)) {
    svg.text(options.width / 2, (field.top + bottom) / 2, Svg::Anchor::middle, "label", "no data");
    return svg.finish();
  }
  draw_field(svg, rows, field, options);
  for (size_t s = 0; s < series.size(); ++s) {
    if (!std::isfinite(series[s].mean)) continue;
    const std::string x = pixels(field.x(series[s].mean));
    svg.path("M" + x + " " + pixels(field.top) + "L" + x + " " + pixels(bottom),
             "fill=\"none\" stroke=\"" + series_colour(s) + "\" stroke-width=\"2\" stroke-opacity=\"0.7\"");
  }
  const double apart = std::min(4.0, 14.0 / static_cast<double>(series.size()));
  for (size_t s = 0; s < series.size(); ++s)
    for (size_t r = 0; r < rows.size(); ++r) {
      const double share = series[s].shares[r];
      if (!std::isfinite(share)) continue;
      const double below = apart * (static_cast<double>(s) - static_cast<double>(series.size() - 1) / 2);
      svg.circle(field.x(share), field.y(r) + below, 4.5, "fill=\"" + series_colour(s) + "\"",
                 series[s].name + ", " + rows[r] + ": " + percent(share));
    }
  return svg.finish();
}

}  // namespace tessera::report
