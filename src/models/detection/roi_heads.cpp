// Box and mask heads on proposals: Mask R-CNN (He et al. 2017), Cascade R-CNN (Cai & Vasconcelos 2018).
#include <torch/nn/modules/container/modulelist.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "kernels/roi_align/roi_align.h"
#include "models/detection/detector_parts.h"

namespace tessera::models {

std::vector<int64_t> pooled_levels(const torch::Tensor& boxes, const LevelRule& rule, int64_t first_level,
                                   int64_t count) {
  const torch::Tensor host = boxes.detach().to(torch::kCPU, torch::kFloat64).contiguous();
  const double* box = host.const_data_ptr<double>();
  std::vector<int64_t> levels;
  for (int64_t i = 0; i < host.size(0); ++i, box += 4) {
    const double area = (box[2] - box[0]) * (box[3] - box[1]);
    const double level = std::floor(std::log2(std::sqrt(std::max(area, 0.0)) / rule.side + rule.inner) +
                                    rule.level + rule.outer);
    const double last = static_cast<double>(first_level + count - 1);
    levels.push_back(static_cast<int64_t>(std::clamp(level, static_cast<double>(first_level), last)) -
                     first_level);
  }
  return levels;
}

torch::Tensor pool_boxes(const std::vector<torch::Tensor>& maps, const std::vector<int64_t>& strides,
                         const torch::Tensor& boxes, const std::vector<int64_t>& levels,
                         ops::RoiAlignOptions options) {
  std::vector<torch::Tensor> parts;
  std::vector<int64_t> place(levels.size());
  int64_t done = 0;
  for (size_t level = 0; level < maps.size(); ++level) {
    std::vector<int64_t> numbers;
    for (size_t i = 0; i < levels.size(); ++i)
      if (levels[i] == static_cast<int64_t>(level)) {
        place[i] = done++;
        numbers.push_back(static_cast<int64_t>(i));
      }
    if (numbers.empty() && !(level + 1 == maps.size() && parts.empty())) continue;
    options.scale = 1.0 / static_cast<double>(strides[level]);
    parts.push_back(ops::roi_align(maps[level].permute({0, 3, 1, 2}),
                                   boxes.index_select(0, index_tensor(numbers, boxes.device())), options));
  }
  return torch::cat(parts).index_select(0, index_tensor(place, boxes.device()));
}

torch::Tensor mask_targets(const torch::Tensor& masks, const torch::Tensor& boxes,
                           const std::vector<int64_t>& matched, int64_t side, bool aligned, bool binary,
                           torch::ScalarType type) {
  const torch::Tensor host = masks.to(torch::kCPU).contiguous(),
                      places = boxes.detach().to(torch::kCPU, torch::kFloat64).contiguous();
  const int64_t height = host.size(1), width = host.size(2);
  torch::Tensor out = torch::zeros({std::ssize(matched), side, side}, torch::kFloat64);
  for (int64_t k = 0; k < std::ssize(matched); ++k) {
    const double* box = places.const_data_ptr<double>() + 4 * k;
    const uint8_t* mask = host.const_data_ptr<uint8_t>() + matched[static_cast<size_t>(k)] * height * width;
    const auto rows = kernels::roi_side(box[1], box[3], 1.0, aligned, 0, side),
               columns = kernels::roi_side(box[0], box[2], 1.0, aligned, 0, side);
    const double share = 1.0 / static_cast<double>(std::max<int64_t>(rows.count * columns.count, 1));
    double* to = out.data_ptr<double>() + k * side * side;
    for (int64_t p = 0; p < side; ++p)
      for (int64_t q = 0; q < side; ++q, ++to) {
        for (int64_t i = 0; i < rows.count; ++i) {
          const auto y = kernels::roi_sample(rows.at(p, i), height);
          const uint8_t *low = mask + y.low * width, *high = mask + y.high * width;
          for (int64_t j = 0; j < columns.count; ++j) {
            const auto x = kernels::roi_sample(columns.at(q, j), width);
            *to += y.low_weight * (x.low_weight * low[x.low] + x.high_weight * low[x.high]) +
                   y.high_weight * (x.low_weight * high[x.low] + x.high_weight * high[x.high]);
          }
        }
        *to *= share;
      }
  }
  return (binary ? (out >= 0.5) : out).to(boxes.device(), type);
}

torch::Tensor mask_loss(const torch::Tensor& logits, const torch::Tensor& channels,
                        const torch::Tensor& targets) {
  const torch::Tensor own =
      logits.gather(1, channels.view({-1, 1, 1, 1}).expand({-1, 1, logits.size(2), logits.size(3)}));
  return torch::binary_cross_entropy_with_logits(own.squeeze(1), targets);
}

Detector::RoiHeads::RoiHeads(const DetectorOptions& options, int64_t width, std::vector<int64_t> strides)
    : options_(options), strides_(std::move(strides)) {
  if (static_cast<int64_t>(strides_.size()) < options.pooled_levels)
    fail_usage("the pyramid has ", strides_.size(), " maps, RoIAlign reads ", options.pooled_levels);
  strides_.resize(static_cast<size_t>(options.pooled_levels));
  auto heads = register_module("box_head", torch::nn::ModuleList()),
       predictors = register_module("box_predictor", torch::nn::ModuleList());
  for (size_t stage = 0; stage < options.box.stages.size(); ++stage) {
    auto head = std::make_shared<torch::nn::Module>(), predictor = std::make_shared<torch::nn::Module>();
    build_box_head(*head, *predictor, width);
    heads->push_back(head);
    predictors->push_back(predictor);
  }
  if (!options.mask.on) return;
  auto masks = register_module("mask_head", torch::nn::ModuleList());
  const size_t count = options.code == DetectorCode::mmdet ? options.box.stages.size() : 1;
  for (size_t i = 0; i < count; ++i) {
    auto head = std::make_shared<torch::nn::Module>();
    build_mask_head(width, *head);
    masks->push_back(head);
  }
}

void Detector::RoiHeads::build_box_head(torch::nn::Module& owner, torch::nn::Module& predictor,
                                        int64_t width) {
  const BoxHeadOptions& box = options_.box;
  BoxHead head;
  torch::nn::ModuleList convs, fcs;
  for (int64_t i = 0; i < box.convs; ++i) {
    head.convs.push_back(NormedConv(width, width, 3, box.norm));
    convs->push_back(head.convs.back());
  }
  int64_t in = width * box.pool * box.pool;
  for (int64_t i = 0; i < box.fcs; ++i) {
    head.fcs.push_back(nn::Linear(in, box.width));
    fcs->push_back(head.fcs.back());
    in = box.width;
  }
  owner.register_module("conv", convs);
  owner.register_module("fc", fcs);
  head.scores = predictor.register_module("cls_score", nn::Linear(in, options_.classes + 1));
  const int64_t sets = box.per_class ? options_.classes + first_class() : 1;
  head.deltas = predictor.register_module("bbox_pred", nn::Linear(in, 4 * sets));
  box_heads_.push_back(head);
}

void Detector::RoiHeads::build_mask_head(int64_t width, torch::nn::Module& owner) {
  const MaskHeadOptions& mask = options_.mask;
  MaskHead head;
  torch::nn::ModuleList convs;
  int64_t in = width;
  for (int64_t i = 0; i < mask.convs; ++i) {
    head.convs.push_back(NormedConv(in, mask.width, 3, mask.norm));
    convs->push_back(head.convs.back());
    in = mask.width;
  }
  owner.register_module("conv", convs);
  const int64_t upsampled = mask.upsampled > 0 ? mask.upsampled : mask.width;
  head.up = owner.register_module("deconv", nn::DoublingConvolution(in, upsampled));
  head.predictor =
      owner.register_module("predictor", NormedConv(upsampled, options_.classes + first_class(), 1));
  mask_heads_.push_back(head);
}

torch::Tensor Detector::RoiHeads::pool(const std::vector<torch::Tensor>& maps,
                                       const std::vector<torch::Tensor>& boxes, int64_t side,
                                       int64_t sampling) const {
  std::vector<torch::Tensor> all;
  for (size_t image = 0; image < boxes.size(); ++image)
    all.push_back(torch::cat(
        {torch::full({boxes[image].size(0), 1}, static_cast<double>(image), boxes[image].options()),
         boxes[image]},
        1));
  const torch::Tensor rois = torch::cat(all);
  const auto first = static_cast<int64_t>(std::lround(std::log2(strides_[0])));
  const auto levels = pooled_levels(rois.slice(1, 1), options_.levels, first, std::ssize(strides_));
  const std::vector<torch::Tensor> read(maps.begin(), maps.begin() + std::ssize(strides_));
  return pool_boxes(read, strides_, rois, levels,
                    {.aligned = options_.aligned, .sampling = sampling, .height = side, .width = side});
}

Detector::RoiHeads::Predicted Detector::RoiHeads::run_stage(size_t stage,
                                                            const std::vector<torch::Tensor>& maps,
                                                            const std::vector<torch::Tensor>& boxes) {
  BoxHead& head = box_heads_[stage];
  torch::Tensor x = pool(maps, boxes, options_.box.pool, options_.box.sampling);
  if (is_training() && is_cascade() && options_.code != DetectorCode::mmdet) {
    const torch::Tensor still = x.detach();  // each stage adds its share to the maps' gradient
    x = still + (x - still) / static_cast<double>(box_heads_.size());
  }
  if (!head.convs.empty()) {
    x = x.permute({0, 2, 3, 1});
    for (NormedConv& conv : head.convs) x = torch::relu((*conv)(x));
    x = x.permute({0, 3, 1, 2});
  }
  x = x.flatten(1);
  for (nn::Linear& fc : head.fcs) x = torch::relu(fc->forward(x));
  const torch::Tensor logits = head.scores->forward(x), deltas = head.deltas->forward(x);
  const torch::ScalarType type = logits.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
  return {logits.to(type), deltas.to(type)};
}

torch::Tensor Detector::RoiHeads::run_masks(MaskHead& head, const torch::Tensor& pooled) {
  torch::Tensor x = pooled.permute({0, 2, 3, 1});
  for (NormedConv& conv : head.convs) x = torch::relu((*conv)(x));
  x = (*head.predictor)(torch::relu(head.up->forward(x))).permute({0, 3, 1, 2});
  return x.to(x.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32);
}

Detector::RoiHeads::Assigned Detector::RoiHeads::assign(size_t stage, const torch::Tensor& given,
                                                        const DetectionTarget& target, int64_t image,
                                                        const Chooser& choose) const {
  const BoxHeadOptions& head = options_.box;
  const double iou = head.stages[stage].iou;
  const double low = head.stages[stage].low < 0 ? iou : head.stages[stage].low;
  const MatchOptions rule{low, iou, head.weak, iou};
  const torch::Tensor truths = target.boxes.to(given.device(), given.scalar_type());
  const int64_t truth_count = truths.size(0), count = given.size(0);
  const bool is_mmdet = options_.code == DetectorCode::mmdet;
  // Ground truths are added to the proposals, so that every object is trained on at least once.
  const bool joins = stage == 0 || is_mmdet;
  torch::Tensor boxes = given;
  std::vector<int64_t> truth;
  if (is_mmdet) {
    truth.resize(static_cast<size_t>(truth_count));
    std::iota(truth.begin(), truth.end(), 0);
    const Matches matches = match_boxes(given, truths, rule);
    truth.insert(truth.end(), matches.truth.begin(), matches.truth.end());
    boxes = torch::cat({truths, given});
  } else {
    if (joins) boxes = torch::cat({given, truths});
    truth = match_boxes(boxes, truths, rule).truth;
  }
  std::vector<int64_t> order;
  if (joins) {
    const Sampled taken =
        sample(truth, head.batch, head.positives, image, "boxes " + std::to_string(stage), choose);
    order = taken.positives;
    order.insert(order.end(), taken.negatives.begin(), taken.negatives.end());
    if (options_.code == DetectorCode::torchvision) std::sort(order.begin(), order.end());
  } else {
    order.resize(truth.size());
    std::iota(order.begin(), order.end(), 0);
  }
  Assigned out;
  const torch::Tensor labels = target.labels.to(torch::kCPU).contiguous();
  for (const int64_t i : order) {
    const int64_t match = truth[static_cast<size_t>(i)];
    out.labels.push_back(match >= 0 ? labels.const_data_ptr<int64_t>()[match] : options_.classes);
    out.matched.push_back(std::max<int64_t>(match, 0));
    out.added.push_back(joins && (is_mmdet ? i < truth_count : i >= count));
    out.positives += match >= 0;
  }
  out.boxes = boxes.index_select(0, index_tensor(order, boxes.device()));
  return out;
}

std::vector<torch::Tensor> Detector::RoiHeads::refine(size_t stage, const Predicted& predicted,
                                                      const std::vector<torch::Tensor>& boxes,
                                                      const std::vector<Extent>& images) const {
  const torch::NoGradGuard no_grad;
  torch::Tensor deltas = predicted.deltas.detach();
  if (options_.box.per_class) {  // the deltas of the most likely class
    const torch::Tensor best =
        predicted.logits.slice(1, first_class(), first_class() + options_.classes).argmax(1) + first_class();
    deltas = by_class(deltas).gather(1, best.view({-1, 1, 1}).expand({-1, 1, 4})).squeeze(1);
  }
  std::vector<torch::Tensor> refined;
  int64_t at = 0;
  for (size_t image = 0; image < boxes.size(); ++image) {
    const int64_t count = boxes[image].size(0);
    refined.push_back(clip_boxes(
        options_.box.stages[stage].coder.decode(deltas.narrow(0, at, count), boxes[image]), images[image]));
    at += count;
  }
  return refined;
}

std::string Detector::RoiHeads::name_of(const char* loss, size_t stage) const {
  return is_cascade() ? loss + ("_" + std::to_string(stage + 1)) : loss;
}

void Detector::RoiHeads::add_box_losses(NamedLosses& losses, size_t stage, const Predicted& predicted,
                                        const std::vector<Assigned>& assigned,
                                        const std::vector<DetectionTarget>& targets) const {
  const BoxStage& settings = options_.box.stages[stage];
  const torch::Device device = predicted.logits.device();
  std::vector<int64_t> wanted, positive, channel;
  std::vector<torch::Tensor> goals;
  int64_t at = 0;
  for (size_t image = 0; image < assigned.size(); ++image) {
    const Assigned& a = assigned[image];
    std::vector<int64_t> own, truth;
    for (size_t i = 0; i < a.labels.size(); ++i, ++at) {
      const bool background = a.labels[i] == options_.classes;
      wanted.push_back(!background                 ? a.labels[i] + first_class()
                       : options_.background_first ? 0
                                                   : options_.classes);
      if (background) continue;
      positive.push_back(at);
      channel.push_back(options_.box.per_class ? a.labels[i] + first_class() : 0);
      own.push_back(static_cast<int64_t>(i));
      truth.push_back(a.matched[i]);
    }
    if (own.empty()) continue;
    goals.push_back(settings.coder.encode(
        a.boxes.index_select(0, index_tensor(own, device)),
        targets[image].boxes.to(device, a.boxes.scalar_type()).index_select(0, index_tensor(truth, device))));
  }
  const torch::Tensor scores = at > 0
                                   ? torch::cross_entropy_loss(predicted.logits, index_tensor(wanted, device))
                                   : 0 * predicted.logits.sum();
  torch::Tensor location = 0 * predicted.deltas.sum();
  if (!positive.empty()) {
    const torch::Tensor rows = by_class(predicted.deltas).index_select(0, index_tensor(positive, device));
    const torch::Tensor own =
        rows.gather(1, index_tensor(channel, device).view({-1, 1, 1}).expand({-1, 1, 4})).squeeze(1);
    location = location + smooth_l1_sum(own, torch::cat(goals), settings.beta) / static_cast<double>(at);
  }
  losses.emplace_back(name_of("class", stage), scores * settings.weight);
  losses.emplace_back(name_of("box", stage), location * settings.weight);
}

torch::Tensor Detector::RoiHeads::mask_losses(size_t head, const std::vector<torch::Tensor>& maps,
                                              const std::vector<Assigned>& assigned,
                                              const std::vector<DetectionTarget>& targets,
                                              DetectorTrace* trace) {
  std::vector<torch::Tensor> boxes, goals;
  std::vector<int64_t> channels;
  const int64_t side = 2 * options_.mask.pool;
  const bool soft = options_.code == DetectorCode::torchvision;
  for (size_t image = 0; image < assigned.size(); ++image) {
    const Assigned& a = assigned[image];
    std::vector<int64_t> own, truth;
    for (size_t i = 0; i < a.labels.size(); ++i) {
      if (a.labels[i] == options_.classes) continue;
      own.push_back(static_cast<int64_t>(i));
      truth.push_back(a.matched[i]);
      channels.push_back(a.labels[i] + first_class());
    }
    boxes.push_back(a.boxes.index_select(0, index_tensor(own, a.boxes.device())));
    if (own.empty()) continue;
    check(targets[image].masks.defined(), "the mask head needs masks, the image has only boxes");
    goals.push_back(mask_targets(targets[image].masks, boxes.back(), truth, side, options_.aligned, !soft,
                                 a.boxes.scalar_type()));
  }
  if (channels.empty()) {  // the head's parameters still get gradients
    torch::Tensor zero;
    for (const torch::Tensor& parameter : children().back()->parameters())
      zero = zero.defined() ? zero + 0 * parameter.sum() : 0 * parameter.sum();
    return zero;
  }
  const torch::Tensor logits =
      run_masks(mask_heads_[head], pool(maps, boxes, options_.mask.pool, options_.mask.sampling));
  if (trace) trace->mask_logits = logits;
  return mask_loss(logits, index_tensor(channels, logits.device()), torch::cat(goals));
}

NamedLosses Detector::RoiHeads::losses(const std::vector<torch::Tensor>& maps,
                                       const std::vector<Extent>& images,
                                       std::vector<torch::Tensor> proposals,
                                       const std::vector<DetectionTarget>& targets, const Chooser& choose,
                                       DetectorTrace* trace) {
  NamedLosses losses;
  std::vector<Assigned> first;
  for (size_t stage = 0; stage < box_heads_.size(); ++stage) {
    std::vector<Assigned> assigned;
    std::vector<torch::Tensor> boxes;
    for (size_t image = 0; image < images.size(); ++image) {
      assigned.push_back(
          assign(stage, proposals[image], targets[image], static_cast<int64_t>(image), choose));
      boxes.push_back(assigned.back().boxes);
    }
    const Predicted predicted = run_stage(stage, maps, boxes);
    add_box_losses(losses, stage, predicted, assigned, targets);
    const bool own_masks = options_.code == DetectorCode::mmdet;
    if (options_.mask.on && own_masks)
      losses.emplace_back(name_of("mask", stage), mask_losses(stage, maps, assigned, targets, trace) *
                                                      options_.box.stages[stage].weight);
    if (trace) {
      DetectorTrace::Stage& kept = trace->stages.emplace_back();
      kept.logits = predicted.logits, kept.deltas = predicted.deltas;
      for (const Assigned& a : assigned) {
        kept.boxes.push_back(a.boxes);
        kept.labels.push_back(index_tensor(a.labels, torch::kCPU));
        kept.matched.push_back(index_tensor(a.matched, torch::kCPU));
        kept.positives.push_back(a.positives);
      }
    }
    if (stage == 0) first = assigned;
    if (stage + 1 == box_heads_.size()) break;
    proposals = refine(stage, predicted, boxes, images);
    for (size_t image = 0; image < images.size(); ++image) {
      torch::Tensor& box = proposals[image];
      if (own_masks) {  // remove the ground truths that were added
        std::vector<int64_t> stay;
        for (size_t i = 0; i < assigned[image].added.size(); ++i)
          if (!assigned[image].added[i]) stay.push_back(static_cast<int64_t>(i));
        box = box.index_select(0, index_tensor(stay, box.device()));
      } else {
        box = box.index_select(0, boxes_of_size(box, 0, /*beyond=*/true));
      }
    }
  }
  if (options_.mask.on && options_.code != DetectorCode::mmdet)
    losses.emplace_back("mask", mask_losses(0, maps, first, targets, trace));
  return losses;
}

Detections Detector::RoiHeads::select(const torch::Tensor& scores, const torch::Tensor& boxes,
                                      Extent image) const {
  const BoxHeadOptions& head = options_.box;
  const torch::Tensor good = (scores > head.score).nonzero();  // [found, 2]: box, class
  torch::Tensor row = good.select(1, 0), label = good.select(1, 1);
  const torch::Tensor clipped = clip_boxes(boxes.reshape({-1, 4}), image).view(boxes.sizes());
  const torch::Tensor set = head.per_class ? label : torch::zeros_like(label);
  torch::Tensor box = clipped.index({row, set}), score = scores.index({row, label});
  torch::Tensor keep =
      head.min_side > 0 ? boxes_of_size(box, head.min_side) : torch::arange(box.size(0), label.options());
  const auto take = [&] {
    box = box.index_select(0, keep), score = score.index_select(0, keep), label = label.index_select(0, keep);
  };
  take();
  keep = ops::nms(box, score, label, head.nms);
  keep = keep.slice(0, 0, std::min(head.most, keep.size(0)));
  take();
  return {box, score, label, {}};
}

std::vector<Detections> Detector::RoiHeads::detect(const std::vector<torch::Tensor>& maps,
                                                   const std::vector<Extent>& images,
                                                   std::vector<torch::Tensor> proposals,
                                                   DetectorTrace* trace) {
  const torch::NoGradGuard no_grad;
  torch::Tensor sum;
  Predicted predicted;
  const bool of_logits = options_.code == DetectorCode::mmdet;
  for (size_t stage = 0; stage < box_heads_.size(); ++stage) {
    if (stage > 0) proposals = refine(stage - 1, predicted, proposals, images);
    predicted = run_stage(stage, maps, proposals);
    const torch::Tensor scores = of_logits ? predicted.logits : predicted.logits.softmax(1);
    sum = sum.defined() ? sum + scores : scores;
    if (!trace) continue;
    DetectorTrace::Stage& kept = trace->stages.emplace_back();
    kept.logits = predicted.logits, kept.deltas = predicted.deltas;
  }
  torch::Tensor scores = sum / static_cast<double>(box_heads_.size());
  if (of_logits) scores = scores.softmax(1);
  scores = scores.slice(1, first_class(), first_class() + options_.classes);
  std::vector<Detections> found;
  int64_t at = 0;
  for (size_t image = 0; image < images.size(); ++image) {
    const int64_t count = proposals[image].size(0);
    torch::Tensor boxes = by_class(
        options_.box.stages.back().coder.decode(predicted.deltas.narrow(0, at, count), proposals[image]));
    if (options_.box.per_class) boxes = boxes.slice(1, first_class());
    found.push_back(select(scores.narrow(0, at, count), boxes, images[image]));
    at += count;
  }
  if (options_.mask.on) add_masks(maps, found);
  return found;
}

void Detector::RoiHeads::add_masks(const std::vector<torch::Tensor>& maps, std::vector<Detections>& found) {
  std::vector<torch::Tensor> boxes, labels;
  for (const Detections& image : found) {
    boxes.push_back(image.boxes);
    labels.push_back(image.labels + first_class());
  }
  const torch::Tensor channel = torch::cat(labels);
  const int64_t side = 2 * options_.mask.pool;
  torch::Tensor masks = torch::zeros({channel.size(0), side, side}, boxes[0].options());
  if (channel.size(0) > 0) {
    const torch::Tensor pooled = pool(maps, boxes, options_.mask.pool, options_.mask.sampling);
    for (MaskHead& head : mask_heads_) {
      const torch::Tensor all = run_masks(head, pooled).sigmoid();
      masks += all.gather(1, channel.view({-1, 1, 1, 1}).expand({-1, 1, side, side})).squeeze(1);
    }
    masks /= static_cast<double>(mask_heads_.size());
  }
  int64_t at = 0;
  for (Detections& image : found) {
    image.masks = masks.narrow(0, at, image.boxes.size(0));
    at += image.boxes.size(0);
  }
}

int64_t Detector::RoiHeads::macs() const {
  const BoxHeadOptions& box = options_.box;
  int64_t total = 0;
  for (const BoxHead& head : box_heads_) {
    int64_t each = head.scores->macs() + head.deltas->macs();
    for (const NormedConv& conv : head.convs) each += box.pool * box.pool * conv->macs();
    for (const nn::Linear& fc : head.fcs) each += fc->macs();
    total += options_.rpn.after_nms_test * each;
  }
  const int64_t cells = options_.mask.pool * options_.mask.pool;
  for (const MaskHead& head : mask_heads_) {
    int64_t each = cells * head.up->macs() + 4 * cells * head.predictor->macs();
    for (const NormedConv& conv : head.convs) each += cells * conv->macs();
    total += box.most * each;
  }
  return total;
}

}  // namespace tessera::models
