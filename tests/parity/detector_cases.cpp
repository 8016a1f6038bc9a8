// components/det_fpn, det_vitdet_backbone and the whole detectors det_mask_rcnn_*, det_cascade_*.
#include "tests/parity/detection_case.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"
#include "core/text.h"
#include "tests/parity/model_case.h"

namespace tessera::parity {
namespace {

using Json = nlohmann::json;
using models::Detections;
using models::Detector;
using models::DetectorCode;
using models::Extent;
using NameRule = std::function<std::string(const std::string&)>;

constexpr torch::ScalarType kTypes[] = {torch::kFloat64, torch::kFloat32};

torch::Tensor gradient_of(const torch::Tensor& leaf) {
  return leaf.grad().defined() ? leaf.grad() : torch::zeros_like(leaf);
}

// Puts the parameters and buffers "param.X" of a case into a module, by the names that the rule gives; those with an
// empty name are passed over. Every parameter must be given. -> ours by published name.
std::map<std::string, torch::Tensor> load(torch::nn::Module& module, const SubCase& from,
                                          const NameRule& rule, const models::Backbone* fitting = nullptr) {
  const torch::NoGradGuard no_grad;
  auto parameters = module.named_parameters(), buffers = module.named_buffers();
  std::map<std::string, torch::Tensor> taken;
  std::map<std::string, bool> given;
  for (const char* kind : {"param.", "buffer."})
    for (const std::string& name : from.names(kind)) {
      const std::string ours = rule(name);
      if (ours.empty() || name.ends_with("num_batches_tracked")) continue;
      torch::Tensor* own = parameters.find(ours);
      if (!own) own = buffers.find(ours);
      check(own != nullptr, "there is no parameter '", ours, "' (published: ", name, ")");
      torch::Tensor stored = from.tensor(kind + name);
      if (fitting && stored.sizes() != own->sizes()) stored = fitting->fit(ours, stored);
      check(stored.defined() && stored.sizes() == own->sizes(), "parameter '", ours,
            "' has another shape than the golden's");
      own->copy_(stored);
      taken[name] = *own;
      given[ours] = true;
    }
  for (const auto& entry : parameters)
    check(given[entry.key()], "the golden has no parameter '", entry.key(), "'");
  return taken;
}

void compare_gradients(Comparison& comparison, const SubCase& at,
                       const std::map<std::string, torch::Tensor>& leaves) {
  for (const auto& [name, leaf] : leaves)
    if (at.has("grad." + name)) at.compare(comparison, "grad." + name, gradient_of(leaf));
}

// --- FPN ---

int64_t first_level(const SubCase& at) {
  int64_t first = 99;
  for (const std::string& name : at.names("param.fpn_lateral"))
    first = std::min<int64_t>(first, name[0] - '0');
  return first;
}

void check_fpn_case(Comparison& comparison, const SubCase& at) {
  const std::string name = at.prefix.substr(0, at.prefix.size() - 1);
  SubCase inputs = at;
  for (const std::string& other :
       {at.prefix, name.substr(0, name.find('_')) + "/", std::string("torchvision/")})
    if (at.golden.has(other + "input.feat.0")) {
      inputs.prefix = other;
      break;
    }
  models::FpnOptions options;
  std::vector<torch::Tensor> maps, last;
  for (int64_t i = 0; inputs.has(text("input.feat.", i)); ++i) {
    maps.push_back(inputs.tensor(text("input.feat.", i)).requires_grad_());
    last.push_back(maps.back().permute({0, 2, 3, 1}));
    options.in.push_back(maps.back().size(1));
    options.strides.push_back(int64_t{4} << i);
  }
  std::vector<std::string> outputs = at.names("output.p_");
  std::sort(outputs.begin(), outputs.end());
  options.width = at.tensor("output.p_" + outputs[0]).size(1);
  options.top = outputs.size() == maps.size() ? models::TopLevels::none : models::TopLevels::pool;
  if (at.has("param.extra_blocks.p6.weight"))
    options.top = at.tensor("param.extra_blocks.p6.weight").size(1) == options.width
                      ? models::TopLevels::convolve_out
                      : models::TopLevels::convolve_in;
  for (const std::string& parameter : at.names("param."))
    if (parameter.find(".norm.") != std::string::npos) options.norm = models::ConvNormKind::layer;
  if (!at.names("buffer.").empty()) options.norm = models::ConvNormKind::batch;
  models::Fpn fpn(options);
  fpn.to(at.dtype);
  fpn.eval();
  const bool by_level = name.starts_with("detectron2");
  const int64_t first = by_level ? first_level(at) : 2;
  const auto leaves = load(fpn, at, [&](const std::string& published) {
    std::string known = published;
    if (const size_t digit = known.find_first_of("0123456789"); by_level && digit != std::string::npos)
      known[digit] = static_cast<char>(known[digit] - first + 2);
    return models::detector_name((by_level                    ? "backbone."
                                  : name.starts_with("mmdet") ? "neck."
                                                              : "backbone.fpn.") +
                                 known)
        .substr(5);
  });
  const std::vector<torch::Tensor> pyramid = fpn.forward(last);
  comparison.holds(at.what("levels"), pyramid.size() == outputs.size(), "another number");
  torch::Tensor loss = torch::zeros({}, at.dtype);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const torch::Tensor map = pyramid[i].permute({0, 3, 1, 2});
    at.compare(comparison, "output.p_" + outputs[i], map);
    loss = loss + (map * at.tensor("loss_weight.p_" + outputs[i])).sum();
  }
  loss.backward();
  compare_gradients(comparison, at, leaves);
  for (size_t i = 0; i < maps.size(); ++i)
    at.compare(comparison, text("grad.input.feat.", i), gradient_of(maps[i]));
}

// --- ViTDet ---

Value vitdet_settings(const Json& config, int64_t image_size) {
  Value::Array global;
  const std::vector<int64_t> windows = numbers(config.at("window_block_indexes"));
  for (int64_t i = 0; i < config.at("depth").get<int64_t>(); ++i)
    if (std::find(windows.begin(), windows.end(), i) == windows.end()) global.emplace_back(i);
  const int64_t patch = config.value("patch_size", 16);
  return Value(Value::Table{{"image_size", image_size},
                            {"patch_size", patch},
                            {"dim", config.at("embed_dim").get<int64_t>()},
                            {"depth", config.at("depth").get<int64_t>()},
                            {"heads", config.at("num_heads").get<int64_t>()},
                            {"mlp_ratio", config.at("mlp_ratio").get<double>()},
                            {"window_size", config.at("window_size").get<int64_t>()},
                            {"position_grid", config.at("pretrain_img_size").get<int64_t>() / patch},
                            {"global_blocks", global},
                            {"classes", 0}});
}

void check_vitdet_case(Comparison& comparison, const SubCase& at) {
  const Json& config = at.golden.config();
  const bool own = !at.names("param.").empty();
  const SubCase weights{at.golden, own ? at.prefix : "square/", at.dtype};
  const bool pyramid = !weights.names("param.simfp").empty();
  const std::string start = weights.names("param.net.").empty() ? "" : "net.";
  Value settings = vitdet_settings(config, config.at("img_size"));
  const torch::Tensor positions = weights.tensor("param." + start + "pos_embed");
  const int64_t grid = settings.find("position_grid")->as_int();
  settings.set("class_position", positions.size(1) == grid * grid + 1);
  settings.set("offset_vectors", weights.has("param." + start + "blocks.0.attn.rel_pos_h"));
  const auto backbone = models::build_backbone(models::resolve_model("vitdet", settings), 0);
  backbone->to(at.dtype);
  backbone->eval();
  auto leaves = load(*backbone, weights, [&](const std::string& name) {
    return name.starts_with("simfp") ? ""
           : name.starts_with(start) ? name.substr(start.size())
                                     : std::string();
  });
  const torch::Tensor x = at.tensor("input.x").requires_grad_();
  std::map<std::string, torch::Tensor> outputs;
  const torch::Tensor map = backbone->features(x, {backbone->block_count() - 1})[0];
  outputs["last_feat"] = map;
  std::shared_ptr<models::SimplePyramid> neck;
  if (pyramid) {
    neck = std::make_shared<models::SimplePyramid>(
        models::SimplePyramidOptions{.in = config.at("embed_dim"),
                                     .width = config.at("out_channels"),
                                     .scales = config.at("scale_factors")});
    neck->to(at.dtype);
    leaves.merge(
        load(*neck, weights, [](const std::string& name) { return name.starts_with("simfp") ? name : ""; }));
    const auto levels = neck->forward({map.permute({0, 2, 3, 1})});
    for (size_t i = 0; i < levels.size(); ++i) outputs[text("p", i + 2)] = levels[i].permute({0, 3, 1, 2});
  }
  torch::Tensor loss = torch::zeros({}, at.dtype);
  for (const std::string& name : at.names("output.")) {
    const auto found = outputs.find(name);
    comparison.holds(at.what("output." + name), found != outputs.end(), "not computed");
    if (found == outputs.end()) continue;
    at.compare(comparison, "output." + name, found->second);
    if (at.has("loss_weight." + name)) loss = loss + (found->second * at.tensor("loss_weight." + name)).sum();
  }
  loss.backward();
  compare_gradients(comparison, at, leaves);
  at.compare(comparison, "grad.input.x", gradient_of(x));
}

// --- Whole detectors ---

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

// A detector, its backbone, and how the golden's images become what they are fed.
struct Whole {
  std::shared_ptr<torch::nn::Module> body;
  std::function<std::vector<torch::Tensor>(const torch::Tensor&)> maps;
  std::string prefix;  // of the body's names in the golden
  NameRule rename;     // behind the prefix
  std::shared_ptr<Detector> detector;
};

struct Fed {
  torch::Tensor batch;
  std::vector<Extent> sizes;
  std::vector<torch::Tensor> leaves;  // the images, where they have a gradient
  std::vector<models::DetectionTarget> targets;
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
  o.box.stages[0].iou = box.at("fg_iou");
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

Whole build(const Golden& golden) {
  const Json& config = golden.config();
  Whole whole;
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
    whole.prefix = "backbone.", whole.rename = models::find_family("swin").rename;
    whole.detector = std::make_shared<Detector>(
        mmdet_options(config), fpn_of(numbers(neck.at("in_channels")), neck.at("out_channels")));
  }
  return whole;
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

Fed feed(const SubCase& at, bool training) {
  const Json& config = at.golden.config();
  Fed fed;
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

// Equal but where a value is too near to the threshold to tell.
void compare_found_masks(Comparison& comparison, const SubCase& at, const std::string& name,
                         const Detections& found, ops::PasteRule rule) {
  const torch::Tensor want = at.tensor(name);
  const torch::Tensor value = ops::paste_masks(found.masks, found.boxes, rule, want.size(-2), want.size(-1));
  if (want.is_floating_point())
    return comparison.close(at.what(name), value.view(want.sizes()), want, 0, 2e-4);
  const torch::Tensor unsure = (value - 0.5).abs() < (at.dtype == torch::kFloat64 ? 1e-5 : 2e-4);
  comparison.equal(at.what(name), torch::where(unsure, want, (value >= 0.5).to(torch::kUInt8)), want);
}

void compare_trace(Comparison& comparison, const SubCase& at, const models::DetectorTrace& trace,
                   DetectorCode code) {
  for (size_t i = 0; i < trace.proposals.size(); ++i) {
    const auto close = [&](const std::string& name, const torch::Tensor& got, double allowed) {
      if (at.has(name)) comparison.close(at.what(name), got, at.tensor(name), 0, allowed);
    };
    close(text("output.proposals.", i), trace.proposals[i], 1e-3);
    close(text("output.proposal_scores.", i), trace.proposal_logits[i].sigmoid(), 1e-4);
    if (code == DetectorCode::detectron2)
      close(text("output.objectness.", i), trace.proposal_logits[i], 1e-3);
  }
  for (size_t level = 0; level < trace.objectness.size() && code == DetectorCode::torchvision; ++level) {
    if (at.has(text("output.objectness.", level)))
      at.compare(comparison, text("output.objectness.", level),
                 trace.objectness[level].permute({0, 3, 1, 2}));
    if (at.has(text("output.deltas.", level)))
      at.compare(comparison, text("output.deltas.", level), trace.deltas[level].permute({0, 3, 1, 2}));
  }
  for (size_t stage = 0; stage < trace.stages.size(); ++stage) {
    const auto& kept = trace.stages[stage];
    for (const auto& [name, value] : {std::pair{text("output.stage", stage, ".class_logits"), kept.logits},
                                      {text("output.stage", stage, ".deltas"), kept.deltas},
                                      {std::string("output.class_logits"), kept.logits},
                                      {std::string("output.box_regression"), kept.deltas}})
      if (at.has(name)) comparison.close(at.what(name), value, at.tensor(name), 1e-4, 5e-4);
  }
}

void check_eval(Comparison& comparison, const SubCase& at, Whole& whole) {
  const torch::NoGradGuard no_grad;
  const Json& config = at.golden.config();
  const DetectorCode code = whole.detector->options().code;
  const Fed fed = feed(at, false);
  if (at.has("output.batch")) at.compare(comparison, "output.batch", fed.batch);
  models::DetectorTrace trace;
  const auto pyramid = whole.detector->pyramid(whole.maps(fed.batch));
  for (size_t i = 0; i < pyramid.size(); ++i)
    if (at.has(text("output.p", i + 2)))
      at.compare(comparison, text("output.p", i + 2), pyramid[i].permute({0, 3, 1, 2}));
  const auto found =
      whole.detector->detect(pyramid, {fed.batch.size(2), fed.batch.size(3)}, fed.sizes, &trace);
  compare_trace(comparison, at, trace, code);
  for (size_t i = 0; i < found.size(); ++i) {
    const std::string start = text("output.detections.", i, ".");
    double across = 1, down = 1;
    std::optional<Extent> clip;
    if (code == DetectorCode::torchvision) {
      const torch::Tensor image = at.tensor(text("input.images.", i));
      across = static_cast<double>(image.size(2)) / static_cast<double>(fed.sizes[i].width);
      down = static_cast<double>(image.size(1)) / static_cast<double>(fed.sizes[i].height);
    } else if (code == DetectorCode::detectron2) {
      const std::vector<int64_t> size = numbers(config.at("output_sizes")[i]);
      clip = Extent{size[0], size[1]};
      across = static_cast<double>(size[1]) / static_cast<double>(fed.sizes[i].width);
      down = static_cast<double>(size[0]) / static_cast<double>(fed.sizes[i].height);
    } else {
      across = 1 / config.at("scale_factor_wh")[i][0].get<double>();
      down = 1 / config.at("scale_factor_wh")[i][1].get<double>();
    }
    const Detections placed = models::rescaled(found[i], across, down, clip);
    const bool torchvision = code == DetectorCode::torchvision;
    comparison.close(at.what(start + "boxes"), placed.boxes, at.tensor(start + "boxes"), 0, 1e-3);
    comparison.close(at.what(start + "scores"), placed.scores, at.tensor(start + "scores"), 0, 1e-4);
    at.equal(comparison, start + (torchvision ? "labels" : "classes"), placed.labels + (torchvision ? 1 : 0));
    if (at.has(start + "masks"))
      compare_found_masks(comparison, at, start + "masks", placed, whole.detector->paste_rule());
  }
}

torch::Tensor picked(const torch::Tensor& boxes, int64_t from, int64_t count) {
  return boxes.narrow(0, from, count);
}

void compare_samples(Comparison& comparison, const SubCase& at, const models::DetectorTrace& trace,
                     const models::DetectorOptions& options,
                     const std::vector<models::DetectionTarget>& targets) {
  const auto list = [](const std::vector<int64_t>& values) {
    return torch::tensor(at::ArrayRef<int64_t>(values), torch::kInt64);
  };
  for (size_t i = 0; i < trace.positive_anchors.size(); ++i) {
    if (at.has(text("output.rpn_positive.", i)))
      at.equal(comparison, text("output.rpn_positive.", i), list(trace.positive_anchors[i]));
    if (at.has(text("output.rpn_negative.", i)))
      at.equal(comparison, text("output.rpn_negative.", i), list(trace.negative_anchors[i]));
  }
  for (size_t stage = 0; stage < trace.stages.size(); ++stage) {
    const auto& kept = trace.stages[stage];
    for (size_t i = 0; i < kept.boxes.size(); ++i) {
      const auto near = [&](const std::string& name, const torch::Tensor& got) {
        if (at.has(name)) comparison.close(at.what(name), got, at.tensor(name), 0, 1e-3);
      };
      const auto same = [&](const std::string& name, const torch::Tensor& got) {
        if (at.has(name)) at.equal(comparison, name, got);
      };
      if (stage == 0) {
        near(text("output.sampled.", i, ".boxes"), kept.boxes[i]);
        same(text("output.sampled.", i, ".classes"), kept.labels[i]);
        same(text("output.sampled.", i, ".matched"), kept.matched[i]);
        const torch::Tensor background = kept.labels[i] == options.classes;
        same(text("output.sampled.", i, ".labels"),
             torch::where(background, torch::zeros_like(kept.labels[i]), kept.labels[i] + 1));
        if (at.has(text("output.sampled.", i, ".deltas")) && targets[i].boxes.size(0) > 0) {
          torch::Tensor deltas = options.box.stages[0].coder.encode(
              kept.boxes[i], targets[i].boxes.to(at.dtype).index_select(0, kept.matched[i]));
          deltas.index_put_({background}, 0.0);
          near(text("output.sampled.", i, ".deltas"), deltas);
        }
      }
      near(text("output.stage", stage, ".boxes.", i), kept.boxes[i]);
      same(text("output.stage", stage, ".classes.", i), kept.labels[i]);
      const int64_t positives = kept.positives[i], all = kept.boxes[i].size(0);
      near(text("output.stage", stage, ".positive_boxes.", i), picked(kept.boxes[i], 0, positives));
      same(text("output.stage", stage, ".positive_gt.", i), kept.matched[i].narrow(0, 0, positives));
      near(text("output.stage", stage, ".negative_boxes.", i),
           picked(kept.boxes[i], positives, all - positives));
    }
  }
}

// The golden's name of a loss of ours.
std::string published_loss(const std::string& ours, DetectorCode code) {
  static const std::map<std::string, std::array<const char*, 3>> names = {
      {"rpn_objectness", {"loss_objectness", "loss_rpn_cls", "loss_rpn_cls"}},
      {"rpn_box", {"loss_rpn_box_reg", "loss_rpn_loc", "loss_rpn_bbox"}},
      {"class", {"loss_classifier", "loss_cls", "loss_cls"}},
      {"box", {"loss_box_reg", "loss_box_reg", "loss_bbox"}},
      {"mask", {"loss_mask", "loss_mask", "loss_mask"}}};
  const auto column = static_cast<size_t>(code);
  if (const auto found = names.find(ours); found != names.end()) return found->second[column];
  const size_t mark = ours.rfind('_');
  const int64_t stage = std::stoll(ours.substr(mark + 1)) - 1;
  const std::string name = names.at(ours.substr(0, mark))[column];
  return code == DetectorCode::mmdet ? text("s", stage, ".", name) : text(name, "_stage", stage);
}

void check_train(Comparison& comparison, const SubCase& at, Whole& whole,
                 const std::map<std::string, torch::Tensor>& leaves) {
  const models::DetectorOptions& options = whole.detector->options();
  const Fed fed = feed(at, true);
  models::DetectorTrace trace;
  whole.detector->train();
  const auto pyramid = whole.detector->pyramid(whole.maps(fed.batch));
  const auto losses = whole.detector->losses(pyramid, {fed.batch.size(2), fed.batch.size(3)}, fed.sizes,
                                             fed.targets, models::choose_first(), &trace);
  torch::Tensor total = torch::zeros({}, at.dtype);
  for (const auto& [name, value] : losses) {
    at.compare(comparison, "output." + published_loss(name, options.code), value.view({1}));
    total = total + value;
  }
  at.compare(comparison, "output.loss", total.view({1}));
  for (size_t stage = 0; stage < trace.stages.size(); ++stage) {
    const std::string name = trace.stages.size() > 1 ? text("output.s", stage, ".acc") : "output.acc";
    const torch::Tensor right =
        trace.stages[stage].logits.argmax(1) == torch::cat(trace.stages[stage].labels);
    if (at.has(name)) at.compare(comparison, name, right.to(torch::kFloat64).mean().view({1}) * 100);
  }
  compare_trace(comparison, at, trace, options.code);
  compare_samples(comparison, at, trace, options, fed.targets);
  if (at.has("output.mask_logits"))
    comparison.close(at.what("output.mask_logits"), trace.mask_logits, at.tensor("output.mask_logits"), 1e-4,
                     1e-4);
  total.backward();
  compare_gradients(comparison, at, leaves);
  for (size_t i = 0; i < fed.leaves.size(); ++i)
    if (at.has(text("grad.input.images.", i)))
      at.compare(comparison, text("grad.input.images.", i), gradient_of(fed.leaves[i]));
}

}  // namespace

CaseResult check_fpn(const Golden& golden) {
  Comparison comparison;
  for (const torch::ScalarType dtype : kTypes)
    for (const std::string& name : sub_cases(golden)) check_fpn_case(comparison, {golden, name + "/", dtype});
  return comparison.result();
}

CaseResult check_vitdet(const Golden& golden) {
  Comparison comparison;
  for (const torch::ScalarType dtype : kTypes)
    for (const std::string& name : sub_cases(golden))
      check_vitdet_case(comparison, {golden, name + "/", dtype});
  return comparison.result();
}

CaseResult check_detector(const Golden& golden) {
  Comparison comparison;
  for (const torch::ScalarType dtype : kTypes) {
    Whole whole = build(golden);
    whole.body->to(dtype);
    whole.detector->to(dtype);
    whole.body->eval();
    whole.detector->eval();
    const SubCase weights{golden, "eval/", dtype};
    const auto* backbone = dynamic_cast<const models::Backbone*>(whole.body.get());
    auto leaves = load(
        *whole.body, weights,
        [&](const std::string& name) {
          if (!name.starts_with(whole.prefix) || !models::detector_name(name).empty()) return std::string();
          return whole.rename(name.substr(whole.prefix.size()));
        },
        backbone);
    leaves.merge(load(*whole.detector, weights, models::detector_name));
    check_eval(comparison, weights, whole);
    check_train(comparison, {golden, "train/", dtype}, whole, leaves);
  }
  return comparison.result();
}

}  // namespace tessera::parity
