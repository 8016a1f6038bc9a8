#include "ops/roi_align.h"

#include <torch/csrc/autograd/custom_function.h>

#include "core/error.h"
#include "core/threads.h"
#include "kernels/nms/nms.h"
#include "kernels/roi_align/roi_align.h"
#include "ops/inference.h"

namespace tessera::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

void check_boxes(const torch::Tensor& boxes, int64_t columns, const char* who) {
  check(boxes.dim() == 2 && boxes.size(1) == columns, who, ": boxes have shape ", boxes.sizes(),
        ", must be [n, ", columns, "]");
}

template <class Number>
kernels::RoiAlign<Number> call_of(at::IntArrayRef map, const torch::Tensor& boxes, const RoiAlignOptions& o) {
  return {map[0],  map[1],    map[2],     map[3],   boxes.size(0), boxes.const_data_ptr<Number>(),
          o.scale, o.aligned, o.sampling, o.height, o.width};
}

class RoiAlignFunction : public torch::autograd::Function<RoiAlignFunction> {
 public:
  static Variable forward(AutogradContext* context, const Variable& x, const Variable& boxes, double scale,
                          bool aligned, int64_t sampling, int64_t height, int64_t width) {
    context->save_for_backward({boxes});
    context->saved_data["map"] = x.sizes().vec();
    context->saved_data["scale"] = scale;
    context->saved_data["aligned"] = aligned;
    context->saved_data["sampling"] = sampling;
    context->saved_data["height"] = height;
    context->saved_data["width"] = width;
    const RoiAlignOptions options{scale, aligned, sampling, height, width};
    const torch::Tensor map = x.contiguous();
    torch::Tensor y = torch::empty({boxes.size(0), x.size(1), height, width}, x.options());
    if (x.scalar_type() == torch::kFloat64)
      kernels::roi_align(call_of<double>(x.sizes(), boxes, options), map.const_data_ptr<double>(),
                         y.data_ptr<double>());
    else
      kernels::roi_align(call_of<float>(x.sizes(), boxes, options), map.const_data_ptr<float>(),
                         y.data_ptr<float>());
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    check_first_derivative("roi_align");
    const torch::Tensor boxes = context->get_saved_variables()[0], gy = gradients[0].contiguous();
    const std::vector<int64_t> map = context->saved_data["map"].toIntVector();
    const RoiAlignOptions options{
        context->saved_data["scale"].toDouble(), context->saved_data["aligned"].toBool(),
        context->saved_data["sampling"].toInt(), context->saved_data["height"].toInt(),
        context->saved_data["width"].toInt()};
    torch::Tensor gx = torch::empty(map, gy.options());
    if (gy.scalar_type() == torch::kFloat64)
      kernels::roi_align_backward(call_of<double>(map, boxes, options), gy.const_data_ptr<double>(),
                                  gx.data_ptr<double>());
    else
      kernels::roi_align_backward(call_of<float>(map, boxes, options), gy.const_data_ptr<float>(),
                                  gx.data_ptr<float>());
    return {gx, {}, {}, {}, {}, {}, {}};
  }
};

// Returns the weights of one axis as matrices [boxes, bins, size], with the samples of a bin summed. `boxes`
// are rows of `at`, float64 on the CPU; its columns `from` and `from` + 2 hold the two ends.
torch::Tensor axis_weights(const torch::Tensor& at, const std::vector<int64_t>& boxes, int64_t from,
                           const RoiAlignOptions& o, int64_t bins, int64_t size) {
  torch::Tensor weights = torch::zeros({static_cast<int64_t>(boxes.size()), bins, size}, torch::kFloat64);
  auto to = weights.accessor<double, 3>();
  const auto ends = at.accessor<double, 2>();
  for (int64_t k = 0; k < to.size(0); ++k) {
    const int64_t box = boxes[static_cast<size_t>(k)];
    const auto side =
        kernels::roi_side(ends[box][from], ends[box][from + 2], o.scale, o.aligned, o.sampling, bins);
    const double share = 1 / static_cast<double>(std::max<int64_t>(side.count, 1));
    for (int64_t p = 0; p < bins; ++p)
      for (int64_t i = 0; i < side.count; ++i) {
        const auto sample = kernels::roi_sample(side.at(p, i), size);
        to[k][p][sample.low] += sample.low_weight * share;
        to[k][p][sample.high] += sample.high_weight * share;
      }
  }
  return weights;
}

// The boxes of one image, [channels, rows, columns] -> [boxes, channels, height, width], in two products.
torch::Tensor pooled_from(const torch::Tensor& map, const torch::Tensor& rows, const torch::Tensor& columns) {
  const int64_t boxes = rows.size(0), height = rows.size(1), width = columns.size(1), channels = map.size(0);
  const torch::Tensor narrow = map.matmul(columns.flatten(0, 1).t())  // [channels, rows, boxes x width]
                                   .view({channels, map.size(1), boxes, width})
                                   .permute({2, 1, 0, 3})
                                   .reshape({boxes, map.size(1), channels * width});
  return rows.bmm(narrow).view({boxes, height, channels, width}).transpose(1, 2);
}

}  // namespace

torch::Tensor roi_align_unfused(const torch::Tensor& x, const torch::Tensor& boxes,
                                const RoiAlignOptions& options) {
  check_boxes(boxes, 5, "roi_align");
  const torch::Tensor host = boxes.to(torch::kCPU, torch::kFloat64).contiguous();
  const auto box = host.accessor<double, 2>();
  if (host.size(0) == 0) return x.new_zeros({0, x.size(1), options.height, options.width}) + 0 * x.sum();
  std::vector<std::vector<int64_t>> boxes_of(static_cast<size_t>(x.size(0)));
  for (int64_t k = 0; k < host.size(0); ++k) boxes_of.at(static_cast<size_t>(box[k][0])).push_back(k);
  torch::Tensor place =
      torch::empty({host.size(0)}, torch::kInt64);  // position of each box in the order by image
  std::vector<torch::Tensor> pooled;
  for (int64_t image = 0, sorted = 0; image < x.size(0); ++image) {
    const std::vector<int64_t>& own = boxes_of[static_cast<size_t>(image)];
    if (own.empty()) continue;
    pooled.push_back(
        pooled_from(x[image], axis_weights(host, own, 2, options, options.height, x.size(2)).to(x.options()),
                    axis_weights(host, own, 1, options, options.width, x.size(3)).to(x.options())));
    for (const int64_t k : own) place.data_ptr<int64_t>()[k] = sorted++;
  }
  return torch::cat(pooled).index_select(0, place.to(x.device()));
}

torch::Tensor roi_align(const torch::Tensor& x, const torch::Tensor& boxes, const RoiAlignOptions& options) {
  check(x.dim() == 4, "roi_align: the map has shape ", x.sizes(),
        ", must be [batch, channels, rows, columns]");
  check_boxes(boxes, 5, "roi_align");
  if (!x.device().is_cpu()) return roi_align_unfused(x, boxes, options);
  const torch::ScalarType type = x.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
  const torch::Tensor y =
      RoiAlignFunction::apply(x.to(type), boxes.detach().to(type).contiguous(), options.scale,
                              options.aligned, options.sampling, options.height, options.width);
  return y.to(x.scalar_type());
}

torch::Tensor nms(const torch::Tensor& boxes, const torch::Tensor& scores, const torch::Tensor& classes,
                  double threshold) {
  check_boxes(boxes, 4, "nms");
  const int64_t count = boxes.size(0);
  check(scores.dim() == 1 && scores.size(0) == count && (!classes.defined() || classes.size(0) == count),
        "nms: there are ", count, " boxes and ", scores.numel(), " scores");
  const torch::ScalarType type = boxes.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
  const torch::Tensor b = boxes.detach().to(torch::kCPU, type).contiguous(),
                      s = scores.detach().to(torch::kCPU, type).contiguous();
  const torch::Tensor c =
      classes.defined() ? classes.to(torch::kCPU, torch::kInt64).contiguous() : torch::Tensor();
  const int64_t* groups = c.defined() ? c.const_data_ptr<int64_t>() : nullptr;
  torch::Tensor keep = torch::empty({count}, torch::kInt64);
  const int64_t kept = type == torch::kFloat64
                           ? kernels::nms(b.const_data_ptr<double>(), s.const_data_ptr<double>(), groups,
                                          count, threshold, keep.data_ptr<int64_t>())
                           : kernels::nms(b.const_data_ptr<float>(), s.const_data_ptr<float>(), groups, count,
                                          threshold, keep.data_ptr<int64_t>());
  return keep.slice(0, 0, kept).clone().to(boxes.device());
}

namespace {

// Calls paste(mask index) for each mask, on all threads.
template <class Paste>
void each_mask(int64_t count, const Paste& paste) {
  parallel_for(count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) paste(i);
  });
}

struct Masks {
  Masks(const torch::Tensor& masks, const torch::Tensor& boxes)
      : wide(masks.scalar_type() == torch::kFloat64),
        values(masks.detach().to(torch::kCPU, wide ? torch::kFloat64 : torch::kFloat32).contiguous()),
        places(boxes.detach().to(torch::kCPU, values.scalar_type()).contiguous()) {
    check(masks.dim() == 3 && masks.size(1) == masks.size(2) && masks.size(0) == boxes.size(0),
          "paste_masks: masks have shape ", masks.sizes(), " for ", boxes.size(0),
          " boxes, must be [boxes, side, side]");
    check_boxes(boxes, 4, "paste_masks");
  }
  template <class Number>
  const Number* mask(int64_t i) const {
    return values.const_data_ptr<Number>() + i * values.size(1) * values.size(2);
  }
  template <class Number>
  const Number* box(int64_t i) const {
    return places.const_data_ptr<Number>() + 4 * i;
  }
  bool wide;
  torch::Tensor values, places;
};

}  // namespace

torch::Tensor paste_masks(const torch::Tensor& masks, const torch::Tensor& boxes, PasteRule rule,
                          int64_t height, int64_t width) {
  const Masks m(masks, boxes);
  torch::Tensor out = torch::empty({masks.size(0), height, width}, m.values.options());
  const int64_t side = masks.size(2), cells = height * width;
  each_mask(masks.size(0), [&](int64_t i) {
    if (m.wide)
      kernels::paste_mask(m.mask<double>(i), side, m.box<double>(i), rule, height, width,
                          out.data_ptr<double>() + i * cells);
    else
      kernels::paste_mask(m.mask<float>(i), side, m.box<float>(i), rule, height, width,
                          out.data_ptr<float>() + i * cells);
  });
  return out;
}

torch::Tensor paste_masks_binary(const torch::Tensor& masks, const torch::Tensor& boxes, PasteRule rule,
                                 double threshold, int64_t height, int64_t width) {
  const Masks m(masks, boxes);
  torch::Tensor out = torch::empty({masks.size(0), height, width}, torch::kUInt8);
  const int64_t side = masks.size(2), cells = height * width;
  each_mask(masks.size(0), [&](int64_t i) {
    uint8_t* to = out.data_ptr<uint8_t>() + i * cells;
    if (m.wide)
      kernels::paste_mask_binary(m.mask<double>(i), side, m.box<double>(i), rule, threshold, height, width,
                                 to);
    else
      kernels::paste_mask_binary(m.mask<float>(i), side, m.box<float>(i), rule, threshold, height, width, to);
  });
  return out;
}

}  // namespace tessera::ops
