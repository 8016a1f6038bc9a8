// components/det_detr, model_detr_transformer: DETR whole, and its Transformer alone.
#include <algorithm>
#include <regex>

#include "core/error.h"
#include "models/heads/detr.h"
#include "tasks/dense/set_loss.h"
#include "tests/parity/config_reader.h"
#include "tests/parity/detr_tolerance.h"
#include "tests/parity/model_case.h"

namespace tessera::parity::detr_cases {
namespace {

using Json = nlohmann::json;
using torch::Tensor;

Tensor or_zeros(const Tensor& gradient, const Tensor& of) {
  return gradient.defined() ? gradient : torch::zeros_like(of);
}

// --- the whole model

struct WholeDetr {
  std::shared_ptr<models::Backbone> backbone;
  std::shared_ptr<models::Detr> detr;
  std::map<std::string, Tensor> parameters;  // by published name
};

constexpr const char* kBody = "backbone.0.body.";

// `pre_norm` of the program's arguments, `normalize_before` of the class.
bool pre_norm_of(ConfigReader& config) {
  const bool argument = config.value("pre_norm", false);
  return config.value("normalize_before", argument);
}

models::Activation activation_of(const std::string& name) {
  return models::published_activation(name, "DETR");
}

// `stored` is the prefix of the case that has the parameters.
WholeDetr build_detr(const Golden& golden, const std::string& stored, bool dc5, torch::ScalarType dtype) {
  ConfigReader config(golden.config(), "DETR");
  const auto width = [&](const std::string& layer) {
    return golden.tensor(stored + "param." + kBody + layer + ".weight").size(0);
  };
  Value::Array dims, depths;
  const Json& blocks = config.at("resnet_blocks");
  for (size_t stage = 0; stage < blocks.size(); ++stage) {
    dims.emplace_back(width("layer" + std::to_string(stage + 1) + ".0.conv3"));
    depths.emplace_back(blocks[stage].get<int64_t>());
  }
  const Value settings(Value::Table{{"dims", dims},
                                    {"depths", depths},
                                    {"stem_dim", width("conv1")},
                                    {"output_stride", dc5 ? 16 : 32},
                                    {"classes", 0}});
  WholeDetr out;
  out.backbone = models::build_backbone(models::resolve_model("resnet", settings), 0, models::Init::skip);
  const models::DetrConfig detr{.embed_dim = config.at("d_model"),
                                .num_heads = config.at("nhead"),
                                .encoder_depth = config.at("enc_layers"),
                                .decoder_depth = config.at("dec_layers"),
                                .hidden = config.at("dim_feedforward"),
                                .queries = config.at("num_queries"),
                                .pre_norm = pre_norm_of(config),
                                .activation = activation_of(config.value("activation", "relu"))};
  const auto classes = config.at("num_classes").get<int64_t>();
  const std::string positions = config.value("position_embedding", "sine");
  check(positions == "sine" || positions == "v2", "DETR with ", positions, " positions is not ours");
  // Said of the images and of what is done with the result, or read where the loss is.
  config.pass_over(
      {"width", "images", "post_process_sizes", "weights", "eos_coef", "dropout", "aux_loss", "dilation"});
  config.finish();
  out.detr = std::make_shared<models::Detr>(detr, dims.back().as_int(), classes);
  std::map<std::string, Tensor> all;
  const auto collect = [&](torch::nn::Module& module, const std::string& prefix) {
    module.to(dtype);
    module.eval();
    for (const auto& entry : module.named_parameters()) all[prefix + entry.key()] = entry.value();
    for (const auto& entry : module.named_buffers()) all[prefix + entry.key()] = entry.value();
  };
  collect(*out.backbone, kBody);
  collect(*out.detr, "");
  const torch::NoGradGuard no_grad;
  for (const char* kind : {"param.", "buffer."})
    for (const std::string& name : golden.names(stored + kind)) {
      check(all.contains(name), "no tensor '", name, "'");
      all.at(name).copy_(golden.tensor(stored + kind + name, dtype));
      if (std::string(kind) == "param.")
        out.parameters[name] = all.at(name);
      else
        all.at(name).requires_grad_(false);
    }
  // The stem and the first stage stay as they are.
  for (const auto& [name, parameter] : out.parameters)
    if (name.starts_with(std::string(kBody) + "conv1.") || name.starts_with(std::string(kBody) + "layer1."))
      parameter.requires_grad_(false);
  return out;
}

// Images of one batch, filled up with zeros to the right and below; the padding is true there.
std::pair<Tensor, Tensor> padded(const std::vector<Tensor>& images) {
  int64_t height = 0, width = 0;
  for (const Tensor& image : images)
    height = std::max(height, image.size(1)), width = std::max(width, image.size(2));
  std::vector<Tensor> all, masks;
  for (const Tensor& image : images) {
    all.push_back(torch::constant_pad_nd(image, {0, width - image.size(2), 0, height - image.size(1)}));
    Tensor mask = torch::ones({height, width}, torch::kBool);
    mask.slice(0, 0, image.size(1)).slice(1, 0, image.size(2)).fill_(false);
    masks.push_back(mask);
  }
  return {torch::stack(all), torch::stack(masks)};
}

std::vector<Tensor> leaves(const Golden& golden, const std::string& prefix, torch::ScalarType dtype) {
  std::vector<Tensor> out;
  for (int i = 0; golden.has(prefix + std::to_string(i)); ++i)
    out.push_back(golden.tensor(prefix + std::to_string(i), dtype).requires_grad_());
  return out;
}

void compare_gradients(Comparison& comparison, const Allowed& allowed, const Golden& golden,
                       const std::string& at, const WholeDetr& model, const std::vector<Tensor>& images,
                       const std::string& label) {
  for (const std::string& name : golden.names(at + "grad.")) {
    Tensor leaf;
    if (name.starts_with("input.images."))
      leaf = images.at(std::stoul(name.substr(std::string("input.images.").size())));
    else
      leaf = model.parameters.at(name);
    allowed.gradient(comparison, label + "grad." + name, or_zeros(leaf.grad(), leaf),
                     golden.tensor(at + "grad." + name));
  }
  for (const auto& [name, parameter] : model.parameters)
    if (!golden.has(at + "grad." + name))
      comparison.holds(label + name, !parameter.grad().defined(), "has a gradient");
}

// Of layer i by the published names: the last layer's without one, "aux0.", "aux1." before.
std::string layer_name(int64_t layer, int64_t layers) {
  return layer + 1 == layers ? "" : "aux" + std::to_string(layer) + ".";
}

// Returns the height and width that boxes of an image are scaled to: "(2h+1, 2w) of each image", or a list of sizes.
std::pair<double, double> target_size(const Json& config, size_t image, const Tensor& pixels) {
  const Json sizes = config.value("post_process_sizes", Json("(2h+1, 2w)"));
  if (sizes.is_array()) return {sizes.at(image).at(0), sizes.at(image).at(1)};
  std::smatch found;
  const std::string rule = sizes.get<std::string>();
  static const std::regex form("\\((\\d*)h([+-]\\d+)?, ?(\\d*)w([+-]\\d+)?\\)");
  check(std::regex_search(rule, found, form), "post_process_sizes '", rule, "' is a setting unknown here");
  const auto side = [&](size_t group, int64_t size) {
    const double times = found[group].length() > 0 ? std::stod(found[group]) : 1,
                 more = found[group + 1].matched ? std::stod(found[group + 1]) : 0;
    return times * static_cast<double>(size) + more;
  };
  return {side(1, pixels.size(1)), side(3, pixels.size(2))};
}

void check_detr_eval(Comparison& comparison, const Golden& golden, const std::string& at, bool dc5,
                     torch::ScalarType dtype) {
  const Allowed allowed(golden);
  const std::string label = at + (dtype == torch::kFloat64 ? "float64 " : "float32 ");
  WholeDetr model = build_detr(golden, at, dc5, dtype);
  const std::vector<Tensor> images = leaves(golden, at + "input.images.", dtype);
  const auto [batch, padding] = padded(images);
  const int64_t last = model.backbone->block_count() - 1;
  const auto objects = model.detr->forward(model.backbone->features(batch, {last})[0], padding);
  const int64_t layers = objects.logits.size(0);
  Tensor loss = torch::zeros({}, batch.options().requires_grad(false));
  for (int64_t layer = 0; layer < layers; ++layer)
    for (const auto& [name, all] :
         {std::pair("pred_logits", objects.logits), {"pred_boxes", objects.boxes}}) {
      const std::string key = layer_name(layer, layers) + name;
      allowed.output(comparison, label + key, all[layer], golden.tensor(at + "output." + key));
      loss = loss + (all[layer] * golden.tensor(at + "loss_weight." + key, dtype)).sum();
    }
  for (size_t i = 0; i < images.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    const auto [height, width] = target_size(golden.config(), i, images[i]);
    const auto found =
        models::detr_detections(objects.logits[-1][index], objects.boxes[-1][index], height, width);
    const std::string key = "output.detections." + std::to_string(i) + ".";
    allowed.output(comparison, label + key + "scores", found.scores, golden.tensor(at + key + "scores"));
    allowed.output(comparison, label + key + "labels", found.labels, golden.tensor(at + key + "labels"));
    comparison.close(label + key + "boxes", found.boxes, golden.tensor(at + key + "boxes"), 1e-4, 1e-3);
  }
  loss.backward();
  compare_gradients(comparison, allowed, golden, at, model, images, label);
}

void check_detr_train(Comparison& comparison, const Golden& golden, const std::string& at,
                      const std::string& stored, bool dc5, torch::ScalarType dtype) {
  const Allowed allowed(golden);
  const Json& config = golden.config();
  const std::string label = at + (dtype == torch::kFloat64 ? "float64 " : "float32 ");
  WholeDetr model = build_detr(golden, stored, dc5, dtype);
  const std::vector<Tensor> images = leaves(golden, at + "input.images.", dtype);
  std::vector<tasks::SetTargets> targets;
  for (size_t i = 0; i < images.size(); ++i) {
    const std::string key = at + "input.targets." + std::to_string(i);
    targets.push_back({golden.tensor(key + ".labels"), golden.tensor(key + ".const_boxes", dtype)});
  }
  const tasks::SetCosts costs{.label = config["weights"]["ce"],
                              .box = config["weights"]["bbox"],
                              .overlap = config["weights"]["giou"],
                              .no_object = config["eos_coef"]};
  const auto [batch, padding] = padded(images);
  const int64_t last = model.backbone->block_count() - 1;
  const auto objects = model.detr->forward(model.backbone->features(batch, {last})[0], padding);
  const int64_t layers = objects.logits.size(0);
  const auto want = [&](const std::string& name) { return golden.tensor(at + "output." + name); };
  Tensor loss = torch::zeros({}, batch.options().requires_grad(false));
  for (int64_t layer = 0; layer < layers; ++layer) {
    const auto matches = tasks::match_sets(objects.logits[layer], objects.boxes[layer], targets, costs);
    const tasks::SetLoss parts =
        tasks::set_loss(objects.logits[layer], objects.boxes[layer], targets, matches, costs);
    const bool is_last = layer + 1 == layers;
    const std::string behind = is_last ? "" : "_" + std::to_string(layer);
    for (const auto& [name, value] : {std::pair<std::string, Tensor>{"loss_ce", parts.mean_label()},
                                      {"loss_bbox", parts.mean_box()},
                                      {"loss_giou", parts.mean_overlap()},
                                      {"cardinality_error", parts.cardinality_error}})
      allowed.output(comparison, label + name + behind, value, want(name + behind));
    loss = loss + costs.label * parts.mean_label() + costs.box * parts.mean_box() +
           costs.overlap * parts.mean_overlap();
    for (const auto& [name, all] :
         {std::pair("pred_logits", objects.logits), {"pred_boxes", objects.boxes}}) {
      const std::string key = layer_name(layer, layers) + name;
      allowed.output(comparison, label + key, all[layer], want(key));
    }
    if (!is_last) continue;
    allowed.output(comparison, label + "class_error", parts.label_error, want("class_error"));
    for (size_t i = 0; i < matches.size(); ++i) {
      const std::string key = "match." + std::to_string(i);
      comparison.equal(label + key, matches[i].queries, want(key + ".query"));
      comparison.equal(label + key, matches[i].objects, want(key + ".target"));
    }
  }
  allowed.output(comparison, label + "loss", loss, want("loss"));
  loss.backward();
  compare_gradients(comparison, allowed, golden, at, model, images, label);
}

// --- the Transformer alone, by transformers' names

struct Place {
  std::string name;
  int64_t part = -1;  // third of a joint matrix: 0 = q, 1 = k, 2 = v
};

Place place_of(std::string name) {
  const auto swap = [&](const std::string& from, const std::string& to) {
    if (const size_t at = name.find(from); at != std::string::npos) name.replace(at, from.size(), to);
  };
  const bool decoder = name.starts_with("decoder.");
  swap("input_projection.", "input_proj."), swap("query_position_embeddings.", "query_embed.");
  swap("class_labels_classifier.", "class_embed."), swap("bbox_predictor.", "bbox_embed.");
  swap("decoder.layernorm.", "decoder.norm.");
  swap("self_attn_layer_norm.", "norm1."), swap("encoder_attn_layer_norm.", "norm2.");
  swap("final_layer_norm.", decoder ? "norm3." : "norm2.");
  swap(".mlp.fc1.", ".linear1."), swap(".mlp.fc2.", ".linear2."), swap(".fc1.", ".linear1."),
      swap(".fc2.", ".linear2.");
  swap(".encoder_attn.", ".multihead_attn."), swap("o_proj.", "out_proj.");
  if (name.starts_with("encoder.") || name.starts_with("decoder.")) name = "transformer." + name;
  for (int64_t part = 0; part < 3; ++part) {
    const std::string key = std::string("qkv").substr(static_cast<size_t>(part), 1) + "_proj.";
    if (const size_t at = name.find("attn." + key); at != std::string::npos)
      return {name.replace(at + 5, key.size(), "in_proj_"), part};
  }
  return {name};
}

Tensor part_of(const Tensor& whole, int64_t part) {
  return part < 0 ? whole : whole.chunk(3)[static_cast<size_t>(part)];
}

CaseResult check_detr(const Golden& golden) {
  Comparison comparison;
  for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32})
    for (const char* kind : {"", "dc5/"}) {
      const std::string at = kind;
      if (golden.names(at + "eval/output.").empty()) continue;
      check_detr_eval(comparison, golden, at + "eval/", !at.empty(), dtype);
      check_detr_train(comparison, golden, at + "train/", at + "eval/", !at.empty(), dtype);
    }
  return comparison.result();
}

CaseResult check_detr_transformer(const Golden& golden) {
  ConfigReader config(golden.config(), "DETR");
  const models::DetrConfig wanted{.embed_dim = config.at("d_model"),
                                  .num_heads = config.at("encoder_attention_heads"),
                                  .encoder_depth = config.at("encoder_layers"),
                                  .decoder_depth = config.at("decoder_layers"),
                                  .hidden = config.at("encoder_ffn_dim"),
                                  .queries = config.at("num_queries"),
                                  .pre_norm = pre_norm_of(config),
                                  .activation = activation_of(config.value("activation_function", "relu")),
                                  .decoder_heads = config.at("decoder_attention_heads"),
                                  .decoder_hidden = config.at("decoder_ffn_dim")};
  const auto feature_channels = config.at("feature_channels").get<int64_t>(),
             classes = config.at("num_labels").get<int64_t>();
  config.pass_over({"dropout", "attention_dropout", "activation_dropout"});
  config.finish();
  const Allowed allowed(golden);
  Comparison comparison;
  for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32}) {
    const std::string label = dtype == torch::kFloat64 ? "float64 " : "float32 ";
    models::Detr detr(wanted, feature_channels, classes);
    detr.to(dtype);
    const auto parameters = detr.named_parameters();
    {
      const torch::NoGradGuard no_grad;
      for (const std::string& name : golden.names("param.")) {
        const Place place = place_of(name);
        check(parameters.contains(place.name), "no parameter '", place.name, "' for '", name, "'");
        part_of(parameters[place.name], place.part).copy_(golden.tensor("param." + name, dtype));
      }
    }
    const Tensor x = golden.tensor("input.x", dtype).requires_grad_();
    const Tensor padding = golden.tensor("input.mask").logical_not();
    const auto objects = detr.forward(x, padding);
    const NamedOutputs outputs{{"encoder", objects.encoded},
                               {"decoder", objects.decoded[-1]},
                               {"logits", objects.logits[-1]},
                               {"boxes", objects.boxes[-1]},
                               {"position", models::padded_sine_positions(padding, wanted.embed_dim,
                                                                          x.options().requires_grad(false))}};
    Tensor loss = torch::zeros({}, x.options().requires_grad(false));
    for (const std::string& name : golden.names("output.")) {
      allowed.output(comparison, label + name, outputs.at(name), golden.tensor("output." + name));
      loss = loss + (outputs.at(name) * golden.tensor("loss_weight." + name, dtype)).sum();
    }
    allowed.output(comparison, label + "loss", loss, golden.tensor("loss"));
    loss.backward();
    for (const std::string& name : golden.names("grad.")) {
      if (name == "input.x") {
        allowed.gradient(comparison, label + name, x.grad(), golden.tensor("grad." + name));
        continue;
      }
      const Place place = place_of(name);
      const Tensor& whole = parameters[place.name];
      allowed.gradient(comparison, label + name, part_of(or_zeros(whole.grad(), whole), place.part),
                       golden.tensor("grad." + name));
    }
  }
  return comparison.result();
}

const Registered registered({
    {"detr", check_detr, {"components/det_detr"}},
    {"detr_transformer", check_detr_transformer, {"components/model_detr"}},
});

}  // namespace
}  // namespace tessera::parity::detr_cases
