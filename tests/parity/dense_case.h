// What the goldens of dense prediction share: a file holds several cases, told apart by a prefix ("train/"); a case
// without parameters or inputs of its own takes those of another.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/parity/model_case.h"

namespace tessera::parity {

// The names before the first '/' that begins "param.", "input." and "output.": "eval/", "dc5/train/"; "" where the
// file is one case.
std::vector<std::string> case_prefixes(const Golden& golden);

class DenseCase {
 public:
  // `others`: prefixes that are searched after `prefix`.
  DenseCase(const Golden& golden, std::string prefix, std::vector<std::string> others,
            torch::ScalarType dtype);

  // The modules of the case; `part` stands in front of their tensors' names ("decode_head.").
  void add(const std::string& part, const std::shared_ptr<torch::nn::Module>& module);
  // Parameters and buffers by the names that `rename` gives the golden's; all of the modules' parameters must come,
  // and what `rename` calls "" or no module has may stay behind only if it is listed in `unused`.
  void load(const std::function<std::string(const std::string&)>& rename, bool may_leave = false);
  // An input as a leaf with a gradient.
  torch::Tensor input(const std::string& name);
  bool has_input(const std::string& name) const;
  torch::Tensor buffer(const std::string& name) const;  // of the modules, by our name

  // Outputs by their names in the golden; then the gradients of `loss`, or without one of the sum of outputs times
  // loss_weight.*.
  void compare_outputs(Comparison& comparison, const NamedOutputs& outputs) const;
  void compare_gradients(Comparison& comparison, const NamedOutputs& outputs, const torch::Tensor& loss = {});

 private:
  std::string where(const std::string& kind, const std::string& name) const;  // the prefix that has it
  std::vector<std::pair<std::string, torch::Tensor>> stored(const std::string& kind) const;
  void close(Comparison& comparison, const std::string& what, const torch::Tensor& got,
             const torch::Tensor& want, bool gradient) const;

  const Golden& golden_;
  std::string prefix_;
  std::vector<std::string> others_;
  torch::ScalarType dtype_;
  std::vector<std::pair<std::string, std::shared_ptr<torch::nn::Module>>> parts_;
  std::function<std::string(const std::string&)> rename_;
  std::map<std::string, torch::Tensor> inputs_;
  double largest_gradient_ = 0;
};

}  // namespace tessera::parity
