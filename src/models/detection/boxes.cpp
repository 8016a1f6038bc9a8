#include "models/detection/boxes.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/threads.h"
#include "nn/boxes.h"

namespace tessera::models {
namespace {

const double kLargestLog = std::log(1000.0 / 16);

// Computes in the boxes' dtype, as the published code does, so that the same boxes tie.
template <class T>
double overlap(const double* a, const double* b) {
  const auto at = [](const double* box, int i) { return static_cast<T>(box[i]); };
  const auto area = [&](const double* box) { return (at(box, 2) - at(box, 0)) * (at(box, 3) - at(box, 1)); };
  const T width = std::max(std::min(at(a, 2), at(b, 2)) - std::max(at(a, 0), at(b, 0)), T{0}),
          height = std::max(std::min(at(a, 3), at(b, 3)) - std::max(at(a, 1), at(b, 1)), T{0});
  const T inside = width * height;
  const T both = area(a) + area(b) - inside;
  return inside > 0 ? static_cast<double>(inside / both) : 0;
}

}  // namespace

torch::Tensor clip_boxes(const torch::Tensor& boxes, Extent image) {
  const torch::Tensor corners = boxes.view({-1, 2, 2});
  const auto width = static_cast<double>(image.width), height = static_cast<double>(image.height);
  return torch::stack({corners.select(2, 0).clamp(0, width), corners.select(2, 1).clamp(0, height)}, 2)
      .view(boxes.sizes());
}

torch::Tensor boxes_of_size(const torch::Tensor& boxes, double side, bool beyond) {
  const torch::Tensor sides = boxes.slice(1, 2) - boxes.slice(1, 0, 2);
  return (beyond ? sides > side : sides >= side).all(1).nonzero().squeeze(1);
}

torch::Tensor BoxCoder::encode(const torch::Tensor& boxes, const torch::Tensor& targets) const {
  const auto middle = [](const torch::Tensor& b, int64_t axis) {
    return b.select(1, axis) + 0.5 * (b.select(1, axis + 2) - b.select(1, axis));
  };
  const auto side = [](const torch::Tensor& b, int64_t axis) {
    return b.select(1, axis + 2) - b.select(1, axis);
  };
  std::vector<torch::Tensor> deltas;
  for (const int64_t axis : {0, 1})
    deltas.push_back(weights[static_cast<size_t>(axis)] * (middle(targets, axis) - middle(boxes, axis)) /
                     side(boxes, axis));
  for (const int64_t axis : {0, 1})
    deltas.push_back(weights[static_cast<size_t>(axis + 2)] *
                     (side(targets, axis) / side(boxes, axis)).log());
  return torch::stack(deltas, 1);
}

torch::Tensor by_class(const torch::Tensor& deltas) {
  return deltas.view({deltas.size(0), deltas.size(1) / 4, 4});
}

torch::Tensor BoxCoder::decode(const torch::Tensor& deltas, const torch::Tensor& boxes) const {
  const torch::Tensor all = by_class(deltas);
  std::vector<torch::Tensor> low, high;
  for (const int64_t axis : {0, 1}) {
    const torch::Tensor side = (boxes.select(1, axis + 2) - boxes.select(1, axis)).unsqueeze(1);
    const torch::Tensor middle = boxes.select(1, axis).unsqueeze(1) + 0.5 * side;
    const torch::Tensor moved = all.select(2, axis) / weights[static_cast<size_t>(axis)] * side + middle;
    torch::Tensor log = all.select(2, axis + 2) / weights[static_cast<size_t>(axis + 2)];
    log = both_sides ? log.clamp(-kLargestLog, kLargestLog) : log.clamp_max(kLargestLog);
    const torch::Tensor half = 0.5 * log.exp() * side;
    low.push_back(moved - half);
    high.push_back(moved + half);
  }
  return torch::stack({low[0], low[1], high[0], high[1]}, 2).view(deltas.sizes());
}

torch::Tensor AnchorOptions::anchors(int64_t level, Extent grid, Extent stride,
                                     torch::ScalarType type) const {
  const std::vector<double>& of_level = sizes[static_cast<size_t>(level)];
  std::vector<std::array<double, 2>> halves;  // height and width
  const auto add = [&](double size, double ratio) {
    const double root = std::sqrt(ratio);
    std::array<double, 2> half{size * root / 2, size / root / 2};
    if (rounded)
      for (double& value : half) value = std::nearbyint(value);
    halves.push_back(half);
  };
  if (ratios_first) {
    for (const double ratio : ratios)
      for (const double size : of_level) add(size, ratio);
  } else {
    for (const double size : of_level)
      for (const double ratio : ratios) add(size, ratio);
  }
  const auto count = std::ssize(halves);
  torch::Tensor boxes = torch::empty({grid.height * grid.width * count, 4}, torch::kFloat64);
  double* to = boxes.data_ptr<double>();
  for (int64_t row = 0; row < grid.height; ++row)
    for (int64_t column = 0; column < grid.width; ++column)
      for (const auto& [high, wide] : halves) {
        const double x = (static_cast<double>(column) + offset) * static_cast<double>(stride.width),
                     y = (static_cast<double>(row) + offset) * static_cast<double>(stride.height);
        *to++ = x - wide, *to++ = y - high, *to++ = x + wide, *to++ = y + high;
      }
  return boxes.to(type);
}

namespace {

// Returns overlap() of all pairs, [boxes, truths], in the type of its arithmetic.
torch::Tensor overlaps_there(const torch::Tensor& boxes, const torch::Tensor& truths) {
  const torch::Tensor a = boxes.unsqueeze(1), b = truths.unsqueeze(0);
  const auto side = [](const torch::Tensor& box, int64_t axis) {
    return box.select(2, axis + 2) - box.select(2, axis);
  };
  const auto shared = [&](int64_t axis) {
    return (torch::minimum(a.select(2, axis + 2), b.select(2, axis + 2)) -
            torch::maximum(a.select(2, axis), b.select(2, axis)))
        .clamp_min(0);
  };
  const torch::Tensor inside = shared(0) * shared(1),
                      both = side(a, 0) * side(a, 1) + side(b, 0) * side(b, 1) - inside;
  return torch::where(inside > 0, inside / both, 0);
}

}  // namespace

Matches match_boxes_there(const torch::Tensor& boxes, const torch::Tensor& truths,
                          const MatchOptions& options) {
  constexpr int64_t kPairs = int64_t{1} << 23;  // at a time: temporary tensors have some numbers a pair
  const int64_t count = boxes.size(0), truth_count = truths.size(0);
  const auto numbers = [&](int64_t value) { return std::vector<int64_t>(static_cast<size_t>(count), value); };
  if (truth_count == 0 || count == 0) return {numbers(Matches::kBackground), numbers(0)};
  const auto type = boxes.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
  const torch::Tensor own = boxes.detach().to(type), theirs = truths.detach().to(boxes.device(), type);
  std::vector<torch::Tensor> parts;
  for (const torch::Tensor& part : own.split(std::max<int64_t>(1, kPairs / truth_count)))
    parts.push_back(overlaps_there(part, theirs));
  const torch::Tensor overlaps = torch::cat(parts), largest = overlaps.amax(1),
                      most = largest.to(torch::kFloat64);
  const torch::Tensor index = torch::arange(truth_count, own.options().dtype(torch::kInt32));
  const torch::Tensor best = torch::where(overlaps == largest.unsqueeze(1), index, truth_count - 1).amin(1);
  torch::Tensor truth = torch::where(
      most >= options.high, best,
      torch::where(most < options.low, Matches::kBackground, Matches::kBetween).to(torch::kInt32));
  if (options.weak != WeakMatches::none) {
    const torch::Tensor of_truth = overlaps.amax(0);
    torch::Tensor weak = overlaps == of_truth;
    const bool given = options.weak == WeakMatches::given;
    if (given) weak = weak.logical_and(of_truth.to(torch::kFloat64) >= options.weakest);
    truth = torch::where(weak.any(1), given ? torch::where(weak, index, -1).amax(1) : best, truth);
  }
  const torch::Tensor host = torch::stack({truth, best}).to(torch::kInt32).cpu();
  const int32_t* found = host.const_data_ptr<int32_t>();
  return {{found, found + count}, {found + count, found + 2 * count}};
}

Matches match_boxes(const torch::Tensor& boxes, const torch::Tensor& truths, const MatchOptions& options) {
  if (!boxes.is_cpu()) return match_boxes_there(boxes, truths, options);
  const torch::Tensor a = boxes.detach().to(torch::kFloat64).contiguous(),
                      b = truths.detach().to(torch::kCPU, torch::kFloat64).contiguous();
  const int64_t count = a.size(0), truth_count = b.size(0);
  Matches m;
  m.truth.assign(static_cast<size_t>(count), Matches::kBackground);
  m.best.assign(static_cast<size_t>(count), 0);
  if (truth_count == 0 || count == 0) return m;
  const double *box = a.const_data_ptr<double>(), *truth = b.const_data_ptr<double>();
  std::vector<double> overlaps(static_cast<size_t>(count * truth_count));
  const auto overlap_of = boxes.scalar_type() == torch::kFloat64 ? overlap<double> : overlap<float>;
  parallel_for(count, 256, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      double best = -1;
      for (int64_t t = 0; t < truth_count; ++t) {
        const double value = overlaps[static_cast<size_t>(i * truth_count + t)] =
            overlap_of(box + 4 * i, truth + 4 * t);
        if (value > best) best = value, m.best[static_cast<size_t>(i)] = t;
      }
      m.truth[static_cast<size_t>(i)] = best >= options.high ? m.best[static_cast<size_t>(i)]
                                        : best < options.low ? Matches::kBackground
                                                             : Matches::kBetween;
    }
  });
  if (options.weak == WeakMatches::none) return m;
  for (int64_t t = 0; t < truth_count; ++t) {
    double most = 0;
    for (int64_t i = 0; i < count; ++i)
      most = std::max(most, overlaps[static_cast<size_t>(i * truth_count + t)]);
    const bool given = options.weak == WeakMatches::given;
    if (given && most < options.weakest) continue;
    for (int64_t i = 0; i < count; ++i)
      if (overlaps[static_cast<size_t>(i * truth_count + t)] == most)
        m.truth[static_cast<size_t>(i)] = given ? t : m.best[static_cast<size_t>(i)];
  }
  return m;
}

}  // namespace tessera::models
