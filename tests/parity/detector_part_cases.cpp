// components/det_fpn and det_vitdet_backbone.
#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "tests/parity/detector_case.h"
#include "tests/parity/model_case.h"

namespace tessera::parity {

using Json = nlohmann::json;

torch::Tensor gradient_of(const torch::Tensor& leaf) {
  return leaf.grad().defined() ? leaf.grad() : torch::zeros_like(leaf);
}

std::map<std::string, torch::Tensor> load_published(torch::nn::Module& module, const SubCase& from,
                                                    const NameRule& rule, const models::Backbone* fitting) {
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

namespace {

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
  const auto leaves = load_published(fpn, at, [&](const std::string& published) {
    std::string known = published;
    if (const size_t digit = known.find_first_of("0123456789"); by_level && digit != std::string::npos)
      known[digit] = static_cast<char>(known[digit] - first + 2);
    return detector_name((by_level                    ? "backbone."
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

void check_vitdet_case(Comparison& comparison, const SubCase& at) {
  const Json& config = at.golden.config();
  SubCase weights = at;  // a case without parameters has those of "square", else of the first that has any
  if (weights.names("param.").empty()) weights.prefix = "square/";
  for (const std::string& name : sub_cases(at.golden))
    if (weights.names("param.").empty()) weights.prefix = name + "/";
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
  auto leaves = load_published(*backbone, weights, [&](const std::string& name) {
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
    leaves.merge(load_published(
        *neck, weights, [](const std::string& name) { return name.starts_with("simfp") ? name : ""; }));
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

CaseResult check_fpn(const Golden& golden) {
  Comparison comparison;
  for (const torch::ScalarType dtype : kDetectorTypes)
    for (const std::string& name : sub_cases(golden)) check_fpn_case(comparison, {golden, name + "/", dtype});
  return comparison.result();
}

CaseResult check_vitdet(const Golden& golden) {
  Comparison comparison;
  for (const torch::ScalarType dtype : kDetectorTypes)
    for (const std::string& name : sub_cases(golden))
      check_vitdet_case(comparison, {golden, name + "/", dtype});
  return comparison.result();
}

const Registered registered({
    {"fpn", check_fpn, {"components/det_fpn"}},
    {"vitdet", check_vitdet, {"components/det_vitdet_backbone"}},
});

}  // namespace
}  // namespace tessera::parity
