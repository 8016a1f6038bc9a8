// The loss around trained weights: slices along directions (Li et al. 2018), the line between two models, and
// the Hessian's eigenvalues and trace by Hessian-vector products.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tessera::analysis {

// The weights to vary, and the loss at their current values; the caller owns both. A flat vector is all
// tensors concatenated.
struct Objective {
  std::vector<torch::Tensor> parameters;
  std::function<torch::Tensor()> loss;  // a scalar with its graph
};

using Direction = std::vector<torch::Tensor>;  // one tensor per parameter, with its shape

// The unit to scale: each filter (row of a tensor with two or more axes) or each tensor. Tensors of one axis
// (biases, norms) get direction 0.
enum class Normalisation { filter, layer };
// Returns d |w| / (|d| + 1e-10) for each unit.
Direction normalised(const Direction& direction, const std::vector<torch::Tensor>& parameters,
                     Normalisation by = Normalisation::filter);
// Returns normal random numbers that depend only on the seed and `number`.
Direction random_direction(const std::vector<torch::Tensor>& parameters, uint64_t seed, uint64_t number);

torch::Tensor flat(const Direction& tensors);
// Splits a flat vector into tensors with the shapes of the parameters.
Direction shaped(const torch::Tensor& flat, const std::vector<torch::Tensor>& like);

// Restores the parameters on destruction, also after an exception.
class KeptParameters {
 public:
  explicit KeptParameters(std::vector<torch::Tensor> parameters);
  ~KeptParameters();
  KeptParameters(const KeptParameters&) = delete;
  // Sets parameters = kept + sum of weight * direction.
  void move(const std::vector<std::pair<double, const Direction*>>& steps);

 private:
  std::vector<torch::Tensor> parameters_, kept_;
};

// Returns the loss at kept + alpha d for each alpha. `progress` is called after each point; if it returns
// false, the remaining points are missing.
using Progress = std::function<bool(int64_t done, int64_t total)>;
std::vector<double> loss_line(const Objective& objective, const Direction& direction,
                              const std::vector<double>& alphas, const Progress& progress = {});
// Returns the losses at kept + alphas[i] first + alphas[j] second, row-major; `known`: points computed by an
// earlier, stopped run.
std::vector<double> loss_plane(const Objective& objective, const Direction& first, const Direction& second,
                               const std::vector<double>& alphas, const Progress& progress = {},
                               std::vector<double> known = {});
// The same with separate alphas for the second direction: loss[i * second_alphas.size() + j].
std::vector<double> loss_plane(const Objective& objective, const Direction& first, const Direction& second,
                               const std::vector<double>& first_alphas,
                               const std::vector<double>& second_alphas, const Progress& progress = {},
                               std::vector<double> known = {});
// The plane through three points in weight space. Its directions are float64 and orthonormal, so that
// distances on it equal those of the weights: the origin is (0, 0), b is (b_first, 0), c is (c_first,
// c_second).
struct PlaneThrough {
  Direction first, second;
  double b_first = 0, c_first = 0, c_second = 0;  // b_first and c_second are positive
};
// Returns nothing if the three points are collinear.
std::optional<PlaneThrough> plane_through(const std::vector<torch::Tensor>& origin,
                                          const std::vector<torch::Tensor>& b,
                                          const std::vector<torch::Tensor>& c);
// Returns the loss at (1 - t) kept + t other.
std::vector<double> loss_between(const Objective& objective, const std::vector<torch::Tensor>& other,
                                 const std::vector<double>& places, const Progress& progress = {});

double loss_of(const Objective& objective);
torch::Tensor gradient_of(const Objective& objective);  // flat

// How Hessian-vector products are computed. exact: differentiates the gradient, which needs second
// derivatives (the fused kernels have none). differences: (g(w + e v) - g(w - e v)) / 2e.
enum class HessianProduct { exact, differences };
torch::Tensor hessian_times(const Objective& objective, const torch::Tensor& vector,
                            HessianProduct how = HessianProduct::exact);

struct PowerIteration {
  std::vector<double> rayleigh;  // v . H v before each update
  torch::Tensor vector;          // of length 1
};
// Converges to the eigenvalue of largest magnitude, which may be negative. With a shift it converges to the
// one farthest from the shift, so a shift by the smallest gives the largest. `start` is flat. Stops after
// `steps`, or once the quotient changes by less than `tolerance` times its distance from the shift.
PowerIteration power_iteration(const Objective& objective, const torch::Tensor& start, int64_t steps,
                               double tolerance = 0, HessianProduct how = HessianProduct::exact,
                               const Progress& progress = {}, double shift = 0);
// Returns z . H z for each row of `probes`; for rows of +-1 the mean estimates the trace (Hutchinson).
std::vector<double> trace_estimates(const Objective& objective, const torch::Tensor& probes,
                                    HessianProduct how = HessianProduct::exact);

}  // namespace tessera::analysis
