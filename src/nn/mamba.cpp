#include "nn/mamba.h"

#include <string>

#include "nn/init.h"
#include "ops/selective_scan.h"

namespace tessera::nn {
namespace {

struct Convolution : torch::nn::Module {
  Convolution(int64_t channels, int64_t kernel, bool with_bias) {
    weight = register_parameter("weight", zeros({channels, 1, kernel}));
    if (with_bias) bias = register_parameter("bias", zeros({channels}));
  }
  torch::Tensor weight, bias;
};

}  // namespace

MambaImpl::MambaImpl(const MambaOptions& options) : options_(options) {
  // The order of the published parameters: those outside layers first.
  const int64_t inner = options.inner;
  if (options.init_values > 0)
    gamma_ = register_parameter("gamma", ones({options.dim}).mul_(options.init_values));
  const bool v2 = options.directions == MambaDirections::v2;
  forward_.a_log = register_parameter("A_log", zeros({inner, options.state}));
  forward_.d = register_parameter("D", ones({inner}));
  if (options.directions == MambaDirections::v1)
    a_b_log_ = register_parameter("A_b_log", zeros({inner, options.state}));
  if (v2) {
    backward_.a_log = register_parameter("A_b_log", zeros({inner, options.state}));
    backward_.d = register_parameter("D_b", ones({inner}));
  }
  in_proj_ = register_module("in_proj", Linear(options.dim, 2 * inner, options.bias));
  const auto add_layers = [&](Direction& to, const std::string& suffix) {
    const auto conv = register_module(
        "conv1d" + suffix, std::make_shared<Convolution>(inner, options.kernel, options.conv_bias));
    to.conv_weight = conv->weight, to.conv_bias = conv->bias;
    to.x_proj = register_module("x_proj" + suffix,
                                Linear(inner, options.dt_rank + 2 * options.state, /*with_bias=*/false));
    to.dt_proj = register_module("dt_proj" + suffix, Linear(options.dt_rank, inner));
    to.dt_proj->keep_exact();
  };
  add_layers(forward_, "");
  if (v2) add_layers(backward_, "_b");
  out_proj_ = register_module("out_proj", Linear(inner, options.dim, options.bias));
}

torch::Tensor MambaImpl::walk(const Direction& by, const torch::Tensor& x, const torch::Tensor& z,
                              bool reverse) const {
  const torch::Tensor a = ops::causal_convolution_silu(x, by.conv_weight, by.conv_bias, reverse);
  const std::vector<torch::Tensor> parts =
      by.x_proj->forward(a).split_with_sizes({options_.dt_rank, options_.state, options_.state}, -1);
  ops::SelectiveScanInputs in{.u = a,
                              .delta = torch::matmul(parts[0], by.dt_proj->weight.t()),
                              .a = -torch::exp(by.a_log),
                              .b = parts[1],
                              .c = parts[2],
                              .d = by.d,
                              .z = z,
                              .delta_bias = by.dt_proj->bias,
                              .reverse = reverse};
  torch::Tensor y = ops::selective_scan(in).y;
  if (!a_b_log_.defined()) return y;
  in.a = -torch::exp(a_b_log_);
  in.reverse = !reverse;
  return y + ops::selective_scan(in).y;
}

torch::Tensor MambaImpl::forward(const DeferredNorm& tokens, const Epilogue& given, bool flipped) const {
  const std::vector<torch::Tensor> xz = in_proj_->forward(tokens).chunk(2, -1);
  torch::Tensor y = walk(forward_, xz[0], xz[1], flipped);
  if (options_.directions == MambaDirections::v2) {
    y = y + walk(backward_, xz[0], xz[1], !flipped);
    if (options_.divide) y = y / 2;
  }
  Epilogue epilogue = given;
  if (gamma_.defined()) epilogue.scale = gamma_;
  return out_proj_->forward(y, epilogue);
}

int64_t MambaImpl::macs() const {
  const int64_t scan = 3 * options_.inner * options_.state;
  const int64_t direction =
      options_.inner * options_.kernel + forward_.x_proj->macs() + forward_.dt_proj->macs() + scan;
  const int64_t projections = in_proj_->macs() + out_proj_->macs();
  switch (options_.directions) {
    case MambaDirections::none:
      return projections + direction;
    case MambaDirections::v1:
      return projections + direction + scan;
    case MambaDirections::v2:
      break;
  }
  return projections + 2 * direction;
}

}  // namespace tessera::nn
