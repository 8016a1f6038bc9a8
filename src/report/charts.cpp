#include "report/charts.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "report/markup.h"

namespace tessera::report {
namespace {

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  bool empty() const { return low > high; }
  double span() const { return high - low; }
  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  // Widens the range around a single value.
  void widen() {
    if (span() > 0) return;
    const double room = low == 0 ? 1 : std::abs(low) * 0.1;
    low -= room, high += room;
  }
};

bool shown(const Point& p, bool log_y) {
  return std::isfinite(p.x) && std::isfinite(p.y) && (!log_y || p.y > 0);
}

// Maps values to positions in the chart.
struct Plane {
  Range x, y;  // y in log10 if log_y
  double left = 0, top = 0, width = 0, height = 0;
  bool log_y = false;
  double px(double value) const { return left + width * (value - x.low) / x.span(); }
  double py(double value) const {
    const double v = log_y ? std::log10(value) : value;
    return top + height * (1 - (std::clamp(v, y.low, y.high) - y.low) / y.span());
  }
};

struct Tick {
  double value;
  std::string label;
};

std::string tick_label(double value, double step, bool percent) {
  if (percent) return compact(value * 100, 4) + " %";
  const double size = std::abs(value);
  if (size >= 1e4 && step >= 100) return compact(value / 1000, 6) + "k";
  return compact(std::abs(value) < step * 1e-9 ? 0 : value, 6);
}

std::vector<Tick> ticks_of(const Range& range, int count, bool percent) {
  std::vector<Tick> ticks;
  const std::vector<double> values = nice_ticks(range.low, range.high, count);
  const double step = values.size() > 1 ? values[1] - values[0] : range.span();
  for (const double value : values) ticks.push_back({value, tick_label(value, step, percent)});
  return ticks;
}

// Marks nothing between whole epochs.
std::vector<Tick> x_ticks_of(const std::vector<Curve>& curves, const Plane& plane) {
  const auto ticks = ticks_of(plane.x, std::max(2, static_cast<int>(plane.width / 80)), false);
  const auto whole = [](double x) { return !std::isfinite(x) || x == std::floor(x); };
  for (const Curve& curve : curves)
    for (const Point& p : curve.points)
      if (!whole(p.x)) return ticks;
  std::vector<Tick> kept;
  std::copy_if(ticks.begin(), ticks.end(), std::back_inserter(kept),
               [&](const Tick& t) { return whole(t.value); });
  return kept;
}

// Ticks at decades; at 1, 2 and 5 for fewer than three decades; at even steps if these are too few.
std::vector<Tick> log_ticks(const Range& exponents, bool percent) {
  std::vector<Tick> ticks;
  const int low = static_cast<int>(std::floor(exponents.low)),
            high = static_cast<int>(std::ceil(exponents.high));
  const int stride = std::max(1, (high - low) / 6);
  for (int decade = low; decade <= high; decade += stride)
    for (const int factor : {1, 2, 5}) {
      if (factor > 1 && exponents.span() > 2.5) break;
      const double value = factor * std::pow(10.0, decade), place = std::log10(value);
      if (place < exponents.low - 1e-9 || place > exponents.high + 1e-9) continue;
      ticks.push_back({value, percent ? compact(value * 100, 4) + " %" : compact(value, 4)});
    }
  if (ticks.size() < 2) {
    const Range values = {std::pow(10.0, exponents.low), std::pow(10.0, exponents.high)};
    return ticks_of(values, 4, percent);
  }
  return ticks;
}

// Returns at most two points per pixel column, the least and the greatest, in their order.
std::vector<Point> thinned(const std::vector<Point>& points, const Plane& plane) {
  if (points.size() <= static_cast<size_t>(2 * plane.width)) return points;
  std::vector<Point> kept;
  for (size_t i = 0; i < points.size();) {
    if (!shown(points[i], plane.log_y)) {
      kept.push_back(points[i++]);
      continue;
    }
    const double column = std::floor(plane.px(points[i].x));
    size_t least = i, greatest = i, end = i;
    for (; end < points.size() && shown(points[end], plane.log_y) &&
           std::floor(plane.px(points[end].x)) == column;
         ++end) {
      if (points[end].y < points[least].y) least = end;
      if (points[end].y > points[greatest].y) greatest = end;
    }
    kept.push_back(points[std::min(least, greatest)]);
    if (least != greatest) kept.push_back(points[std::max(least, greatest)]);
    i = end;
  }
  return kept;
}

void draw_curve(Svg& svg, const Curve& curve, const std::string& colour, const Plane& plane, bool percent) {
  std::string data;
  bool pen_down = false;
  for (const Point& p : thinned(curve.points, plane)) {
    const bool visible = shown(p, plane.log_y);
    if (visible) data += (pen_down ? "L" : "M") + pixels(plane.px(p.x)) + " " + pixels(plane.py(p.y));
    pen_down = visible;
  }
  const std::string pen = curve.faint ? "stroke-width=\"1\" stroke-opacity=\"0.35\"" : "stroke-width=\"2\"";
  svg.path(data, "fill=\"none\" stroke=\"" + colour +
                     "\" stroke-linejoin=\"round\" stroke-linecap=\"round\" " + pen);
  if (curve.faint || curve.points.size() > 60) return;
  for (const Point& p : curve.points) {
    if (!shown(p, plane.log_y)) continue;
    const std::string value = percent ? compact(p.y * 100) + " %" : compact(p.y);
    const std::string where = compact(p.x, 6) + ": " + value;
    svg.circle(plane.px(p.x), plane.py(p.y), 2.5, "fill=\"" + colour + "\"",
               curve.name.empty() ? where : curve.name + " at " + where);
  }
}

void draw_axes(Svg& svg, const Plane& plane, const ChartOptions& options, const std::vector<Tick>& x_ticks,
               const std::vector<Tick>& y_ticks) {
  const double bottom = plane.top + plane.height, right = plane.left + plane.width;
  for (const Tick& tick : y_ticks) {
    const double y = plane.py(tick.value);
    svg.line(plane.left, y, right, y, "grid");
    svg.text(plane.left - 8, y + 4, Svg::Anchor::end, "label", tick.label);
  }
  svg.line(plane.left, bottom, right, bottom, "axis");
  for (const Tick& tick : x_ticks) {
    const double x = plane.px(tick.value);
    svg.line(x, bottom, x, bottom + 4, "axis");
    svg.text(x, bottom + 17, Svg::Anchor::middle, "label", tick.label);
  }
  svg.text(right, bottom + 34, Svg::Anchor::end, "label", options.x_label);
}

// A faint curve has the colour of the next curve that is not faint, since raw values and their mean belong
// together.
size_t colour_index(const std::vector<Curve>& curves, size_t curve) {
  return static_cast<size_t>(std::count_if(curves.begin(), curves.begin() + static_cast<ptrdiff_t>(curve),
                                           [](const Curve& c) { return !c.faint; }));
}

struct LegendName {
  size_t curve = 0;
  std::string name;
  double x = 0, y = 0;  // position of the name; its colour is 18 to the left
};
struct Legend {
  std::vector<LegendName> names;
  double height = 0;  // height of its rows below the title
};

// Places the names in the title's row, up to the right edge. If they do not fit, uses as many rows from
// `below` on as needed: a narrow chart must also name its curves.
Legend legend_of(const std::vector<Curve>& curves, const ChartOptions& options, double below) {
  constexpr double kEdge = 16, kColour = 18, kApart = 14, kRow = 18;
  Legend row, rows;
  double x = options.width - kEdge;
  for (size_t i = curves.size(); i-- > 0;) {
    if (curves[i].faint || curves[i].name.empty()) continue;
    const std::string name = fit_text(curves[i].name, 11, 130);
    x -= text_width(name, 11);
    row.names.push_back({i, name, x, 22});
    x -= kColour + kApart;
  }
  if (row.names.empty() || row.names.back().x - kColour >= kEdge + text_width(options.title, 13) + 24)
    return row;
  double left = kEdge, y = below;
  for (size_t i = row.names.size(); i-- > 0;) {  // in the order of the curves
    const size_t curve = row.names[i].curve;
    const std::string name = fit_text(curves[curve].name, 11, options.width - 2 * kEdge - kColour);
    const double width = kColour + text_width(name, 11);
    if (left > kEdge && left + width > options.width - kEdge) left = kEdge, y += kRow;
    rows.names.push_back({curve, name, left + kColour, y});
    left += width + kApart;
  }
  rows.height = y - below + kRow;
  return rows;
}

void draw_legend(Svg& svg, const Legend& legend, const std::vector<Curve>& curves) {
  for (const auto& [curve, name, x, y] : legend.names) {
    svg.text(x, y, Svg::Anchor::start, "ink", name);
    svg.rect(x - 18, y - 6, 12, 4, "",
             "rx=\"2\" fill=\"" + series_colour(colour_index(curves, curve)) + "\"");
  }
}

Plane plane_of(const std::vector<Curve>& curves, const ChartOptions& options) {
  Plane plane;
  plane.log_y = options.log_y;
  for (const Curve& curve : curves)
    for (const Point& p : curve.points)
      if (shown(p, options.log_y)) plane.x.add(p.x), plane.y.add(options.log_y ? std::log10(p.y) : p.y);
  const auto place = [&](double y) { return options.log_y ? std::log10(y) : y; };
  if (std::isfinite(options.y_min)) plane.y.low = place(options.y_min);
  if (std::isfinite(options.y_max)) plane.y.high = place(options.y_max);
  return plane;
}

void draw_frame(Svg& svg, const ChartOptions& options) {
  svg.text(16, 22, Svg::Anchor::start, "title", options.title);
  if (!options.y_label.empty()) svg.text(16, 40, Svg::Anchor::start, "label", options.y_label);
}

}  // namespace

std::vector<double> nice_ticks(double low, double high, int count) {
  if (!(high > low) || !std::isfinite(high - low)) return {low};
  const double rough = (high - low) / std::max(1, count);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 2.5, 5.0})
    if (factor * power >= rough * (1 - 1e-9)) {
      step = factor * power;
      break;
    }
  std::vector<double> ticks;
  const double first = std::ceil(low / step - 1e-9);
  for (int i = 0; i < 100; ++i) {
    const double value = (first + i) * step;
    if (value > high + step * 1e-9) break;
    ticks.push_back(value);
  }
  return ticks.empty() ? std::vector<double>{low} : ticks;
}

Curve smoothed(const Curve& curve, size_t window) {
  Curve out{curve.name, curve.points, false};
  const size_t half = window / 2;
  for (size_t i = 0; i < curve.points.size(); ++i) {
    double sum = 0;
    int64_t count = 0;
    const size_t end = std::min(curve.points.size(), i + half + 1);
    for (size_t j = i > half ? i - half : 0; j < end; ++j)
      if (std::isfinite(curve.points[j].y)) sum += curve.points[j].y, ++count;
    if (std::isfinite(curve.points[i].y)) out.points[i].y = sum / static_cast<double>(count);
  }
  return out;
}

std::string line_chart(const std::vector<Curve>& curves, const ChartOptions& options) {
  const double top = options.y_label.empty() ? 40 : 52;
  const Legend legend = legend_of(curves, options, top + 6);
  Svg svg(options.width, options.height + legend.height, options.title);
  draw_frame(svg, options);
  Plane plane = plane_of(curves, options);
  if (plane.x.empty() || plane.y.empty()) {
    svg.text(options.width / 2, options.height / 2, Svg::Anchor::middle, "label", "no data");
    return svg.finish();
  }
  // For equal shares uses the range 0 to 1, since a range around them might be negative.
  if (options.percent && plane.y.low == plane.y.high && plane.y.low >= 0 && plane.y.low <= 1)
    plane.y.low = 0, plane.y.high = 1;
  plane.x.widen(), plane.y.widen();
  if (!std::isfinite(options.y_min) && !options.log_y) plane.y.low -= plane.y.span() * 0.04;
  if (!std::isfinite(options.y_max)) plane.y.high += plane.y.span() * 0.04;
  const auto y_ticks =
      options.log_y ? log_ticks(plane.y, options.percent) : ticks_of(plane.y, 5, options.percent);
  double labels = 0;
  for (const Tick& tick : y_ticks) labels = std::max(labels, text_width(tick.label, 11));
  plane.left = 24 + labels, plane.top = top + legend.height;
  plane.width = options.width - plane.left - 20;
  plane.height = options.height - top - (options.x_label.empty() ? 28 : 44);
  draw_axes(svg, plane, options, x_ticks_of(curves, plane), y_ticks);
  for (const bool faint : {true, false})
    for (size_t i = 0; i < curves.size(); ++i)
      if (curves[i].faint == faint)
        draw_curve(svg, curves[i], series_colour(colour_index(curves, i)), plane, options.percent);
  draw_legend(svg, legend, curves);
  return svg.finish();
}

std::string bar_chart(const std::vector<Bar>& bars, const ChartOptions& options) {
  constexpr double kRow = 24, kTop = 40;
  Svg svg(options.width, kTop + kRow * static_cast<double>(std::max<size_t>(1, bars.size())) + 12,
          options.title);
  draw_frame(svg, options);
  if (bars.empty()) svg.text(options.width / 2, kTop + 12, Svg::Anchor::middle, "label", "no data");
  double names = 0, values = 0, longest = 0;
  const auto value_of = [&](const Bar& bar) {
    const std::string number = options.percent ? compact(bar.value * 100, 3) + " %" : compact(bar.value);
    return bar.note.empty() ? number : number + "  " + bar.note;
  };
  for (const Bar& bar : bars) {
    names = std::max(names, std::min(options.width * 0.3, text_width(bar.name, 11)));
    values = std::max(values, text_width(value_of(bar), 11));
    if (std::isfinite(bar.value)) longest = std::max(longest, bar.value);
  }
  if (std::isfinite(options.y_max)) longest = options.y_max;
  const double left = 28 + names, room = std::max(40.0, options.width - left - values - 36);
  for (size_t i = 0; i < bars.size(); ++i) {
    const double y = kTop + kRow * static_cast<double>(i);
    const double share = longest > 0 && bars[i].value > 0 ? std::min(1.0, bars[i].value / longest) : 0;
    const std::string value = value_of(bars[i]);
    svg.text(left - 10, y + 15, Svg::Anchor::end, "ink", fit_text(bars[i].name, 11, options.width * 0.3));
    svg.rect(left, y + 5, room, 13, "track", "rx=\"3\"");
    svg.rect(left, y + 5, room * share, 13, "bar", "rx=\"3\"", bars[i].name + ": " + value);
    svg.text(left + room + 10, y + 15, Svg::Anchor::start, "label", value);
  }
  return svg.finish();
}

}  // namespace tessera::report
