// The region proposal network (Ren et al. 2015) on a pyramid.
#include <torch/nn/modules/container/modulelist.h>

#include <algorithm>

#include "core/error.h"
#include "models/detection/detector_parts.h"

namespace tessera::models {

torch::Tensor smooth_l1_sum(const torch::Tensor& got, const torch::Tensor& want, double beta) {
  const torch::Tensor apart = (got - want).abs();
  if (beta <= 0) return apart.sum();
  return torch::where(apart < beta, 0.5 * apart.square() / beta, apart - 0.5 * beta).sum();
}

torch::Tensor index_tensor(const std::vector<int64_t>& numbers, const torch::Device& device) {
  return torch::tensor(at::ArrayRef<int64_t>(numbers), torch::kInt64).to(device);
}

Sampled sample(const std::vector<int64_t>& truth, int64_t batch, double positives, int64_t image,
               const std::string& purpose, const Chooser& choose) {
  Sampled all;
  for (int64_t i = 0; i < std::ssize(truth); ++i) {
    if (truth[static_cast<size_t>(i)] >= 0) all.positives.push_back(i);
    if (truth[static_cast<size_t>(i)] == Matches::kBackground) all.negatives.push_back(i);
  }
  const auto most = static_cast<int64_t>(static_cast<double>(batch) * positives);
  const int64_t taken = std::min<int64_t>(std::ssize(all.positives), most);
  const int64_t others = std::min<int64_t>(std::ssize(all.negatives), batch - taken);
  return {choose(all.positives, taken, image, purpose + " positive"),
          choose(all.negatives, others, image, purpose + " negative")};
}

Detector::Rpn::Rpn(const DetectorOptions& options, int64_t width, std::vector<int64_t> strides)
    : options_(options), strides_(std::move(strides)) {
  const RpnOptions& rpn = options.rpn;
  if (rpn.anchors.sizes.size() != strides_.size())
    fail_usage("the pyramid has ", strides_.size(), " maps, but there are anchors of ",
               rpn.anchors.sizes.size(), " sizes: there must be a list of sizes for each map");
  const int64_t count = rpn.anchors.per_cell(0);
  torch::nn::ModuleList convs;
  for (int64_t i = 0; i < rpn.convs; ++i) {
    convs_.push_back(NormedConv(width, width, 3));
    convs->push_back(convs_.back());
  }
  register_module("conv", convs);
  objectness_ = register_module("objectness", NormedConv(width, count, 1));
  deltas_ = register_module("deltas", NormedConv(width, 4 * count, 1));
}

Detector::Rpn::Output Detector::Rpn::forward(const std::vector<torch::Tensor>& maps, Extent padded,
                                             DetectorTrace* trace) {
  Output out;
  for (size_t level = 0; level < maps.size(); ++level) {
    torch::Tensor x = maps[level];
    for (NormedConv& conv : convs_) x = torch::relu((*conv)(x));
    const torch::Tensor logits = (*objectness_)(x), deltas = (*deltas_)(x);
    const torch::ScalarType type = x.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
    out.anchors.push_back(
        anchors_of(static_cast<int64_t>(level), {x.size(1), x.size(2)}, padded, type).to(x.device()));
    out.logits.push_back(logits.reshape({x.size(0), -1}).to(type));
    out.deltas.push_back(deltas.reshape({x.size(0), -1, 4}).to(type));
    if (!trace) continue;
    trace->objectness.push_back(logits);
    trace->deltas.push_back(deltas);
  }
  return out;
}

torch::Tensor Detector::Rpn::anchors_of(int64_t level, Extent grid, Extent padded,
                                        torch::ScalarType type) const {
  Extent stride{strides_[static_cast<size_t>(level)], strides_[static_cast<size_t>(level)]};
  if (options_.code == DetectorCode::torchvision)
    stride = {padded.height / grid.height, padded.width / grid.width};
  return options_.rpn.anchors.anchors(level, grid, stride, type);
}

namespace {

// Returns the indices of the anchors inside the image.
std::vector<int64_t> inside_image(const torch::Tensor& anchors, Extent image) {
  const torch::Tensor inside = (anchors.select(1, 0) >= 0)
                                   .logical_and(anchors.select(1, 1) >= 0)
                                   .logical_and(anchors.select(1, 2) < static_cast<double>(image.width))
                                   .logical_and(anchors.select(1, 3) < static_cast<double>(image.height));
  const torch::Tensor numbers = inside.nonzero().squeeze(1).to(torch::kCPU).contiguous();
  return {numbers.const_data_ptr<int64_t>(), numbers.const_data_ptr<int64_t>() + numbers.numel()};
}

}  // namespace

Matches Detector::Rpn::match(const torch::Tensor& anchors, const torch::Tensor& truths, Extent image) const {
  const RpnOptions& rpn = options_.rpn;
  if (!rpn.inside_only) return match_boxes(anchors, truths, rpn.match);
  const std::vector<int64_t> inside = inside_image(anchors, image);
  const Matches found =
      match_boxes(anchors.index_select(0, index_tensor(inside, anchors.device())), truths, rpn.match);
  Matches all{std::vector<int64_t>(static_cast<size_t>(anchors.size(0)), Matches::kBetween),
              std::vector<int64_t>(static_cast<size_t>(anchors.size(0)), 0)};
  for (size_t i = 0; i < inside.size(); ++i) all.truth[static_cast<size_t>(inside[i])] = found.truth[i];
  return all;
}

AnchorMatches Detector::Rpn::matches(Extent padded, Extent image, const torch::Tensor& truths) const {
  std::vector<torch::Tensor> levels;
  for (size_t level = 0; level < strides_.size(); ++level)
    levels.push_back(anchors_of(
        static_cast<int64_t>(level),
        {cells_of({padded.height, 1}, strides_[level]), cells_of({1, padded.width}, strides_[level])}, padded,
        torch::kFloat64));
  const torch::Tensor anchors = torch::cat(levels);
  const Matches found = match(anchors, truths.to(torch::kFloat64), image);
  AnchorMatches out{.anchors = {}, .truth = {}, .all = anchors.size(0)};
  std::vector<int64_t> chosen;
  for (int64_t i = 0; i < std::ssize(found.truth); ++i)
    if (const int64_t truth = found.truth[static_cast<size_t>(i)]; truth >= 0)
      chosen.push_back(i), out.truth.push_back(truth);
  out.anchors = anchors.index_select(0, index_tensor(chosen, torch::kCPU));
  return out;
}

NamedLosses Detector::Rpn::losses(const Output& output, const std::vector<Extent>& images,
                                  const std::vector<DetectionTarget>& targets, const Chooser& choose,
                                  DetectorTrace* trace) const {
  const RpnOptions& rpn = options_.rpn;
  const torch::Tensor anchors = torch::cat(output.anchors), logits = torch::cat(output.logits, 1),
                      deltas = torch::cat(output.deltas, 1);
  torch::Tensor objectness = 0 * logits.sum(), location = 0 * deltas.sum();
  int64_t counted = 0;
  for (size_t image = 0; image < images.size(); ++image) {
    const auto number = static_cast<int64_t>(image);
    const torch::Tensor truths = targets[image].boxes.to(anchors.device(), anchors.scalar_type());
    const Matches matches = match(anchors, truths, images[image]);
    const Sampled taken = sample(matches.truth, rpn.batch, rpn.positives, number, "anchors", choose);
    const torch::Tensor positive = index_tensor(taken.positives, anchors.device());
    std::vector<int64_t> both = taken.positives, truth_of;
    both.insert(both.end(), taken.negatives.begin(), taken.negatives.end());
    torch::Tensor wanted = torch::zeros({std::ssize(both)}, logits.options().requires_grad(false));
    wanted.slice(0, 0, std::ssize(taken.positives)).fill_(1);
    objectness = objectness + torch::binary_cross_entropy_with_logits(
                                  logits[number].index_select(0, index_tensor(both, anchors.device())),
                                  wanted, {}, {}, at::Reduction::Sum);
    if (!taken.positives.empty()) {
      for (const int64_t i : taken.positives) truth_of.push_back(matches.truth[static_cast<size_t>(i)]);
      const torch::Tensor goal =
          rpn.coder.encode(anchors.index_select(0, positive),
                           truths.index_select(0, index_tensor(truth_of, anchors.device())));
      location = location + smooth_l1_sum(deltas[number].index_select(0, positive), goal, rpn.beta);
    }
    counted += std::ssize(taken.negatives) + std::ssize(taken.positives);
    // mmdet counts an image without positives as having one.
    if (options_.code == DetectorCode::mmdet && taken.positives.empty()) ++counted;
    if (!trace) continue;
    trace->positive_anchors.push_back(taken.positives);
    trace->negative_anchors.push_back(taken.negatives);
  }
  if (options_.code == DetectorCode::detectron2) counted = rpn.batch * std::ssize(images);
  const double share = 1.0 / static_cast<double>(std::max<int64_t>(counted, 1));
  return {{"rpn_objectness", objectness * share}, {"rpn_box", location * share}};
}

std::vector<torch::Tensor> Detector::Rpn::proposals(const Output& output, const std::vector<Extent>& images,
                                                    DetectorTrace* trace) const {
  const torch::NoGradGuard no_grad;
  const RpnOptions& rpn = options_.rpn;
  const int64_t before = is_training() ? rpn.before_nms_train : rpn.before_nms_test,
                after = is_training() ? rpn.after_nms_train : rpn.after_nms_test;
  std::vector<torch::Tensor> all;
  for (size_t image = 0; image < images.size(); ++image) {
    std::vector<torch::Tensor> boxes, logits, levels;
    for (size_t level = 0; level < output.anchors.size(); ++level) {
      const torch::Tensor scores = output.logits[level][static_cast<int64_t>(image)];
      const auto [best, index] = scores.topk(std::min(before, scores.size(0)));
      boxes.push_back(
          rpn.coder.decode(output.deltas[level][static_cast<int64_t>(image)].index_select(0, index),
                           output.anchors[level].index_select(0, index)));
      logits.push_back(best);
      levels.push_back(torch::full_like(index, static_cast<int64_t>(level)));
    }
    torch::Tensor box = clip_boxes(torch::cat(boxes), images[image]), logit = torch::cat(logits),
                  level = torch::cat(levels);
    torch::Tensor keep = boxes_of_size(box, rpn.min_side, /*beyond=*/rpn.min_side <= 0);
    const auto take = [&] {
      box = box.index_select(0, keep), logit = logit.index_select(0, keep),
      level = level.index_select(0, keep);
    };
    take();
    keep = ops::nms(box, logit, level, rpn.nms);
    keep = keep.slice(0, 0, std::min(after, keep.size(0)));
    take();
    all.push_back(box);
    if (!trace) continue;
    trace->proposals.push_back(box);
    trace->proposal_logits.push_back(logit);
  }
  return all;
}

int64_t Detector::Rpn::macs(Extent image) const {
  int64_t cells = 0, weights = objectness_->macs() + deltas_->macs();
  for (const int64_t stride : strides_) cells += cells_of(image, stride);
  for (const NormedConv& conv : convs_) weights += conv->macs();
  return cells * weights;
}

}  // namespace tessera::models
