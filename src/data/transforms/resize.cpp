#include "data/transforms/resize.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numbers>

#include "core/error.h"
#include "core/text.h"
#include "data/transforms/resample.h"

namespace tessera::data {

namespace {

constexpr std::array<const char*, 6> kNames = {"nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"};

// ---- filters: value at distance x, and support ----

double sinc(double x) {
  if (x == 0.0) return 1.0;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

struct BoxFilter {
  static constexpr double support = 0.5;
  static double at(double x) { return x > -0.5 && x <= 0.5 ? 1.0 : 0.0; }
};
struct BilinearFilter {
  static constexpr double support = 1.0;
  static double at(double x) { return std::max(0.0, 1.0 - std::abs(x)); }
};
struct HammingFilter {
  static constexpr double support = 1.0;
  static double at(double x) {
    x = std::abs(x);
    if (x == 0.0) return 1.0;
    if (x >= 1.0) return 0.0;
    x *= std::numbers::pi;
    return std::sin(x) / x * (0.54f + 0.46f * std::cos(x));  // single-precision constants, as in Pillow
  }
};
struct BicubicFilter {  // Keys' cubic with a = -0.5
  static constexpr double support = 2.0;
  static double at(double x) {
    constexpr double a = -0.5;
    x = std::abs(x);
    if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
    return 0.0;
  }
};
struct LanczosFilter {
  static constexpr double support = 3.0;
  static double at(double x) { return x >= -3.0 && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0; }
};

// ---- weights of one axis ----

// The outputs needed along an axis: begin … begin+count-1, from last to first if mirrored.
struct Range {
  int begin = 0, count = 0;
  bool mirrored = false;
};

struct AxisTables {
  ResampleAxis view{};
  std::vector<int32_t> first, count, weights;
  std::vector<int16_t> high, low;
  std::array<std::vector<int8_t>, 3> digits;
  std::vector<double> exact;
};

// Sets the weights of output i, centred on the input at `centre`.
template <class Filter>
void weigh(AxisTables& axis, size_t i, double centre, double inverse) {
  const int taps = axis.view.taps;
  double sum = 0;
  for (int t = 0; t < axis.count[i]; ++t)
    sum += axis.exact[static_cast<size_t>(t)] = Filter::at((t + axis.first[i] - centre + 0.5) * inverse);
  // Near the end, padded taps would exceed the input, so they begin earlier.
  const int shift = axis.view.padded ? std::max(0, axis.first[i] + taps - axis.view.inputs) : 0;
  int32_t* weights = axis.weights.data() + i * static_cast<size_t>(taps) + shift;
  for (int t = 0; t < axis.count[i]; ++t) {
    const double w = axis.exact[static_cast<size_t>(t)] / (sum != 0.0 ? sum : 1.0) * (1 << kResampleBits);
    weights[t] = static_cast<int32_t>(w < 0 ? w - 0.5 : w + 0.5);
  }
  axis.first[i] -= shift;
  axis.count[i] += shift;
}

template <class Filter>
void fill(AxisTables& axis, float low, float high, int outputs, const Range& range) {
  const int inputs = axis.view.inputs;
  const double scale = static_cast<double>(high - low) / outputs;
  const double stretch = std::max(scale, 1.0), support = Filter::support * stretch, inverse = 1.0 / stretch;
  const size_t n = static_cast<size_t>(range.count);
  axis.first.resize(n);
  axis.count.resize(n);
  auto centre_of = [&](size_t i) {
    const int at = range.mirrored ? range.begin + range.count - 1 - static_cast<int>(i)
                                  : range.begin + static_cast<int>(i);
    return low + (at + 0.5) * scale;
  };
  int taps = 1;
  for (size_t i = 0; i < n; ++i) {
    const double centre = centre_of(i);
    const int begin = std::max(static_cast<int>(centre - support + 0.5), 0);
    const int end = std::min(static_cast<int>(centre + support + 0.5), inputs);
    axis.first[i] = begin;
    axis.count[i] = end - begin;
    taps = std::max(taps, end - begin);
  }
  axis.view.padded = (taps + 3) / 4 * 4 <= inputs;
  if (axis.view.padded) taps = (taps + 3) / 4 * 4;
  axis.view.taps = taps;
  axis.exact.resize(static_cast<size_t>(taps));
  axis.weights.assign(n * static_cast<size_t>(taps), 0);
  for (size_t i = 0; i < n; ++i) weigh<Filter>(axis, i, centre_of(i), inverse);
}

// Splits the weights for narrow multipliers.
void split_weights(AxisTables& axis) {
  const size_t n = axis.weights.size();
  axis.high.resize(n);
  axis.low.resize(n);
  for (auto& digits : axis.digits) digits.resize(n);
  for (size_t i = 0; i < n; ++i) {
    const int32_t w = axis.weights[i];
    axis.high[i] = static_cast<int16_t>(w >> kLowBits);
    axis.low[i] = static_cast<int16_t>(w & ((1 << kLowBits) - 1));
    // Each digit is the nearest to the remainder, so that it fits -128 … 127.
    const int8_t d0 = static_cast<int8_t>(w);
    const int32_t after0 = (w - d0) >> 8;
    const int8_t d1 = static_cast<int8_t>(after0);
    axis.digits[0][i] = d0;
    axis.digits[1][i] = d1;
    axis.digits[2][i] = static_cast<int8_t>((after0 - d1) >> 8);
  }
}

// Makes the axis of `inputs` samples with the part from `low` to `high` resized to `outputs` samples, limited
// to `range`. Positions are float32, as in Pillow.
void make_axis(int inputs, double low, double high, int outputs, Interpolation interpolation,
               const Range& range, AxisTables& axis) {
  axis.view.inputs = inputs;
  axis.view.outputs = range.count;
  const float from = static_cast<float>(low), to = static_cast<float>(high);
  switch (interpolation) {
    case Interpolation::nearest:
    case Interpolation::box:
      fill<BoxFilter>(axis, from, to, outputs, range);
      break;
    case Interpolation::bilinear:
      fill<BilinearFilter>(axis, from, to, outputs, range);
      break;
    case Interpolation::hamming:
      fill<HammingFilter>(axis, from, to, outputs, range);
      break;
    case Interpolation::bicubic:
      fill<BicubicFilter>(axis, from, to, outputs, range);
      break;
    case Interpolation::lanczos:
      fill<LanczosFilter>(axis, from, to, outputs, range);
      break;
  }
  split_weights(axis);
  axis.view.first = axis.first.data();
  axis.view.count = axis.count.data();
  axis.view.weights = axis.weights.data();
  axis.view.high = axis.high.data();
  axis.view.low = axis.low.data();
  for (size_t d = 0; d < 3; ++d) axis.view.digits[d] = axis.digits[d].data();
}

// Returns Pillow's nearest neighbours: the source position is summed step by step in double; -1 is outside.
std::vector<int> nearest_sources(int inputs, double low, double high, int outputs, const Range& range) {
  const float from = static_cast<float>(low), to = static_cast<float>(high);
  const double step = static_cast<double>(to - from) / outputs;
  double at = static_cast<double>(from) + step * 0.5;
  std::vector<int> sources(static_cast<size_t>(range.count));
  for (int i = 0; i < range.begin + range.count; ++i, at += step) {
    if (i < range.begin) continue;
    const int source = at < 0 ? -1 : static_cast<int>(at);
    const int to_place = range.mirrored ? range.begin + range.count - 1 - i : i - range.begin;
    sources[static_cast<size_t>(to_place)] = source < inputs ? source : -1;
  }
  return sources;
}

// ---- the selected form ----

std::vector<const ResampleForm*> forms_here() {
  std::vector<const ResampleForm*> forms;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni"))
    forms.push_back(&resample_avx512);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) forms.push_back(&resample_avx2);
#endif
  forms.push_back(&resample_plain);
  return forms;
}

const ResampleForm* form_called(const std::string& name) {
  const auto forms = forms_here();
  if (name.empty()) return forms.front();
  for (const ResampleForm* form : forms)
    if (name == form->name) return form;
  fail_usage("no way to resize is called '", name, "' on this processor",
             did_you_mean(name, resample_form_names()));
}

std::atomic<const ResampleForm*>& form_in_use() {
  static std::atomic<const ResampleForm*> form = [] {
    const char* wanted = std::getenv("TESSERA_RESAMPLE");
    return form_called(wanted ? wanted : "");
  }();
  return form;
}

// ---- execution of a plan ----

void check_plan(const Image& image, const ResizePlan& plan) {
  check(image.channels == 1 || image.channels == 3, "cannot resize an image of ", image.channels,
        " channels, must be 1 or 3");
  check(image.width > 0 && image.height > 0 && plan.width > 0 && plan.height > 0, "cannot resize ",
        image.width, "x", image.height, " to ", plan.width, "x", plan.height, ", sides must be positive");
  check(std::max(image.width, image.height) <= kLongestSide, "an image of ", image.width, "x", image.height,
        " pixels is too long a strip to be resized, at most ", kLongestSide, " are taken");
  const FloatBox& box = plan.box;
  check(box.left >= 0 && box.top >= 0 && box.right <= image.width && box.bottom <= image.height &&
            box.right > box.left && box.bottom > box.top,
        "the box to resize, ", box.left, ",", box.top, " to ", box.right, ",", box.bottom,
        ", must be within ", image.width, "x", image.height);
  const Box& window = plan.window;
  check(window.left >= 0 && window.top >= 0 && window.width > 0 && window.height > 0 &&
            window.width <= plan.width - window.left && window.height <= plan.height - window.top,
        "the window ", window.width, "x", window.height, "+", window.left, "+", window.top,
        " must be within ", plan.width, "x", plan.height);
}

// Memory of one thread, reused for each image.
struct Scratch {
  AxisTables across, down;
  std::vector<uint8_t> rows, line, last_row;
};

// True if Pillow runs the vertical pass first: if it removes more than twice as many rows as the horizontal
// pass removes columns. Sizes are those of the whole image, whatever the box. (Pillow 13; the order affects
// rounding.)
bool vertical_first(const Image& image, const ResizePlan& plan) {
  return plan.height < image.height && image.height - plan.height > 2 * (image.width - plan.width);
}

// Passes each finished output row to `take(y, row)`: [3][window.width] bytes.
template <class Take>
void rows_then_columns(const Image& image, const ResizePlan& plan, Scratch& scratch, Take&& take) {
  AxisTables &across = scratch.across, &down = scratch.down;
  // Reads only the rows that the second pass needs.
  int top = image.height, bottom = 0;
  for (size_t y = 0; y < down.first.size(); ++y) {
    top = std::min(top, down.first[y]);
    bottom = std::max(bottom, down.first[y] + (down.view.padded ? down.view.taps : down.count[y]));
  }
  const ResampleForm& form = *form_in_use();
  const HorizontalPass horizontal = across.view.padded ? form.horizontal : resample_plain.horizontal;
  const VerticalPass vertical = down.view.padded ? form.vertical : resample_plain.vertical;
  const size_t stride = static_cast<size_t>(image.width) * 3,
               row_bytes = static_cast<size_t>(plan.window.width) * 3;
  const int rows = bottom - top;
  scratch.rows.resize(row_bytes * static_cast<size_t>(rows));
  // The last row of the image is read from a copy, because the fast forms read past its end.
  const bool has_last = bottom == image.height;
  horizontal(image.row(top), static_cast<ptrdiff_t>(stride), rows - has_last, across.view,
             scratch.rows.data());
  if (has_last) {
    scratch.last_row.resize(stride + kResampleSlack);
    std::memcpy(scratch.last_row.data(), image.row(image.height - 1), stride);
    horizontal(scratch.last_row.data(), static_cast<ptrdiff_t>(stride), 1, across.view,
               scratch.rows.data() + row_bytes * static_cast<size_t>(rows - 1));
  }
  for (int32_t& first : down.first) first -= top;
  scratch.line.resize(row_bytes);
  for (int y = 0; y < plan.window.height; ++y) {
    vertical(scratch.rows.data(), static_cast<int>(row_bytes), down.view, y, scratch.line.data());
    take(y, scratch.line.data());
  }
}

template <class Take>
void columns_then_rows(const Image& image, const ResizePlan& plan, Scratch& scratch, Take&& take) {
  const ResampleForm& form = *form_in_use();
  const HorizontalPass horizontal = scratch.across.view.padded ? form.horizontal : resample_plain.horizontal;
  const VerticalPass vertical = scratch.down.view.padded ? form.vertical : resample_plain.vertical;
  constexpr int kTogether = 4;  // rows per horizontal pass, which then reads its weights only once
  const size_t stride = static_cast<size_t>(image.width) * 3,
               row_bytes = static_cast<size_t>(plan.window.width) * 3;
  scratch.rows.resize(stride * kTogether + kResampleSlack);
  scratch.line.resize(row_bytes * kTogether);
  for (int y = 0; y < plan.window.height; y += kTogether) {
    const int rows = std::min(kTogether, plan.window.height - y);
    for (int i = 0; i < rows; ++i)
      vertical(image.pixels.data(), static_cast<int>(stride), scratch.down.view, y + i,
               scratch.rows.data() + stride * static_cast<size_t>(i));
    horizontal(scratch.rows.data(), static_cast<ptrdiff_t>(stride), rows, scratch.across.view,
               scratch.line.data());
    for (int i = 0; i < rows; ++i) take(y + i, scratch.line.data() + row_bytes * static_cast<size_t>(i));
  }
}

template <class Take>
void resample_rows(const Image& image, const ResizePlan& plan, Scratch& scratch, Take&& take) {
  make_axis(image.width, plan.box.left, plan.box.right, plan.width, plan.interpolation,
            {plan.window.left, plan.window.width, plan.mirrored}, scratch.across);
  make_axis(image.height, plan.box.top, plan.box.bottom, plan.height, plan.interpolation,
            {plan.window.top, plan.window.height, false}, scratch.down);
  if (vertical_first(image, plan))
    columns_then_rows(image, plan, scratch, take);
  else
    rows_then_columns(image, plan, scratch, take);
}

template <class Take>
void nearest_rows(const Image& image, const ResizePlan& plan, Scratch& scratch, Take&& take) {
  const std::vector<int> xs = nearest_sources(image.width, plan.box.left, plan.box.right, plan.width,
                                              {plan.window.left, plan.window.width, plan.mirrored});
  const std::vector<int> ys = nearest_sources(image.height, plan.box.top, plan.box.bottom, plan.height,
                                              {plan.window.top, plan.window.height, false});
  const size_t width = xs.size();
  scratch.line.resize(3 * width);
  for (size_t y = 0; y < ys.size(); ++y) {
    for (size_t x = 0; x < width; ++x)
      for (size_t c = 0; c < 3; ++c)
        scratch.line[c * width + x] =
            xs[x] < 0 || ys[y] < 0 ? uint8_t{0} : image.row(ys[y])[static_cast<size_t>(xs[x]) * 3 + c];
    take(static_cast<int>(y), scratch.line.data());
  }
}

Image as_rgb(const Image& gray) {
  Image rgb(gray.width, gray.height);
  for (size_t i = 0; i < gray.pixels.size(); ++i) std::memset(&rgb.pixels[3 * i], gray.pixels[i], 3);
  return rgb;
}

template <class Take>
void resized_rows(const Image& image, const ResizePlan& plan, Take&& take) {
  check_plan(image, plan);
  if (image.channels == 1) return resized_rows(as_rgb(image), plan, take);
  static thread_local Scratch scratch;
  if (plan.interpolation == Interpolation::nearest)
    nearest_rows(image, plan, scratch, take);
  else
    resample_rows(image, plan, scratch, take);
}

}  // namespace

Interpolation parse_interpolation(const std::string& name) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (name == kNames[i]) return static_cast<Interpolation>(i);
  const std::vector<std::string> names(kNames.begin(), kNames.end());
  const std::string hint = did_you_mean(name, names);
  fail_usage("unknown interpolation '", name, "'",
             hint.empty() ? ", must be one of " + join(names, ", ") : hint);
}

void resize_planes(const Image& image, const ResizePlan& plan, uint8_t* out) {
  const size_t width = static_cast<size_t>(plan.window.width),
               plane = width * static_cast<size_t>(plan.window.height);
  resized_rows(image, plan, [&](int y, const uint8_t* row) {
    for (size_t c = 0; c < 3; ++c)
      std::memcpy(out + c * plane + static_cast<size_t>(y) * width, row + c * width, width);
  });
}

Normalisation::Normalisation(const std::vector<double>& mean, const std::vector<double>& std) {
  check(mean.size() == 3 && std.size() == 3, "normalisation needs 3 means and 3 deviations");
  const auto divide = [](float a, float b) {  // as in the fast forms of resample.h
    const float inverse = 1.0f / b, q = a * inverse;
    return std::fma(std::fma(-q, b, a), inverse, q);
  };
  for (size_t c = 0; c < 3; ++c) {
    mean_[c] = static_cast<float>(mean[c]);
    std_[c] = static_cast<float>(std[c]);
    by_fma_[c] = true;
    for (size_t v = 0; v < 256; ++v) {
      const float byte = static_cast<float>(v), exact = (byte / 255.0f - mean_[c]) / std_[c];
      table_[256 * c + v] = exact;
      by_fma_[c] = by_fma_[c] && divide(divide(byte, 255.0f) - mean_[c], std_[c]) == exact;
    }
  }
}

void resize_planes(const Image& image, const ResizePlan& plan, const Normalisation& normalisation,
                   float* out) {
  const size_t width = static_cast<size_t>(plan.window.width);
  const size_t plane = width * static_cast<size_t>(plan.window.height);
  const MapPass map = form_in_use().load()->map;
  resized_rows(image, plan, [&](int y, const uint8_t* row) {
    for (int c = 0; c < 3; ++c) {
      const ByteMap bytes{normalisation.table(c), normalisation.mean(c), normalisation.std(c),
                          normalisation.by_fma(c)};
      const size_t channel = static_cast<size_t>(c);
      map(row + channel * width, plan.window.width, bytes,
          out + channel * plane + static_cast<size_t>(y) * width);
    }
  });
}

void normalise(const Image& image, const Normalisation& normalisation, float* out) {
  check(image.channels == 3, "cannot normalise an image of ", image.channels, " channels, must be 3");
  const size_t pixels = image.pixels.size() / 3;
  for (int c = 0; c < 3; ++c) {
    const float* table = normalisation.table(c);
    const uint8_t* from = image.pixels.data() + c;
    for (size_t i = 0; i < pixels; ++i) *out++ = table[from[3 * i]];
  }
}

Image resize(const Image& image, const ResizePlan& plan) {
  check_plan(image, plan);
  Image out(plan.window.width, plan.window.height);
  const size_t width = static_cast<size_t>(plan.window.width);
  resized_rows(image, plan, [&](int y, const uint8_t* row) {
    uint8_t* to = out.row(y);
    for (size_t x = 0; x < width; ++x)
      for (size_t c = 0; c < 3; ++c) *to++ = row[c * width + x];
  });
  return out;
}

Image resize(const Image& image, int width, int height, Interpolation interpolation, const FloatBox& box) {
  Image out(std::max(width, 0), std::max(height, 0), image.channels);
  const size_t step = static_cast<size_t>(image.channels), row_pixels = static_cast<size_t>(out.width);
  resized_rows(image, {box, width, height, interpolation, {0, 0, width, height}, false},
               [&](int y, const uint8_t* row) {
                 uint8_t* to = out.row(y);
                 for (size_t c = 0; c < step; ++c)
                   for (size_t x = 0; x < row_pixels; ++x) to[x * step + c] = row[c * row_pixels + x];
               });
  return out;
}

Image resize(const Image& image, int width, int height, Interpolation interpolation) {
  if (width == image.width && height == image.height) return image;
  return resize(image, width, height, interpolation,
                {0, 0, static_cast<double>(image.width), static_cast<double>(image.height)});
}

Image shrunk_to_fit(const Image& image, int side) {
  const int longest = std::max(image.width, image.height);
  if (longest <= side) return image;
  const double scale = static_cast<double>(side) / longest;
  const auto scaled = [&](int n) { return std::max(1, static_cast<int>(std::lround(n * scale))); };
  return resize(image, scaled(image.width), scaled(image.height), Interpolation::bicubic);
}

std::vector<std::string> resample_form_names() {
  std::vector<std::string> names;
  for (const ResampleForm* form : forms_here()) names.emplace_back(form->name);
  return names;
}

void use_resample_form(const std::string& name) { form_in_use() = form_called(name); }

}  // namespace tessera::data
