#include "models/detection/glip_head.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "core/error.h"
#include "nn/boxes.h"
#include "nn/init.h"
#include "ops/roi_align.h"

namespace tessera::models {
namespace {

using torch::Tensor;

constexpr double kPadding = -1e9;
constexpr double kBoxWeight = 2;
constexpr double kInside = 0.01;  // pixels from a positive cell's centre to the nearest side of its object
constexpr int64_t kCandidates = 1000;  // cells and classes that suppression sees

Tensor centres_of(const Tensor& boxes) {
  return torch::stack({boxes.select(1, 0) + boxes.select(1, 2), boxes.select(1, 1) + boxes.select(1, 3)}, 1) /
         2;
}

// [batch, cells of all levels, channels].
Tensor cells_of_levels(const std::vector<Tensor>& levels) {
  std::vector<Tensor> cells;
  for (const Tensor& level : levels) cells.push_back(level.flatten(1, 2));
  return torch::cat(cells, 1);
}

// FCOS: sqrt(min(l, r) / max(l, r) * min(t, b) / max(t, b)) of the anchors' centres in their boxes.
Tensor centredness_of(const Tensor& anchors, const Tensor& boxes) {
  const Tensor centre = centres_of(anchors);
  const Tensor low = centre - boxes.slice(1, 0, 2), high = boxes.slice(1, 2, 4) - centre;
  return (torch::minimum(low, high) / torch::maximum(low, high)).clamp_min(0).prod(1).sqrt();
}

// The candidates of all objects, on the host.
struct Candidates {
  Tensor anchors;   // int64 [objects, candidates], over all levels
  Tensor overlaps;  // double, the same shape
  Tensor
      inside;  // double, the same shape: distance of the anchor's centre to the nearest side, below 0 outside
};

// The `nearest` anchors of each level to the centre of each object.
Candidates candidates_of(const std::vector<Tensor>& levels, const Tensor& truths, int64_t nearest) {
  std::vector<Tensor> anchors, overlaps, inside;
  int64_t first = 0;
  for (const Tensor& level : levels) {
    const Tensor centres = centres_of(level);
    const Tensor places =
        std::get<1>(torch::cdist(centres_of(truths), centres, 2, /*compute_mode=*/2)
                        .topk(std::min(nearest, level.size(0)), 1, /*largest=*/false, /*sorted=*/true));
    const Tensor own = centres.index_select(0, places.flatten()).view({places.size(0), places.size(1), 2});
    const Tensor low = own - truths.slice(1, 0, 2).unsqueeze(1),
                 high = truths.slice(1, 2, 4).unsqueeze(1) - own;
    anchors.push_back(places + first);
    overlaps.push_back(nn::pairwise_iou(truths, level).gather(1, places));
    inside.push_back(torch::minimum(low, high).amin(2));
    first += level.size(0);
  }
  return {torch::cat(anchors, 1).contiguous(), torch::cat(overlaps, 1).contiguous(),
          torch::cat(inside, 1).contiguous()};
}

// Mean plus standard deviation.
double overlap_limit(std::span<const double> overlaps) {
  const auto count = static_cast<double>(overlaps.size());
  const double mean = std::accumulate(overlaps.begin(), overlaps.end(), 0.0) / count;
  double squares = 0;
  for (const double one : overlaps) squares += (one - mean) * (one - mean);
  return mean + (count > 1 ? std::sqrt(squares / (count - 1)) : 0);
}

Tensor index_tensor(const std::vector<int64_t>& values) {
  return torch::tensor(at::ArrayRef<int64_t>(values), torch::kInt64);
}

}  // namespace

std::vector<int64_t> atss_matches(const std::vector<Tensor>& levels, const Tensor& truths, int64_t nearest) {
  int64_t anchors = 0;
  for (const Tensor& level : levels) anchors += level.size(0);
  std::vector<int64_t> owner(static_cast<size_t>(anchors), Matches::kBackground);
  if (truths.size(0) == 0) return owner;
  std::vector<double> best(owner.size(), -1);
  const Candidates candidates = candidates_of(levels, truths, nearest);
  const auto count = static_cast<size_t>(candidates.anchors.size(1));
  for (int64_t truth = 0; truth < truths.size(0); ++truth) {
    const auto row = static_cast<size_t>(truth) * count;
    const int64_t* anchor = candidates.anchors.const_data_ptr<int64_t>() + row;
    const double* inside = candidates.inside.const_data_ptr<double>() + row;
    const std::span overlaps(candidates.overlaps.const_data_ptr<double>() + row, count);
    const double limit = overlap_limit(overlaps);
    for (size_t i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>(anchor[i]);
      if (overlaps[i] < limit || inside[i] <= kInside || overlaps[i] <= best[at]) continue;
      best[at] = overlaps[i], owner[at] = truth;
    }
  }
  return owner;
}

GlipHead::GlipHead(const GlipOptions& options, std::shared_ptr<PyramidNeck> neck)
    : options_(options), neck_(register_module("neck", std::move(neck))) {
  const int64_t width = options.width, text_width = options.text_width;
  for (int64_t i = 0; i < options.layers; ++i) {
    auto holder = register_module("layers_" + std::to_string(i), std::make_shared<torch::nn::Module>());
    Layer layer;
    layer.fusion = holder->register_module(
        "b_attn", std::make_shared<GlipFusion>(width, text_width, options.inner, options.heads));
    layer.norm1 = holder->register_module("norm1", nn::LayerNorm(text_width));
    layer.attention = holder->register_module("attn", nn::Attention(text_width, options.text_heads));
    layer.norm2 = holder->register_module("norm2", nn::LayerNorm(text_width));
    layer.mlp = holder->register_module("mlp", nn::Mlp(text_width, 4 * text_width));
    layer.conv = holder->register_module("conv", NormedConv(width, width, 3, ConvNormKind::layer));
    layers_.push_back(std::move(layer));
  }
  alignment_ = register_module("alignment", std::make_shared<TokenAlignment>(width, text_width));
  deltas_ = register_module("bbox_pred", NormedConv(width, 4, 1));
  centredness_ = register_module("centerness", NormedConv(width, 1, 1));
  scales_ = register_parameter("scales", nn::ones({std::ssize(neck_->strides())}));
}

void GlipHead::initialise(uint64_t seed) {
  nn::initialise(*this, seed, [](const std::string& name, const Tensor& parameter, const nn::Filler& fill) {
    if (parameter.dim() < 2) return;
    if (name.starts_with("bbox_pred") || name.starts_with("centerness"))
      fill.normal(0.01);
    else if (parameter.dim() == 2)
      fill.xavier_uniform();
    else
      fill.fan_in_uniform(parameter.numel() / parameter.size(0));
  });
  for (size_t i = 0; i < layers_.size(); ++i) layers_[i].fusion->initialise(seed + i);
  alignment_->initialise(seed);
}

GlipHead::Output GlipHead::forward(const std::vector<Tensor>& maps, const Tensor& given, const Tensor& mask) {
  std::vector<Tensor> last;
  for (const Tensor& map : maps) last.push_back(map.permute({0, 2, 3, 1}));
  std::vector<Tensor> pyramid = neck_->forward(last);
  const Tensor tokens = fuse(pyramid, given, mask);
  Output out;
  std::vector<Tensor> deltas, centredness;
  const std::vector<int64_t> strides = neck_->strides();
  for (size_t i = 0; i < pyramid.size(); ++i) {
    deltas.push_back(deltas_(pyramid[i]).flatten(1, 2) * scales_[static_cast<int64_t>(i)]);
    centredness.push_back(centredness_(pyramid[i]).flatten(1));
    const AnchorOptions anchors{
        .sizes = {{options_.anchor_side * static_cast<double>(strides[i])}}, .ratios = {1}, .offset = 0.5};
    out.anchors.push_back(anchors.anchors(0, {pyramid[i].size(1), pyramid[i].size(2)},
                                          {strides[i], strides[i]}, torch::kFloat64));
  }
  const auto wide = [](const Tensor& x) {
    return x.scalar_type() == torch::kFloat64 ? x : x.to(torch::kFloat32);
  };
  out.scores = alignment_->forward(cells_of_levels(pyramid), tokens);
  out.deltas = wide(torch::cat(deltas, 1)), out.centredness = wide(torch::cat(centredness, 1));
  return out;
}

// Runs the layers over the pyramid in place, and returns the tokens.
Tensor GlipHead::fuse(std::vector<Tensor>& pyramid, const Tensor& given, const Tensor& mask) {
  Tensor tokens = given;
  nn::AttentionExtras extras;
  extras.bias = torch::zeros({mask.size(0), 1, 1, mask.size(1)}, tokens.options().requires_grad(false))
                    .masked_fill((mask == 0).view({mask.size(0), 1, 1, -1}), kPadding);
  for (Layer& layer : layers_) {
    const auto [cells, read] = layer.fusion->forward(cells_of_levels(pyramid), tokens, mask);
    const Tensor own = layer.attention->forward(layer.norm1->before_linear(read), extras, {.residual = read});
    tokens = layer.mlp->forward(layer.norm2->before_linear(own), {.residual = own});
    int64_t first = 0;
    for (Tensor& level : pyramid) {
      const int64_t rows = level.size(1), columns = level.size(2);
      level = torch::relu(
          layer.conv(cells.slice(1, first, first + rows * columns).unflatten(1, {rows, columns})));
      first += rows * columns;
    }
  }
  return tokens;
}

GlipHead::Losses GlipHead::losses(const Output& output, const std::vector<GlipTruth>& truths,
                                  const TokenSpans& classes, const Tensor& mask) const {
  const Tensor all = torch::cat(output.anchors);
  const auto options = output.deltas.options().requires_grad(false);
  Losses out{.tokens = {}, .boxes = torch::zeros({}, options), .centredness = torch::zeros({}, options)};
  const int64_t cells_of_image = output.scores.size(1), tokens = output.scores.size(2);
  std::vector<int64_t> aims;  // places of the scores that should be 1
  for (size_t image = 0; image < truths.size(); ++image) {
    const auto row = static_cast<int64_t>(image);
    const Tensor truth = truths[image].boxes.to(torch::kFloat64),
                 labels = truths[image].labels.to(torch::kInt64).contiguous();
    const std::vector<int64_t> owner = atss_matches(output.anchors, truth, options_.nearest);
    std::vector<int64_t> cells, objects;
    for (size_t i = 0; i < owner.size(); ++i) {
      if (owner[i] < 0) continue;
      const auto cell = static_cast<int64_t>(i);
      cells.push_back(cell), objects.push_back(owner[i]);
      const int64_t label = labels.const_data_ptr<int64_t>()[owner[i]];
      for (const int64_t token : classes.at(static_cast<size_t>(label)))
        aims.push_back((row * cells_of_image + cell) * tokens + token);
    }
    if (cells.empty()) continue;
    const Tensor places = index_tensor(cells), wanted = truth.index_select(0, index_tensor(objects)),
                 anchors = all.index_select(0, places), centredness = centredness_of(anchors, wanted);
    out.positives += static_cast<double>(cells.size()), out.weight += centredness.sum().item<double>();
    const Tensor share = centredness.to(options), device_places = places.to(options.device());
    const Tensor boxes =
        coder_.decode(output.deltas[row].index_select(0, device_places), anchors.to(options));
    out.boxes = out.boxes + (nn::box_loss(boxes, wanted.to(options), nn::BoxLoss::generalised) * share).sum();
    out.centredness = out.centredness + at::binary_cross_entropy_with_logits(
                                            output.centredness[row].index_select(0, device_places), share, {},
                                            {}, at::Reduction::Sum);
  }
  out.boxes = out.boxes * kBoxWeight;
  const Tensor targets = torch::zeros({output.scores.numel()}, output.scores.options().requires_grad(false));
  if (!aims.empty()) targets.index_fill_(0, index_tensor(aims).to(targets.device()), 1);
  out.tokens = token_focal_loss(TokenLoss::binary, output.scores, targets.view(output.scores.sizes()), mask,
                                options_.alpha, options_.gamma);
  return out;
}

GlipHead::Found GlipHead::detect(const Output& output, int64_t index, const TokenSpans& classes, Extent image,
                                 double least, double overlap, int64_t most) const {
  // Geometric mean of a class' probability and the centredness.
  const Tensor scores =
      (class_probabilities(output.scores[index].sigmoid(), classes, options_.vote).to(torch::kFloat64) *
       output.centredness[index].sigmoid().to(torch::kFloat64).unsqueeze(1))
          .sqrt()
          .to(torch::kCPU)
          .flatten();
  const auto [best, order] = scores.topk(std::min(kCandidates, scores.size(0)), 0);
  const Tensor kept = order.index_select(0, (best >= least).nonzero().squeeze(1));
  const auto count = static_cast<int64_t>(classes.size());
  const Tensor cells = kept.div(count, "floor"), labels = kept.remainder(count);
  const Tensor boxes =
      clip_boxes(coder_.decode(output.deltas[index].to(torch::kCPU, torch::kFloat64).index_select(0, cells),
                               torch::cat(output.anchors).index_select(0, cells)),
                 image);
  const Tensor own = scores.index_select(0, kept);
  Tensor stay = ops::nms(boxes, own, labels, overlap);
  stay = stay.slice(0, 0, std::min(most, stay.size(0)));
  return {boxes.index_select(0, stay), own.index_select(0, stay), labels.index_select(0, stay)};
}

int64_t GlipHead::macs(Extent image, int64_t tokens) const {
  int64_t cells = 0;
  for (const int64_t stride : neck_->strides()) cells += cells_of(image, stride);
  int64_t total =
      neck_->macs(image) + alignment_->macs(cells, tokens) + cells * (deltas_->macs() + centredness_->macs());
  for (const Layer& layer : layers_)
    total += layer.fusion->macs(cells, tokens) + layer.attention->macs(tokens) + tokens * layer.mlp->macs() +
             cells * layer.conv->macs();
  return total;
}

}  // namespace tessera::models
