// components/posenc_*, block_resample_pos_embed: the positions that vision backbones use. The same files hold
// what language models alone use (sinusoids, T5's buckets, ALiBi, other layouts and scalings of RoPE); that
// is not compared here.
#include "core/error.h"
#include "core/text.h"
#include "nn/position.h"
#include "nn/rope.h"
#include "tests/parity/case.h"

namespace tessera::parity {
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

}  // namespace

CaseResult check_sine_positions(const Golden& golden) {
  Comparison comparison;
  const Tolerance allowed(golden);
  const std::string prefix = "mae_sincos2d.";
  for (const std::string& name : golden.names("output." + prefix)) {
    const std::vector<int64_t> shape = numbers(name);
    comparison.close(prefix + name, nn::sincos_2d(shape.at(0), shape.at(1), shape.at(2)),
                     golden.tensor("output." + prefix + name), allowed.relative, allowed.absolute);
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
  const torch::Tensor q = nn::rotate(golden.tensor("input.q"), rotation),
                      k = nn::rotate(golden.tensor("input.k"), rotation);
  close("interleaved.q", q);
  close("interleaved.k", k);
  close("interleaved.scores", torch::matmul(q, k.transpose(-2, -1)));
  // A table's row for position p holds p times the frequencies.
  const auto frequencies = [&](double position, double theta) {
    return nn::rotation_1d(torch::full({1}, position, torch::kFloat64), channels, theta).angles[0];
  };
  close("inv_freq", frequencies(1, base));
  close("linear.inv_freq", frequencies(1 / stretch, base));
  const auto width = static_cast<double>(channels);
  close("ntk_aware.inv_freq", frequencies(1, base * std::pow(stretch, width / (width - 2))));
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
      comparison.close(name + "." + way,
                       nn::resample_tokens(golden.tensor("input." + name), cases[i]["prefix"], from[0],
                                           from[1], to[0], to[1], how),
                       golden.tensor("output." + name + "." + way), allowed.relative, allowed.absolute);
  }
  return comparison.result();
}

}  // namespace tessera::parity
