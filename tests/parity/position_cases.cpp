// components/posenc_*, block_resample_pos_embed: absolute, relative and rotary positions.
#include <regex>

#include "core/error.h"
#include "core/text.h"
#include "nn/position.h"
#include "nn/relative_position.h"
#include "nn/rope.h"
#include "nn/rope_scaling.h"
#include "ops/cached_attention.h"
#include "tests/parity/case.h"
#include "tests/parity/config_reader.h"

namespace tessera::parity::position_cases {
namespace {

struct Tolerance {
  explicit Tolerance(const Golden& golden)
      : relative(golden.meta["tolerance"]["rtol"]), absolute(golden.meta["tolerance"]["atol"]) {}
  double relative, absolute;
};

// "4x6x16" -> {4, 6, 16}.
std::vector<int64_t> numbers(const std::string& shape) {
  std::vector<int64_t> out;
  for (const std::string& part : split(shape, 'x')) {
    const auto number = parse_int(part);
    check(number.has_value(), "'", shape, "' is not a shape");
    out.push_back(*number);
  }
  return out;
}

// "n32" -> 32.
int64_t number_behind(const std::string& part, const std::string& sign) {
  check(part.starts_with(sign), "'", part, "' does not begin with '", sign, "'");
  return numbers(part.substr(sign.size())).at(0);
}

CaseResult check_sine_positions(const Golden& golden) {
  Comparison comparison;
  const Tolerance allowed(golden);
  // "mae_sincos2d.4x6x16", "alibi_causal.h8", "t5_bucket.bi1.n32.max128": a kind and what it is made for.
  for (const std::string& name : golden.names("output.")) {
    const std::vector<std::string> parts = split(name, '.');
    const std::string& kind = parts.at(0);
    const torch::Tensor want = golden.tensor("output." + name);
    const auto close = [&](const torch::Tensor& got) {
      comparison.close(name, got, want, allowed.relative, allowed.absolute);
    };
    if (kind == "t5_bucket") {
      const torch::Tensor got = nn::relative_buckets(
          golden.tensor("input.t5_relative_position"), number_behind(parts.at(1), "bi") == 1,
          number_behind(parts.at(2), "n"), number_behind(parts.at(3), "max"));
      comparison.equal(name, got, want);
    } else if (kind.starts_with("alibi")) {
      const int64_t heads = number_behind(parts.at(1), "h");
      const torch::Tensor slopes = nn::alibi_slopes(heads);
      if (kind == "alibi_slopes") close(slopes);
      if (kind == "alibi_causal") close(nn::alibi_bias(heads, want.size(-1)).tril());
      // BLOOM's form is the last query's row plus a constant that the softmax does not see.
      if (kind == "alibi_key_bias") {
        const int64_t tokens = want.size(-1);
        close(nn::alibi_bias(heads, tokens).select(1, tokens - 1) +
              (slopes * static_cast<double>(tokens - 1)).unsqueeze(1));
      }
    } else {
      const std::vector<int64_t> shape = numbers(parts.at(1));
      if (kind == "mae_sincos2d") close(nn::sincos_2d(shape.at(0), shape.at(1), shape.at(2)));
      if (kind == "timm_sincos2d") close(nn::sincos_2d_rows_first(shape.at(0), shape.at(1), shape.at(2)));
      if (kind == "sinusoidal_concat") close(nn::sinusoids(shape.at(0), shape.at(1), nn::Waves::sines_first));
      if (kind == "sinusoidal_interleaved")
        close(nn::sinusoids(shape.at(0), shape.at(1), nn::Waves::side_by_side));
    }
  }
  comparison.holds("outputs", comparison.count() == static_cast<int64_t>(golden.names("output.").size()),
                   "of some kind are not compared");
  return comparison.result();
}

// Our settings for a scaling by the names of Hugging Face's rope_parameters.
nn::RopeScaling rope_scaling(const nlohmann::json& wanted) {
  ConfigReader params(wanted["params"], "rope_parameters");
  const double most = wanted["max_position_embeddings"];
  const std::string kind = params.at("rope_type");
  nn::RopeScaling scaling;
  if (kind != "default") scaling.kind = parse_enum<nn::RopeScalingKind>(kind, "rope_type");
  scaling.trained = params.value("original_max_position_embeddings", most);
  const bool longrope = scaling.kind == nn::RopeScalingKind::longrope;
  scaling.factor = params.value("factor", longrope ? most / scaling.trained : 1.0);
  scaling.fast = params.value("beta_fast", 32.0), scaling.slow = params.value("beta_slow", 1.0);
  scaling.whole_pairs = params.value("truncate", true);
  scaling.low_frequency = params.value("low_freq_factor", 1.0);
  scaling.high_frequency = params.value("high_freq_factor", 4.0);
  scaling.short_factors = params.value("short_factor", std::vector<double>());
  scaling.long_factors = params.value("long_factor", std::vector<double>());
  const double own = params.value("mscale", 0.0), all = params.value("mscale_all_dim", 0.0);
  if (own != 0 && all != 0)
    scaling.magnitude = nn::yarn_magnitude(scaling.factor, own) / nn::yarn_magnitude(scaling.factor, all);
  scaling.magnitude = params.value("attention_factor", scaling.magnitude);
  params.pass_over({"rope_theta", "partial_rotary_factor"});  // read beside the width of a head
  params.finish();
  return scaling;
}

// ".sin", ".cos" of timm's angles over a grid, and ".y", what it makes of ".x".
void check_over_grid(Comparison& comparison, const Golden& golden, const std::string& name,
                     const nn::Rotation& rotation) {
  const Tolerance allowed(golden);
  const auto close = [&](const char* what, const torch::Tensor& got) {
    comparison.close(name + what, got, golden.tensor("output." + name + what), allowed.relative,
                     allowed.absolute);
  };
  close(".sin", rotation.angles.sin().repeat_interleave(2, 1));
  close(".cos", rotation.angles.cos().repeat_interleave(2, 1));
  close(".y", nn::rotate(golden.tensor("input." + name + ".x"), rotation));
}

// Arguments of timm's RotaryEmbedding, by the name of the case.
CaseResult check_grid_rotary(const Golden& golden) {
  Comparison comparison;
  for (const auto& [name, args] : golden.config().items()) {
    const bool pixels = args["in_pixels"];
    const std::vector<int64_t> grid = args["feat_shape"],
                               trained = args.value("ref_feat_shape", std::vector<int64_t>{0, 0});
    const auto in_pixels =
        args.value("linear_bands", false) ? nn::GridFrequencies::pixels_evenly : nn::GridFrequencies::pixels;
    check_over_grid(comparison, golden, name,
                    nn::rotation_over_grid(grid[0], grid[1], args["dim"],
                                           {.frequencies = pixels ? in_pixels : nn::GridFrequencies::cells,
                                            .resolution = args.value("max_res", 224.0),
                                            .theta = args.value("temperature", 10000.0),
                                            .trained_rows = trained[0],
                                            .trained_columns = trained[1],
                                            .columns_first = args.value("grid_indexing", "ij") == "xy"}));
  }
  return comparison.result();
}

CaseResult check_rotary_positions(const Golden& golden) {
  Comparison comparison;
  const Tolerance allowed(golden);
  const auto close = [&](const std::string& name, const torch::Tensor& got) {
    comparison.close(name, got, golden.tensor("output." + name), allowed.relative, allowed.absolute);
  };
  const auto& config = golden.config();
  const int64_t channels = config["head_dim"];
  const double base = config["base"], stretch = config["ntk_scale"];
  const torch::Tensor positions = golden.tensor("input.positions").to(torch::kFloat64);
  const nn::Rotation rotation = nn::rotation_1d(positions, channels, base);
  for (const std::string layout : {"interleaved", "half"}) {
    const auto rotated = [&](const char* name) {
      const torch::Tensor x = golden.tensor(std::string("input.") + name);
      return layout == "half" ? ops::rotate_halves(x, rotation.angles.cos(), rotation.angles.sin())
                              : nn::rotate(x, rotation);
    };
    const torch::Tensor q = rotated("q"), k = rotated("k");
    close(layout + ".q", q);
    close(layout + ".k", k);
    close(layout + ".scores", torch::matmul(q, k.transpose(-2, -1)));
  }
  close("inv_freq", nn::rotary_frequencies(channels, base));
  close("linear.inv_freq",
        nn::rotary_frequencies(channels, base, {.kind = nn::RopeScalingKind::linear, .factor = stretch}));
  close("ntk_aware.inv_freq",
        nn::rotary_frequencies(channels, base, {.kind = nn::RopeScalingKind::ntk, .factor = stretch}));
  for (const auto& [name, wanted] : config["scaled"].items()) {
    if (!wanted.contains("params")) continue;
    const nn::RopeScaling scaling = rope_scaling(wanted);
    const int64_t length = wanted["seq_len"].is_null() ? 0 : wanted["seq_len"].get<int64_t>();
    const auto channels_of_head = static_cast<int64_t>(wanted["head_dim"].get<double>() *
                                                       wanted["params"].value("partial_rotary_factor", 1.0));
    close("scaled." + name + ".inv_freq",
          nn::rotary_frequencies(channels_of_head, wanted["params"]["rope_theta"], scaling, length));
    const double magnitude = wanted["attention_factor"];
    comparison.holds(name + " magnitude", std::abs(nn::rotary_magnitude(scaling) - magnitude) < 1e-12,
                     "differs");
  }
  const auto& flat = config["scaled"]["timm2d"];
  const std::vector<int64_t> grid = flat["feat_hw"];
  nn::GridRotary pixels;
  const std::string of_pixels = flat.value("pixel", "");
  std::smatch number;
  if (std::regex_search(of_pixels, number, std::regex("max_res=([0-9.]+)")))
    pixels.resolution = std::stod(number[1]);
  check_over_grid(comparison, golden, "timm2d_pixel",
                  nn::rotation_over_grid(grid[0], grid[1], flat["dim"], pixels));
  // "…, temperature 10000, ref_feat_shape [4,4]": positions as on the grid that the model was trained on.
  nn::GridRotary cells{.frequencies = nn::GridFrequencies::cells, .trained_rows = 4, .trained_columns = 4};
  const std::string told = flat.value("lang", "");
  std::smatch found;
  if (std::regex_search(told, found, std::regex("ref_feat_shape \\[(\\d+), ?(\\d+)\\]")))
    cells.trained_rows = std::stoll(found[1]), cells.trained_columns = std::stoll(found[2]);
  if (std::regex_search(told, found, std::regex("temperature ([0-9.]+)"))) cells.theta = std::stod(found[1]);
  check_over_grid(comparison, golden, "timm2d_lang",
                  nn::rotation_over_grid(grid[0], grid[1], flat["dim"], cells));
  return comparison.result();
}

CaseResult check_resampled_positions(const Golden& golden) {
  static const std::map<std::string, nn::Resample> ways = {{"bicubic.aa1", nn::Resample::bicubic_antialias},
                                                           {"bilinear.aa1", nn::Resample::bilinear_antialias},
                                                           {"bicubic.aa0", nn::Resample::bicubic},
                                                           {"bilinear.aa0", nn::Resample::bilinear}};
  Comparison comparison;
  const Tolerance allowed(golden);
  const auto& cases = golden.config()["cases"];
  for (size_t i = 0; i < cases.size(); ++i) {
    const std::vector<int64_t> from = cases[i]["old_hw"], to = cases[i]["new_hw"];
    const std::string name = "case" + std::to_string(i);
    for (const auto& [way, how] : ways)
      if (golden.has("output." + name + "." + way))
        comparison.close(name + "." + way,
                         nn::resample_tokens(golden.tensor("input." + name), cases[i]["prefix"], from[0],
                                             from[1], to[0], to[1], how),
                         golden.tensor("output." + name + "." + way), allowed.relative, allowed.absolute);
  }
  comparison.holds("outputs", comparison.count() == static_cast<int64_t>(golden.names("output.").size()),
                   "of some kind are not compared");
  return comparison.result();
}

const Registered registered({
    {"sine_positions", check_sine_positions, {"components/posenc_basic"}},
    {"grid_rotary", check_grid_rotary, {"components/posenc_grid_rope"}},
    {"rotary_positions", check_rotary_positions, {"components/posenc_rope"}},
    {"resampled_positions", check_resampled_positions, {"components/block_resample_pos_embed"}},
});

}  // namespace
}  // namespace tessera::parity::position_cases
