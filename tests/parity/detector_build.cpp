// The whole detectors of components/det_*, from what their goldens' configs say.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "tests/parity/detector_case.h"
#include "tests/parity/model_case.h"
#include "weights/name_tables.h"

namespace tessera::parity {
namespace {

using Json = nlohmann::json;
using models::Detector;
using models::DetectorCode;
using models::Extent;

// torchvision's test body: convolutions with ReLU, every map goes on to the neck.
class PlainBody : public torch::nn::Module {
 public:
  explicit PlainBody(const std::vector<int64_t>& widths) {
    int64_t in = 3;
    for (size_t i = 0; i < widths.size(); ++i) {
      const int64_t kernel = i == 0 ? 7 : 3;
      auto conv = register_module(text("conv", i + 1), std::make_shared<torch::nn::Module>());
      weights_.push_back(conv->register_parameter("weight", torch::zeros({widths[i], in, kernel, kernel})));
      biases_.push_back(conv->register_parameter("bias", torch::zeros({widths[i]})));
      in = widths[i];
    }
  }
  std::vector<torch::Tensor> maps(const torch::Tensor& images) const {
    std::vector<torch::Tensor> all;
    torch::Tensor x = images;
    for (size_t i = 0; i < weights_.size(); ++i) {
      const int64_t stride = i == 0 ? 4 : 2, padding = i == 0 ? 3 : 1;
      x = torch::relu(torch::conv2d(x, weights_[i], biases_[i], stride, padding));
      all.push_back(x);
    }
    return all;
  }

 private:
  std::vector<torch::Tensor> weights_, biases_;
};

models::BoxCoder coder_of(const Json& stds, bool both_sides) {
  models::BoxCoder coder{.both_sides = both_sides};
  for (size_t i = 0; i < 4; ++i) coder.weights[i] = 1 / stds[i].get<double>();
  return coder;
}

models::DetectorOptions torchvision_options(const Json& config) {
  models::DetectorOptions o =
      models::published(DetectorCode::torchvision, config.at("num_classes").get<int64_t>() - 1);
  const Json &rpn = config.at("rpn"), &box = config.at("box"), &mask = config.at("mask");
  o.rpn.anchors.sizes = config.at("anchor_sizes").get<std::vector<std::vector<double>>>();
  o.rpn.anchors.ratios = config.at("aspect_ratios").get<std::vector<double>>();
  o.rpn.match.high = rpn.at("fg_iou"), o.rpn.match.low = rpn.at("bg_iou");
  o.rpn.batch = rpn.at("batch_size_per_image"), o.rpn.positives = rpn.at("positive_fraction");
  o.rpn.before_nms_train = rpn.at("pre_nms_top_n").at("train"),
  o.rpn.before_nms_test = rpn.at("pre_nms_top_n").at("test");
  o.rpn.after_nms_train = rpn.at("post_nms_top_n").at("train"),
  o.rpn.after_nms_test = rpn.at("post_nms_top_n").at("test");
  o.rpn.nms = rpn.at("nms_thresh"), o.rpn.min_side = rpn.at("min_size");
  o.box.pool = box.at("pool"), o.box.sampling = box.at("sampling_ratio"), o.box.width = box.at("fc");
  o.box.stages[0].iou = box.at("fg_iou"), o.box.stages[0].low = box.at("bg_iou");
  o.box.stages[0].coder.weights = box.at("weights").get<std::array<double, 4>>();
  o.box.batch = box.at("batch_size_per_image"), o.box.positives = box.at("positive_fraction");
  o.box.score = box.at("score_thresh"), o.box.nms = box.at("nms_thresh"),
  o.box.most = box.at("detections_per_img");
  o.mask.pool = mask.at("pool"), o.mask.sampling = mask.at("sampling_ratio");
  o.mask.width = mask.at("conv"), o.mask.upsampled = mask.at("deconv");
  o.pooled_levels = std::ssize(config.at("body"));
  return o;
}

models::DetectorOptions detectron2_options(const Json& config) {
  const Json &rpn = config.at("rpn"), &box = config.at("box"), &mask = config.at("mask");
  const size_t stages = box.at("ious").size();
  models::DetectorOptions o =
      models::published(DetectorCode::detectron2, config.at("num_classes"), stages > 1);
  o.rpn.anchors.sizes = rpn.at("anchor_sizes").get<std::vector<std::vector<double>>>();
  o.rpn.anchors.ratios = rpn.at("aspect_ratios").get<std::vector<double>>();
  o.rpn.convs = std::ssize(rpn.at("conv_dims"));
  o.rpn.match.low = rpn.at("iou")[0], o.rpn.match.high = rpn.at("iou")[1];
  o.rpn.batch = rpn.at("batch_size_per_image"), o.rpn.positives = rpn.at("positive_fraction");
  o.rpn.before_nms_train = rpn.at("pre_nms_topk").at("train"),
  o.rpn.before_nms_test = rpn.at("pre_nms_topk").at("test");
  o.rpn.after_nms_train = rpn.at("post_nms_topk").at("train"),
  o.rpn.after_nms_test = rpn.at("post_nms_topk").at("test");
  o.rpn.nms = rpn.at("nms_thresh");
  const auto norm = [](const Json& of) {
    return of.value("norm", "") == "LN" ? models::ConvNormKind::layer : models::ConvNormKind::none;
  };
  o.box.pool = box.at("pool"), o.box.sampling = box.at("sampling_ratio");
  o.levels.side = box.at("canonical_box_size");
  o.box.convs = box.at("conv"), o.box.fcs = 1, o.box.width = box.at("fc"), o.box.norm = norm(box);
  o.box.batch = box.at("batch_size_per_image"), o.box.positives = box.at("positive_fraction");
  o.box.stages.resize(stages);
  for (size_t i = 0; i < stages; ++i) {
    o.box.stages[i].coder.weights = box.at("weights")[i].get<std::array<double, 4>>();
    o.box.stages[i].iou = box.at("ious")[i];
  }
  o.box.per_class = !box.at("cls_agnostic").get<bool>();
  o.box.score = box.at("score_thresh"), o.box.nms = box.at("nms_thresh"), o.box.most = box.at("topk");
  o.mask.pool = mask.at("pool"), o.mask.convs = mask.at("convs"), o.mask.norm = norm(mask);
  o.mask.width = config.at("out_channels");
  return o;
}

double beta_of(const Json& loss) { return loss.at("type") == "SmoothL1Loss" ? loss.value("beta", 1.0) : 0.0; }

models::DetectorOptions mmdet_options(const Json& config) {
  const Json &model = config.at("model"), &rpn = model.at("rpn_head"), &roi = model.at("roi_head");
  const bool cascade = roi.at("bbox_head").is_array();
  const Json heads = cascade ? roi.at("bbox_head") : Json::array({roi.at("bbox_head")});
  const Json& train = model.at("train_cfg");
  const Json rcnn = cascade ? train.at("rcnn") : Json::array({train.at("rcnn")});
  models::DetectorOptions o = models::published(DetectorCode::mmdet, heads[0].at("num_classes"), cascade);
  const Json& anchors = rpn.at("anchor_generator");
  o.rpn.anchors.ratios = anchors.at("ratios").get<std::vector<double>>();
  o.rpn.anchors.sizes.clear();
  for (const Json& stride : anchors.at("strides")) {
    o.rpn.anchors.sizes.emplace_back();
    for (const Json& scale : anchors.at("scales"))
      o.rpn.anchors.sizes.back().push_back(stride.get<double>() * scale.get<double>());
  }
  o.rpn.coder = coder_of(rpn.at("bbox_coder").at("target_stds"), true);
  o.rpn.beta = beta_of(rpn.at("loss_bbox"));
  const auto match = [](const Json& assigner) {
    return models::MatchOptions{
        assigner.at("neg_iou_thr"), assigner.at("pos_iou_thr"),
        assigner.at("match_low_quality").get<bool>() ? models::WeakMatches::given : models::WeakMatches::none,
        assigner.at("min_pos_iou")};
  };
  const Json& of_rpn = train.at("rpn");
  o.rpn.match = match(of_rpn.at("assigner"));
  o.rpn.batch = of_rpn.at("sampler").at("num"), o.rpn.positives = of_rpn.at("sampler").at("pos_fraction");
  o.rpn.inside_only = of_rpn.at("allowed_border").get<int64_t>() >= 0;
  const Json &proposals = train.at("rpn_proposal"), &test = model.at("test_cfg");
  o.rpn.before_nms_train = proposals.at("nms_pre"), o.rpn.after_nms_train = proposals.at("max_per_img");
  o.rpn.before_nms_test = test.at("rpn").at("nms_pre"),
  o.rpn.after_nms_test = test.at("rpn").at("max_per_img");
  o.rpn.nms = proposals.at("nms").at("iou_threshold");
  const Json& pool = roi.at("bbox_roi_extractor");
  o.levels.side = pool.at("finest_scale");
  o.box.pool = pool.at("roi_layer").at("output_size"),
  o.box.sampling = pool.at("roi_layer").at("sampling_ratio");
  o.box.width = heads[0].at("fc_out_channels");
  o.box.per_class = !heads[0].at("reg_class_agnostic").get<bool>();
  o.box.stages.resize(heads.size());
  for (size_t i = 0; i < heads.size(); ++i) {
    o.box.stages[i].coder = coder_of(heads[i].at("bbox_coder").at("target_stds"), true);
    o.box.stages[i].iou = rcnn[i].at("assigner").at("pos_iou_thr");
    o.box.stages[i].low = rcnn[i].at("assigner").at("neg_iou_thr");
    o.box.stages[i].beta = beta_of(heads[i].at("loss_bbox"));
    if (cascade) o.box.stages[i].weight = roi.at("stage_loss_weights")[i];
  }
  o.box.weak = match(rcnn[0].at("assigner")).weak;
  o.box.batch = rcnn[0].at("sampler").at("num"), o.box.positives = rcnn[0].at("sampler").at("pos_fraction");
  const Json& last = test.at("rcnn");
  o.box.score = last.at("score_thr"), o.box.nms = last.at("nms").at("iou_threshold"),
  o.box.most = last.at("max_per_img");
  const Json& mask = roi.at("mask_head");
  o.mask.pool = roi.at("mask_roi_extractor").at("roi_layer").at("output_size");
  o.mask.sampling = roi.at("mask_roi_extractor").at("roi_layer").at("sampling_ratio");
  o.mask.convs = mask.at("num_convs"), o.mask.width = mask.at("conv_out_channels");
  return o;
}

std::shared_ptr<models::Fpn> fpn_of(const std::vector<int64_t>& in, int64_t width) {
  models::FpnOptions options{.in = in, .width = width};
  for (size_t i = 0; i < in.size(); ++i) options.strides.push_back(int64_t{4} << i);
  return std::make_shared<models::Fpn>(options);
}

Value swin_settings(const Json& swin, int64_t side) {
  Value::Array dims, depths, heads;
  for (size_t i = 0; i < swin.at("depths").size(); ++i) {
    dims.emplace_back(swin.at("embed_dims").get<int64_t>() << i);
    depths.emplace_back(swin.at("depths")[i].get<int64_t>());
    heads.emplace_back(swin.at("num_heads")[i].get<int64_t>());
  }
  return Value(Value::Table{{"dims", dims},
                            {"depths", depths},
                            {"heads", heads},
                            {"window_size", swin.at("window_size").get<int64_t>()},
                            {"mlp_ratio", swin.at("mlp_ratio").get<double>()},
                            {"image_size", side},
                            {"form", "mmseg"},
                            {"stage_norms", true},
                            {"classes", 0}});
}

// Normalised images of their own size, in the right bottom filled up with zeros.
torch::Tensor padded_batch(const std::vector<torch::Tensor>& images, Extent size) {
  std::vector<torch::Tensor> all;
  for (const torch::Tensor& image : images)
    all.push_back(
        torch::constant_pad_nd(image, {0, size.width - image.size(2), 0, size.height - image.size(1)}));
  return torch::stack(all);
}

torch::Tensor channels(const Json& values, const torch::Tensor& like) {
  return torch::tensor(at::ArrayRef<double>(values.get<std::vector<double>>()), torch::kFloat64)
      .to(like.scalar_type())
      .view({3, 1, 1});
}

models::DetectionTarget target_of(const SubCase& at, int64_t image, int64_t first_label) {
  const std::string start = text("input.targets.", image, ".");
  return {at.tensor(start + "const_boxes"), at.tensor(start + "labels") - first_label,
          at.tensor(start + "masks")};
}

}  // namespace

std::string detector_name(const std::string& published) {
  const std::string ours = train::our_name(published, "detect");
  for (const char* part : {"neck.", "rpn.", "roi_heads."})
    if (ours.starts_with(part)) return ours;
  return "";
}

WholeDetector build_detector(const Golden& golden) {
  const Json& config = golden.config();
  WholeDetector whole;
  if (config.contains("body")) {
    const auto body = std::make_shared<PlainBody>(numbers(config.at("body")));
    whole.body = body, whole.maps = [body](const torch::Tensor& x) { return body->maps(x); };
    whole.prefix = "backbone.body.", whole.rename = [](const std::string& name) { return name; };
    models::DetectorOptions options = torchvision_options(config);
    options.mask.convs = 0;
    while (golden.has(text("eval/param.roi_heads.mask_head.", options.mask.convs, ".0.weight")))
      ++options.mask.convs;
    whole.detector =
        std::make_shared<Detector>(options, fpn_of(numbers(config.at("body")), config.at("out_channels")));
  } else if (config.contains("vit")) {
    const auto backbone = models::build_backbone(
        models::resolve_model("vitdet", vitdet_settings(config.at("vit"), config.at("square_pad"))), 0);
    whole.body = backbone;
    whole.maps = [backbone](const torch::Tensor& x) {
      return backbone->features(x, {backbone->block_count() - 1});
    };
    whole.prefix = "backbone.net.", whole.rename = [](const std::string& name) { return name; };
    whole.detector = std::make_shared<Detector>(
        detectron2_options(config),
        std::make_shared<models::SimplePyramid>(models::SimplePyramidOptions{
            .in = config.at("vit").at("embed_dim"), .width = config.at("out_channels")}));
  } else {
    const Json &swin = config.at("model").at("backbone"), &neck = config.at("model").at("neck");
    const auto spec = models::resolve_model("swin", swin_settings(swin, config.at("batch_size_hw")[0]));
    const auto backbone = models::build_backbone(spec, 0);
    std::vector<int64_t> stages = numbers(swin.at("out_indices"));
    whole.body = backbone;
    whole.maps = [backbone, stages](const torch::Tensor& x) { return backbone->features(x, stages); };
    whole.prefix = "backbone.",
    whole.rename = [](const std::string& name) { return train::our_name(name, "swin"); };
    whole.detector = std::make_shared<Detector>(
        mmdet_options(config), fpn_of(numbers(neck.at("in_channels")), neck.at("out_channels")));
  }
  return whole;
}

DetectorInput feed_detector(const SubCase& at, bool training) {
  const Json& config = at.golden.config();
  DetectorInput fed;
  if (at.has("input.const_x")) {
    fed.batch = at.tensor("input.const_x");
    for (const Json& size : config.at("image_sizes")) fed.sizes.push_back({size[0], size[1]});
  } else {
    const bool torchvision = config.contains("image_mean");
    std::vector<torch::Tensor> images;
    for (int64_t i = 0; at.has(text("input.", torchvision ? "images." : "const_images.", i)); ++i) {
      torch::Tensor x = at.tensor(text("input.", torchvision ? "images." : "const_images.", i));
      if (torchvision && training) fed.leaves.push_back(x.requires_grad_());
      x = (x - channels(config.at(torchvision ? "image_mean" : "pixel_mean"), x)) /
          channels(config.at(torchvision ? "image_std" : "pixel_std"), x);
      if (torchvision) {
        const auto low = static_cast<double>(std::min(x.size(1), x.size(2))),
                   high = static_cast<double>(std::max(x.size(1), x.size(2)));
        const double factor =
            std::min(config.at("min_size").get<double>() / low, config.at("max_size").get<double>() / high);
        const auto side = [&](int64_t size) {
          return static_cast<int64_t>(std::floor(static_cast<double>(size) * factor));
        };
        x = at::upsample_bilinear2d(x.unsqueeze(0), {side(x.size(1)), side(x.size(2))},
                                    /*align_corners=*/false)
                .squeeze(0);
      }
      images.push_back(x);
      fed.sizes.push_back({x.size(1), x.size(2)});
    }
    Extent size{0, 0};
    if (torchvision) {
      const int64_t multiple = config.at("size_divisible");
      for (const Extent& one : fed.sizes)
        size = {std::max(size.height, one.height), std::max(size.width, one.width)};
      size = {(size.height + multiple - 1) / multiple * multiple,
              (size.width + multiple - 1) / multiple * multiple};
    } else {
      size.height = size.width = config.at("square_pad");
    }
    fed.batch = padded_batch(images, size);
  }
  if (!training) return fed;
  const bool torchvision = config.contains("image_mean");
  for (size_t i = 0; i < fed.sizes.size(); ++i) {
    models::DetectionTarget target = target_of(at, static_cast<int64_t>(i), torchvision ? 1 : 0);
    if (torchvision) {
      const torch::Tensor& image = fed.leaves[i];
      const double across = static_cast<double>(fed.sizes[i].width) / static_cast<double>(image.size(2)),
                   down = static_cast<double>(fed.sizes[i].height) / static_cast<double>(image.size(1));
      target.boxes = target.boxes * torch::tensor({across, down, across, down}, target.boxes.options());
      if (target.masks.size(0) > 0)
        target.masks =
            at::upsample_nearest2d(target.masks.unsqueeze(1), {fed.sizes[i].height, fed.sizes[i].width})
                .squeeze(1);
      else
        target.masks = torch::zeros({0, fed.sizes[i].height, fed.sizes[i].width}, torch::kUInt8);
    }
    fed.targets.push_back(target);
  }
  return fed;
}

}  // namespace tessera::parity
