// Goldens whose tensors have other forms than ours: q, k and v apart, projections transposed.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/parity/case.h"
#include "weights/stored_tensors.h"

namespace tessera::parity {

// A module of ours and what stands in front of its names.
struct NamedModule {
  std::string prefix;
  std::shared_ptr<torch::nn::Module> module;
};

// The published tensors of a golden as leaves, and ours filled from them.
class PublishedCase {
 public:
  // `prefix` stands in front of the golden's names, where it holds several cases. Tensors of ours that no source makes,
  // and published ones that none uses, are failures.
  PublishedCase(Comparison& comparison, const Golden& golden, torch::ScalarType dtype,
                std::string prefix = "");
  void load(const std::vector<NamedModule>& modules, const std::vector<train::TensorSource>& sources);

  torch::Tensor input(const std::string& name);  // a leaf, in the precision of the case
  // An output against the golden's of that name; one with a loss_weight joins the loss.
  void output(const std::string& name, const torch::Tensor& got);
  // Backward, and the gradients of published tensors and inputs against the golden's.
  void gradients();

 private:
  void close(const std::string& what, const torch::Tensor& got, const torch::Tensor& want, bool gradient);

  Comparison& comparison_;
  const Golden& golden_;
  torch::ScalarType dtype_;
  std::string prefix_;
  std::map<std::string, torch::Tensor> published_, inputs_, ours_;
  std::set<std::string>
      zero_;  // gradients that are zero up to rounding, compared with the size of the others
  std::vector<train::TensorSource> sources_;
  torch::Tensor loss_;
  double largest_gradient_ = 0;
};

// The names and shapes of a golden's parameters.
std::vector<std::pair<std::string, std::vector<int64_t>>> shapes_of(const Golden& golden,
                                                                    const std::string& prefix = "");

}  // namespace tessera::parity
