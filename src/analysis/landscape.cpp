#include "analysis/landscape.h"

#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/error.h"
#include "core/random.h"

namespace tessera::analysis {
namespace {

// Returns the length of each row of a tensor with several axes, as a column for broadcasting.
torch::Tensor row_lengths(const torch::Tensor& tensor) {
  std::vector<int64_t> shape(static_cast<size_t>(tensor.dim()), 1);
  shape[0] = tensor.size(0);
  return tensor.flatten(1).norm(2, {1}).view(shape);
}

std::vector<torch::Tensor> gradients(const Objective& objective, bool with_graph) {
  const torch::AutoGradMode on(true);
  const torch::Tensor loss = objective.loss();
  check(loss.dim() == 0, "landscape: the loss is ", loss.sizes(), ", must be a scalar");
  std::vector<torch::Tensor> out =
      torch::autograd::grad({loss}, objective.parameters, {}, with_graph, with_graph, /*allow_unused=*/true);
  for (size_t i = 0; i < out.size(); ++i)
    if (!out[i].defined()) out[i] = torch::zeros_like(objective.parameters[i]);
  return out;
}

void check_same_shapes(const Direction& direction, const std::vector<torch::Tensor>& parameters) {
  check(direction.size() == parameters.size(), "landscape: a direction of ", direction.size(),
        " tensors for ", parameters.size(), " parameters");
  for (size_t i = 0; i < direction.size(); ++i)
    check(direction[i].sizes() == parameters[i].sizes(), "landscape: a direction ", direction[i].sizes(),
          " for a parameter ", parameters[i].sizes());
}

bool go_on(const Progress& progress, size_t done, size_t total) {
  return !progress || progress(static_cast<int64_t>(done), static_cast<int64_t>(total));
}

}  // namespace

Direction normalised(const Direction& direction, const std::vector<torch::Tensor>& parameters,
                     Normalisation by) {
  check_same_shapes(direction, parameters);
  const torch::NoGradGuard no_grad;
  Direction out;
  for (size_t i = 0; i < direction.size(); ++i) {
    const torch::Tensor &d = direction[i], &w = parameters[i];
    if (d.dim() < 2)
      out.push_back(torch::zeros_like(d));
    else if (by == Normalisation::layer)
      out.push_back(d * (w.norm() / (d.norm() + 1e-10)));
    else
      out.push_back(d * (row_lengths(w) / (row_lengths(d) + 1e-10)));
  }
  return out;
}

Direction random_direction(const std::vector<torch::Tensor>& parameters, uint64_t seed, uint64_t number) {
  Direction out;
  for (size_t i = 0; i < parameters.size(); ++i) {
    RandomStream stream(seed, "landscape", number, i);
    torch::Tensor values = torch::empty(parameters[i].sizes(), torch::kFloat64);
    auto* numbers = values.mutable_data_ptr<double>();
    for (int64_t k = 0; k < values.numel(); ++k) numbers[k] = stream.normal();
    out.push_back(values.to(parameters[i].options().requires_grad(false)));
  }
  return out;
}

torch::Tensor flat(const Direction& tensors) {
  std::vector<torch::Tensor> parts;
  for (const torch::Tensor& tensor : tensors) parts.push_back(tensor.detach().flatten());
  return torch::cat(parts);
}

Direction shaped(const torch::Tensor& whole, const std::vector<torch::Tensor>& like) {
  Direction out;
  int64_t at = 0;
  for (const torch::Tensor& tensor : like) {
    out.push_back(whole.slice(0, at, at + tensor.numel()).view(tensor.sizes()));
    at += tensor.numel();
  }
  check(at == whole.numel(), "landscape: a vector of ", whole.numel(), " numbers for ", at);
  return out;
}

KeptParameters::KeptParameters(std::vector<torch::Tensor> parameters) : parameters_(std::move(parameters)) {
  for (const torch::Tensor& parameter : parameters_) kept_.push_back(parameter.detach().clone());
}

KeptParameters::~KeptParameters() { move({}); }

void KeptParameters::move(const std::vector<std::pair<double, const Direction*>>& steps) {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    torch::Tensor value = kept_[i];
    for (const auto& [weight, direction] : steps) value = value + weight * direction->at(i);
    parameters_[i].copy_(value);
  }
}

double loss_of(const Objective& objective) {
  const torch::NoGradGuard no_grad;
  return objective.loss().item<double>();
}

torch::Tensor gradient_of(const Objective& objective) { return flat(gradients(objective, false)); }

std::vector<double> loss_line(const Objective& objective, const Direction& direction,
                              const std::vector<double>& alphas, const Progress& progress) {
  check_same_shapes(direction, objective.parameters);
  KeptParameters kept(objective.parameters);
  std::vector<double> losses;
  for (const double alpha : alphas) {
    kept.move({{alpha, &direction}});
    losses.push_back(loss_of(objective));
    if (!go_on(progress, losses.size(), alphas.size())) break;
  }
  return losses;
}

std::vector<double> loss_plane(const Objective& objective, const Direction& first, const Direction& second,
                               const std::vector<double>& alphas, const Progress& progress,
                               std::vector<double> known) {
  return loss_plane(objective, first, second, alphas, alphas, progress, std::move(known));
}

std::vector<double> loss_plane(const Objective& objective, const Direction& first, const Direction& second,
                               const std::vector<double>& first_alphas,
                               const std::vector<double>& second_alphas, const Progress& progress,
                               std::vector<double> known) {
  check_same_shapes(first, objective.parameters);
  check_same_shapes(second, objective.parameters);
  KeptParameters kept(objective.parameters);
  const size_t side = second_alphas.size(), total = first_alphas.size() * side;
  for (size_t point = known.size(); point < total; ++point) {
    kept.move({{first_alphas[point / side], &first}, {second_alphas[point % side], &second}});
    known.push_back(loss_of(objective));
    if (!go_on(progress, known.size(), total)) break;
  }
  return known;
}

std::optional<PlaneThrough> plane_through(const std::vector<torch::Tensor>& origin,
                                          const std::vector<torch::Tensor>& b,
                                          const std::vector<torch::Tensor>& c) {
  // If the rest of an axis is below this share of the distance, it is rounding error of the weights.
  constexpr double kRounding = 1e-5;
  check_same_shapes(b, origin);
  check_same_shapes(c, origin);
  const torch::NoGradGuard no_grad;
  const auto apart = [&](const std::vector<torch::Tensor>& point) {
    Direction out;
    for (size_t i = 0; i < point.size(); ++i)
      out.push_back(point[i].to(torch::kFloat64) - origin[i].to(torch::kFloat64));
    return flat(out);
  };
  torch::Tensor first = apart(b), second = apart(c);
  PlaneThrough out;
  const double to_c = second.norm().item<double>();
  out.b_first = first.norm().item<double>();
  if (!(out.b_first > 0 && to_c > 0)) return std::nullopt;
  first = first / out.b_first;
  out.c_first = first.dot(second).item<double>();
  second = second - out.c_first * first;
  out.c_second = second.norm().item<double>();
  if (out.c_second <= kRounding * std::max(out.b_first, to_c)) return std::nullopt;
  out.first = shaped(first, origin), out.second = shaped(second / out.c_second, origin);
  return out;
}

std::vector<double> loss_between(const Objective& objective, const std::vector<torch::Tensor>& other,
                                 const std::vector<double>& places, const Progress& progress) {
  check_same_shapes(other, objective.parameters);
  Direction apart;
  for (size_t i = 0; i < other.size(); ++i) apart.push_back((other[i] - objective.parameters[i]).detach());
  return loss_line(objective, apart, places, progress);
}

torch::Tensor hessian_times(const Objective& objective, const torch::Tensor& vector, HessianProduct how) {
  if (how == HessianProduct::exact) {
    const std::vector<torch::Tensor> first = gradients(objective, true);
    const torch::AutoGradMode on(true);
    torch::Tensor along = torch::zeros({}, first.at(0).options());
    const Direction parts = shaped(vector, objective.parameters);
    for (size_t i = 0; i < first.size(); ++i)
      if (first[i].requires_grad()) along = along + (first[i] * parts[i]).sum();
    std::vector<torch::Tensor> second =
        torch::autograd::grad({along}, objective.parameters, {}, std::nullopt, false, /*allow_unused=*/true);
    for (size_t i = 0; i < second.size(); ++i)
      if (!second[i].defined()) second[i] = torch::zeros_like(objective.parameters[i]);
    return flat(second);
  }
  const double length = vector.norm().item<double>();
  if (length == 0) return torch::zeros_like(vector);
  // A step size of the cube root of the rounding error balances truncation and rounding, if the curvature
  // changes over distances of about 1. Steps proportional to the weights' norm, which grows with their
  // number, would be too long.
  const bool wide = vector.scalar_type() == torch::kFloat64;
  const double rounding =
      wide ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
  const double reach = std::cbrt(rounding) / length;
  const Direction direction = shaped(vector, objective.parameters);
  KeptParameters kept(objective.parameters);
  kept.move({{reach, &direction}});
  const torch::Tensor ahead = gradient_of(objective);
  kept.move({{-reach, &direction}});
  return (ahead - gradient_of(objective)) / (2 * reach);
}

PowerIteration power_iteration(const Objective& objective, const torch::Tensor& start, int64_t steps,
                               double tolerance, HessianProduct how, const Progress& progress, double shift) {
  PowerIteration found{{}, start / start.norm()};
  for (int64_t i = 0; i < steps; ++i) {
    torch::Tensor product = hessian_times(objective, found.vector, how);
    found.rayleigh.push_back(found.vector.dot(product).item<double>());
    if (shift != 0) product = product - shift * found.vector;
    const torch::Tensor length = product.norm();
    if (length.item<double>() == 0) break;  // a flat loss
    found.vector = product / length;
    const size_t n = found.rayleigh.size();
    if (!go_on(progress, n, static_cast<size_t>(steps))) break;
    if (n > 1 &&
        std::abs(found.rayleigh[n - 1] - found.rayleigh[n - 2]) <=
            tolerance * std::abs(found.rayleigh[n - 1] - shift) &&
        tolerance > 0)
      break;
  }
  return found;
}

std::vector<double> trace_estimates(const Objective& objective, const torch::Tensor& probes,
                                    HessianProduct how) {
  std::vector<double> estimates;
  for (int64_t i = 0; i < probes.size(0); ++i)
    estimates.push_back(probes[i].dot(hessian_times(objective, probes[i], how)).item<double>());
  return estimates;
}

}  // namespace tessera::analysis
