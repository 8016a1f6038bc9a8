#include "optim/clip.h"

#include "ops/torch.h"

#include <cmath>
#include <functional>

#include "core/error.h"
#include "core/text.h"
#include "optim/plain_loops.h"
#include "optim/plain_tensors.h"

namespace tessera::train {
namespace {

std::vector<torch::Tensor> gradients_of(const std::vector<torch::Tensor>& parameters) {
  std::vector<torch::Tensor> gradients;
  for (const torch::Tensor& parameter : parameters)
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  return gradients;
}

// The blocks' norms, combined without the final root: a sum of magnitudes or squares, or a maximum.
struct Partial {
  double norm_type, value = 0;
  void add(double other) {
    if (std::isinf(norm_type))
      value = other > value || std::isnan(other) ? other : value;
    else
      value += other;
  }
};

// Returns the sum, or the maximum, of `of` over all blocks.
double plain_partial(const std::vector<torch::Tensor>& tensors, double norm_type,
                     const std::function<double(const float* x, int64_t n)>& of) {
  std::vector<int64_t> sizes;
  for (const torch::Tensor& tensor : tensors) sizes.push_back(tensor.numel());
  const auto blocks = plain::cut_into_blocks(sizes);
  std::vector<double> values(blocks.size());
  plain::for_each_block(blocks, [&](size_t i) {
    const auto& [tensor, begin, end] = blocks[i];
    values[i] = of(tensors[tensor].const_data_ptr<float>() + begin, end - begin);
  });
  Partial total{norm_type};
  for (const double value : values) total.add(value);
  return total.value;
}

double plain_partial(const std::vector<torch::Tensor>& tensors, double norm_type) {
  if (std::isinf(norm_type))
    return plain_partial(tensors, norm_type, [](const float* x, int64_t n) {
      return static_cast<double>(plain::largest_magnitude(x, n));
    });
  return plain_partial(tensors, norm_type, norm_type == 1 ? plain::sum_of_magnitudes : plain::sum_of_squares);
}

// Any other p: divides magnitudes by the largest one, to keep their powers in range.
double norm_of_powers(const std::vector<torch::Tensor>& flat, const std::vector<torch::Tensor>& others,
                      double power, double largest) {
  if (largest == 0 || !std::isfinite(largest)) return largest;
  double sum = plain_partial(
      flat, power, [&](const float* x, int64_t n) { return plain::sum_of_powers(x, n, largest, power); });
  for (const torch::Tensor& tensor : others)
    sum += (tensor.to(torch::kFloat64).abs() / largest).pow(power).sum().item<double>();
  return largest * std::pow(sum, 1 / power);
}

// Clips one gradient adaptively: its norm by units (rows of the first dimension; a vector is one unit) is
// limited to `share` of the parameter's, taken as at least 1e-3. Both norms are of order `power`.
void clip_adaptively(const torch::Tensor& parameter, torch::Tensor gradient, double share, double power) {
  if (gradient.numel() == 0) return;
  std::vector<int64_t> dims;
  for (int64_t d = 1; d < parameter.dim(); ++d) dims.push_back(d);
  const auto norm = [&](const torch::Tensor& t) {
    return t.dim() <= 1 ? at::linalg_vector_norm(t, power)
                        : at::linalg_vector_norm(t, power, dims, /*keepdim=*/true);
  };
  const torch::Tensor allowed = norm(parameter).clamp_min(1e-3) * share, present = norm(gradient);
  gradient.mul_(
      torch::where(present < allowed, torch::ones_like(present), allowed / present.clamp_min(1e-6)));
}

// Limits the norm of each gradient to `largest`. The host waits for no gradient on a device.
void limit_norms(const std::vector<torch::Tensor>& gradients, double largest, double power) {
  std::vector<torch::Tensor> others;
  for (torch::Tensor gradient : gradients) {
    if (gradient.numel() == 0) continue;
    if (!plain::is_plain(gradient)) {
      others.push_back(gradient);
    } else if (const double norm = gradient_norm({gradient}, power); norm + 1e-6 > largest) {
      gradient.mul_(largest / (norm + 1e-6));
    }
  }
  if (others.empty()) return;
  std::vector<torch::Tensor> factors;
  for (const torch::Tensor& norm : at::_foreach_norm(others, power))
    factors.push_back((largest / (norm + 1e-6)).clamp_max(1));
  at::_foreach_mul_(others, factors);
}

// The modes that treat each gradient by itself, without reading anything back from a GPU.
void clip_each(const ClipConfig& config, const std::vector<torch::Tensor>& parameters) {
  if (config.mode == "each") {
    limit_norms(gradients_of(parameters), config.value, config.norm_type);
  } else if (config.mode == "value") {
    for (torch::Tensor gradient : gradients_of(parameters)) gradient.clamp_(-config.value, config.value);
  } else if (config.mode == "agc") {
    for (const torch::Tensor& parameter : parameters)
      if (parameter.grad().defined())
        clip_adaptively(parameter.detach(), parameter.grad(), config.value, config.norm_type);
  }
}

}  // namespace

void ClipConfig::check(const std::string& where) const {
  const std::vector<std::string> modes = {"none", "norm", "value", "agc", "each"};
  if (std::find(modes.begin(), modes.end(), mode) == modes.end())
    fail_usage(where, ".mode is '", mode, "', must be one of ", join(modes, ", "), did_you_mean(mode, modes));
  if (!(value > 0)) fail_usage(where, ".value is ", shortest(value), ", must be above 0");
  if (!(norm_type > 0)) fail_usage(where, ".norm_type is ", shortest(norm_type), ", must be above 0");
}

double gradient_norm(const std::vector<torch::Tensor>& gradients, double norm_type) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> flat, others;
  for (const torch::Tensor& gradient : gradients)
    if (gradient.numel() > 0) (plain::is_plain(gradient) ? flat : others).push_back(gradient);
  if (norm_type != 1 && norm_type != 2 && !std::isinf(norm_type))
    return norm_of_powers(flat, others, norm_type, gradient_norm(gradients, HUGE_VAL));
  Partial total{norm_type};
  total.add(plain_partial(flat, norm_type));
  if (!others.empty()) {
    const auto norm = gradient_norm_there(others, norm_type).item<double>();
    total.add(norm_type == 2 ? norm * norm : norm);
  }
  return norm_type == 2 ? std::sqrt(total.value) : total.value;
}

torch::Tensor gradient_norm_there(const std::vector<torch::Tensor>& gradients, double norm_type) {
  std::vector<torch::Tensor> norms;
  for (const torch::Tensor& norm : at::_foreach_norm(gradients, norm_type))
    norms.push_back(norm.to(gradients[0].device()));
  return at::linalg_vector_norm(torch::stack(norms).to(torch::kFloat64), norm_type);
}

Clipped clip_gradients(const ClipConfig& config, const std::vector<torch::Tensor>& parameters,
                       const std::vector<torch::Tensor>& unclipped, const NormOfAll& norm_of_all) {
  config.check();
  const torch::NoGradGuard no_grad;
  const auto gradients = gradients_of(parameters);
  auto all = gradients;
  for (const torch::Tensor& gradient : gradients_of(unclipped)) all.push_back(gradient);
  Clipped clipped;
  clipped.norm = gradient_norm(all, config.norm_type);
  if (norm_of_all) clipped.norm = norm_of_all(clipped.norm, config.norm_type);
  if (config.mode == "norm") {
    clipped.scale = std::min(1.0, config.value / (clipped.norm + 1e-6));
    if (std::isnan(clipped.norm)) clipped.scale = clipped.norm;  // a NaN stays visible, as in the quotient
  }
  clip_each(config, parameters);
  return clipped;
}

ClippedThere clip_gradients_there(const ClipConfig& config, const std::vector<torch::Tensor>& parameters,
                                  const std::vector<torch::Tensor>& unclipped, const torch::Tensor& loss) {
  config.check();
  const torch::NoGradGuard no_grad;
  const auto gradients = gradients_of(parameters);
  auto all = gradients;
  for (const torch::Tensor& gradient : gradients_of(unclipped)) all.push_back(gradient);
  std::erase_if(all, [](const torch::Tensor& gradient) { return gradient.numel() == 0; });
  const torch::Tensor own = loss.detach().to(torch::kFloat64);
  const torch::Tensor norm =
      all.empty() ? torch::zeros_like(own) : gradient_norm_there(all, config.norm_type);
  torch::Tensor scale = torch::ones_like(norm);
  if (config.mode == "norm") scale = (config.value / (norm + 1e-6)).clamp_max(1);
  clip_each(config, parameters);
  // Nothing times zero is nothing, except for infinity and NaN.
  return {norm, (scale + 0 * (norm + own)).to(torch::kFloat32)};
}

}  // namespace tessera::train
