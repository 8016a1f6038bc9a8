// components/block_selective_scan, block_vim_mamba, model_vim*: Mamba's scan and mixer, Vision Mamba. A golden holds
// several cases, each under its name.
#include "core/error.h"
#include "models/heads/class_head.h"
#include "nn/mamba.h"
#include "nn/norm.h"
#include "ops/selective_scan.h"
#include "tests/parity/config_reader.h"
#include "tests/parity/model_case.h"
#include "tests/parity/published_case.h"
#include "weights/name_tables.h"

namespace tessera::parity::mamba_cases {
namespace {

using torch::Tensor;

constexpr torch::ScalarType kPrecisions[] = {torch::kFloat64, torch::kFloat32};

// The published tensors in their own order of axes, [batch, channels, tokens].
Tensor tokens_first(const Tensor& x) { return x.transpose(1, 2); }

// B or C: constant [channels, states], [batch, states, tokens] or [batch, groups, states, tokens].
Tensor states_last(const Tensor& b) {
  if (b.dim() == 2) return b;
  return b.dim() == 3 ? b.transpose(1, 2) : b.permute({0, 3, 1, 2});
}

void check_scan(Comparison& comparison, const Golden& golden, const std::string& name,
                const nlohmann::json& config, torch::ScalarType dtype) {
  ConfigReader given(config, name);
  const std::string prefix = name + "/";
  PublishedCase one(comparison, golden, dtype, prefix);
  const auto optional = [&](const char* input) {
    return golden.has(prefix + "input." + input) ? one.input(input) : Tensor();
  };
  ops::SelectiveScanInputs in{.u = tokens_first(one.input("u")),
                              .delta = tokens_first(one.input("delta")),
                              .a = one.input("A"),
                              .b = states_last(one.input("B")),
                              .c = states_last(one.input("C")),
                              .d = optional("D"),
                              .delta_bias = optional("delta_bias"),
                              .softplus = given.value("delta_softplus", false)};
  if (const Tensor z = optional("z"); z.defined()) in.z = tokens_first(z);
  given.pass_over({"batch", "dim", "length", "state", "B_and_C"});  // the shapes of the inputs
  given.finish();
  const ops::SelectiveScanResult result = ops::selective_scan(in, /*with_last_state=*/true);
  one.output("y", tokens_first(result.y));
  if (golden.has(prefix + "output.last_state")) one.output("last_state", result.last_state);
  one.gradients();
  // The walk from the end of the flipped sequence is the same.
  const torch::NoGradGuard no_grad;
  ops::SelectiveScanInputs flipped = in;
  for (Tensor* t : {&flipped.u, &flipped.delta, &flipped.z})
    if (t->defined()) *t = t->flip({1});
  for (Tensor* t : {&flipped.b, &flipped.c})
    if (t->dim() > 2) *t = t->flip({1});
  flipped.reverse = true;
  comparison.close(name + " reversed", ops::selective_scan(flipped).y.flip({1}), result.y, 1e-6, 1e-7);
}

// The kernel has the SiLU in itself; without one, and with values before the sequence, it is composed.
void check_convolution(Comparison& comparison, const Golden& golden, const std::string& name,
                       const nlohmann::json& config, torch::ScalarType dtype) {
  ConfigReader given(config, name);
  const std::string prefix = name + "/", activation = given.value("activation", "none");
  check(activation == "silu" || activation == "swish" || activation == "none", name, ": activation '",
        activation, "' is unknown here");
  PublishedCase one(comparison, golden, dtype, prefix);
  const Tensor weight = one.input("weight").unsqueeze(1);
  const Tensor bias = golden.has(prefix + "input.bias") ? one.input("bias") : Tensor();
  const int64_t width = given.value("width", weight.size(2));
  check(width == weight.size(2), name, ": width ", width, ", the weight has ", weight.size(2));
  given.pass_over({"batch", "dim", "length"});
  given.finish();
  Tensor x = one.input("x");
  const int64_t tokens = x.size(2);
  const bool states = golden.has(prefix + "input.initial_states");
  const Tensor before = states ? one.input("initial_states") : Tensor();
  if (states) x = torch::cat({before, x}, 2);
  Tensor y;
  if (activation == "none")
    y = torch::conv1d(torch::constant_pad_nd(x, {width - 1, 0}), weight, bias, at::IntArrayRef{1},
                      at::IntArrayRef{0}, at::IntArrayRef{1}, x.size(1));
  else
    y = tokens_first(ops::causal_convolution_silu(tokens_first(x), weight, bias, /*reverse=*/false));
  one.output("y", y.slice(2, x.size(2) - tokens));
  if (golden.has(prefix + "output.final_states")) {
    const Tensor padded =
        torch::constant_pad_nd(x.detach(), {std::max<int64_t>(width - 1 - x.size(2), 0), 0});
    one.output("final_states", padded.slice(2, padded.size(2) - (width - 1)));
  }
  one.gradients();
}

CaseResult check_selective_scan(const Golden& golden) {
  Comparison comparison;
  for (const auto& [name, config] : golden.config().items())
    for (const torch::ScalarType dtype : kPrecisions)
      name.starts_with("conv") ? check_convolution(comparison, golden, name, config, dtype)
                               : check_scan(comparison, golden, name, config, dtype);
  return comparison.result();
}

nn::MambaDirections directions_of(const std::string& type, const std::string& where) {
  if (type == "none") return nn::MambaDirections::none;
  if (type == "v1") return nn::MambaDirections::v1;
  check(type == "v2", where, ": bimamba_type '", type, "' is unknown here");
  return nn::MambaDirections::v2;
}

CaseResult check_mixer(const Golden& golden) {
  Comparison comparison;
  for (const auto& [name, config] : golden.config().items()) {
    ConfigReader given(config, name);
    const int64_t dim = given.at("d_model");
    const auto rank = given.has("dt_rank") && config["dt_rank"].is_number() ? config["dt_rank"].get<int64_t>()
                                                                            : (dim + 15) / 16;
    const nn::MambaOptions options{.dim = dim,
                                   .state = given.value("d_state", int64_t{16}),
                                   .kernel = given.value("d_conv", int64_t{4}),
                                   .inner = given.value("expand", int64_t{2}) * dim,
                                   .dt_rank = rank,
                                   .directions = directions_of(given.value("bimamba_type", "none"), name),
                                   .divide = given.value("if_divide_out", false),
                                   .conv_bias = given.value("conv_bias", true),
                                   .bias = given.value("bias", false),
                                   .init_values = given.value("init_layer_scale", 0.0)};
    given.expect("use_fast_path", true);  // without it, the published code has one direction
    // Shapes of the input, and first values that the golden's replace.
    given.pass_over(
        {"batch", "length", "dt_min", "dt_max", "dt_init", "dt_scale", "dt_init_floor", "layer_idx"});
    given.finish();
    for (const torch::ScalarType dtype : kPrecisions) {
      const auto mixer = std::make_shared<nn::MambaImpl>(options);
      PublishedCase one(comparison, golden, dtype, name + "/");
      one.load({{"", mixer}},
               train::sources_of(train::NameTable("", "", {}).ours(golden.names(name + "/param."))));
      one.output("y", mixer->forward(one.input("x")));
      one.gradients();
    }
  }
  return comparison.result();
}

const char* class_token_of(ConfigReader& given) {
  const bool any = given.value("if_cls_token", true), both = given.value("use_double_cls_token", false),
             middle = given.value("use_middle_cls_token", true);
  if (!any) return "none";
  if (both) return "both";
  return middle ? "middle" : "head";
}

models::ModelSpec vim_spec(const nlohmann::json& config, const std::string& name) {
  ConfigReader given(config, name);
  Value settings;
  const auto copy = [&](const char* theirs, const char* ours) {
    if (given.has(theirs)) settings.set(ours, to_value(config[theirs]));
  };
  for (const auto& [theirs, ours] :
       std::vector<std::pair<const char*, const char*>>{{"img_size", "image_size"},
                                                        {"patch_size", "patch_size"},
                                                        {"stride", "stride"},
                                                        {"depth", "depth"},
                                                        {"embed_dim", "dim"},
                                                        {"d_state", "state"},
                                                        {"channels", "in_channels"},
                                                        {"num_classes", "classes"},
                                                        {"drop_path_rate", "drop_path"},
                                                        {"norm_epsilon", "norm_eps"},
                                                        {"if_abs_pos_embed", "positions"},
                                                        {"if_rope", "rope"},
                                                        {"pt_hw_seq_len", "rope_span"},
                                                        {"if_rope_residual", "rope_residual"},
                                                        {"if_bidirectional", "layer_pairs"},
                                                        {"init_layer_scale", "init_values"},
                                                        {"dt_rank", "dt_rank"},
                                                        {"expand", "expand"},
                                                        {"d_conv", "conv_kernel"},
                                                        {"conv_bias", "conv_bias"},
                                                        {"bias", "proj_bias"}})
    copy(theirs, ours);
  settings.set("divide", given.value("if_divide_out", true));
  settings.set("norm", given.value("rms_norm", true) ? "rms" : "layer");
  settings.set("class_token", class_token_of(given));
  const std::string pooling = given.value("final_pool_type", "none"),
                    type = given.value("bimamba_type", "v2");
  check(pooling == "none" || pooling == "mean" || pooling == "max", name, ": final_pool_type '", pooling,
        "' is unknown here");
  settings.set("pooling", pooling == "none" ? "last" : pooling);
  const bool first_version = given.value("if_bimamba", false);
  settings.set("directions", first_version ? std::string("v1") : type);
  directions_of(type, name);
  given.expect("drop_rate", 0.0);
  given.expect("use_fast_path", true);
  if (given.has("flip_img_sequences_ratio"))
    check(config["flip_img_sequences_ratio"].get<double>() <= 0, name, ": sequences are flipped at random");
  // The order of the same sums, and the dtype of the residual, here that of the run.
  given.pass_over({"fused_add_norm", "residual_in_fp32", "ft_seq_len", "dt_min", "dt_max", "dt_init",
                   "dt_scale", "dt_init_floor", "initializer_cfg"});
  given.finish();
  return models::resolve_model("vim", settings);
}

CaseResult check_vim(const Golden& golden) {
  Comparison comparison;
  for (const auto& [name, config] : golden.config().items()) {
    const models::ModelSpec spec = vim_spec(config, name);
    for (const torch::ScalarType dtype : kPrecisions) {
      const auto model = models::build_classifier(spec, 0);
      PublishedCase one(comparison, golden, dtype, name + "/");
      one.load({{"", model->backbone}},
               train::sources_of(train::names_of_family("vim").ours(golden.names(name + "/param."))));
      const std::vector<Tensor> read = model->backbone->read_outs(one.input("x"));
      one.output("features", read[0]);
      one.output("y", model->classes() > 0 ? model->forward(one.input("x")) : read[0]);
      one.gradients();
    }
  }
  return comparison.result();
}

const Registered registered({
    {"selective_scan", check_selective_scan, {"components/block_selective_scan"}},
    {"mamba", check_mixer, {"components/block_vim_mamba"}},
    {"vim", check_vim, {"components/model_vim"}},
});

}  // namespace
}  // namespace tessera::parity::mamba_cases
