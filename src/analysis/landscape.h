// The loss around trained weights: slices along directions (Li et al. 2018), the line between two models, and the Hessian's
// eigenvalues and trace by products with vectors.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tessera::analysis {

// The weights that are changed, and the loss at their present values; both stay the caller's. A flat vector holds all tensors
// one after the other.
struct Objective {
  std::vector<torch::Tensor> parameters;
  std::function<torch::Tensor()> loss;  // a scalar with its graph
};

using Direction = std::vector<torch::Tensor>;  // a tensor for each parameter, of its shape

// Whose length a direction takes: each filter's (row of a tensor with two or more axes) or each tensor's. Tensors of one axis
// (biases, norms) get 0.
enum class Normalisation { filter, layer };
// d |w| / (|d| + 1e-10).
Direction normalised(const Direction& direction, const std::vector<torch::Tensor>& parameters,
                     Normalisation by = Normalisation::filter);
// Normal numbers that the seed and `number` alone decide.
Direction random_direction(const std::vector<torch::Tensor>& parameters, uint64_t seed, uint64_t number);

torch::Tensor flat(const Direction& tensors);
// Cut into tensors of those shapes.
Direction shaped(const torch::Tensor& flat, const std::vector<torch::Tensor>& like);

// Puts the parameters back to what they were, whatever happens.
class KeptParameters {
 public:
  explicit KeptParameters(std::vector<torch::Tensor> parameters);
  ~KeptParameters();
  KeptParameters(const KeptParameters&) = delete;
  // parameters = kept + sum of weight * direction.
  void move(const std::vector<std::pair<double, const Direction*>>& steps);

 private:
  std::vector<torch::Tensor> parameters_, kept_;
};

// The loss at kept + alpha d for each alpha. `progress` is told each point and may stop by returning false; points behind are
// then missing.
using Progress = std::function<bool(int64_t done, int64_t total)>;
std::vector<double> loss_line(const Objective& objective, const Direction& direction,
                              const std::vector<double>& alphas, const Progress& progress = {});
// loss[i * alphas.size() + j] at kept + alphas[i] first + alphas[j] second; `known` holds the points of a stopped run.
std::vector<double> loss_plane(const Objective& objective, const Direction& first, const Direction& second,
                               const std::vector<double>& alphas, const Progress& progress = {},
                               std::vector<double> known = {});
// The same with other places along the second direction: loss[i * second_alphas.size() + j].
std::vector<double> loss_plane(const Objective& objective, const Direction& first, const Direction& second,
                               const std::vector<double>& first_alphas,
                               const std::vector<double>& second_alphas, const Progress& progress = {},
                               std::vector<double> known = {});
// The plane through three points in the space of weights. Its directions are float64, orthogonal and of length 1, so that distances
// on it are those of the weights: the origin stands at (0, 0), b at (b_first, 0), c at (c_first, c_second).
struct PlaneThrough {
  Direction first, second;
  double b_first = 0, c_first = 0, c_second = 0;  // b_first and c_second are positive
};
// Nothing where the three stand on one line.
std::optional<PlaneThrough> plane_through(const std::vector<torch::Tensor>& origin,
                                          const std::vector<torch::Tensor>& b,
                                          const std::vector<torch::Tensor>& c);
// The loss at (1 - t) kept + t other.
std::vector<double> loss_between(const Objective& objective, const std::vector<torch::Tensor>& other,
                                 const std::vector<double>& places, const Progress& progress = {});

double loss_of(const Objective& objective);
torch::Tensor gradient_of(const Objective& objective);  // flat

// How the product of the Hessian with a vector is computed: by differentiating the gradient (where every operation has a second
// derivative; the fused kernels refuse), or from gradients on both sides, (g(w + e v) - g(w - e v)) / 2e.
enum class HessianProduct { exact, differences };
torch::Tensor hessian_times(const Objective& objective, const torch::Tensor& vector,
                            HessianProduct how = HessianProduct::exact);

struct PowerIteration {
  std::vector<double> rayleigh;  // v . H v before each update
  torch::Tensor vector;          // of length 1
};
// Tends to the eigenvalue of largest magnitude, which may be negative; with a shift to the one farthest from it, so that a shift
// by the least gives the largest. `start` flat. Stops after `steps`, or where the quotient changes by less than `tolerance` of its
// distance from the shift.
PowerIteration power_iteration(const Objective& objective, const torch::Tensor& start, int64_t steps,
                               double tolerance = 0, HessianProduct how = HessianProduct::exact,
                               const Progress& progress = {}, double shift = 0);
// z . H z for each row of `probes`; of rows of +-1 the mean is an estimate of the trace (Hutchinson).
std::vector<double> trace_estimates(const Objective& objective, const torch::Tensor& probes,
                                    HessianProduct how = HessianProduct::exact);

// The eigenvalues of the Hessian's part that `steps` products with vectors span (Lanczos with full orthogonalisation), rising:
// its ends approach the least and the largest eigenvalue.
std::vector<double> lanczos_values(const Objective& objective, const torch::Tensor& start, int64_t steps,
                                   HessianProduct how = HessianProduct::exact, const Progress& progress = {});

}  // namespace tessera::analysis
