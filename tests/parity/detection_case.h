// What the cases of components/det_* share.
#pragma once

#include "models/detection/detector.h"
#include "tests/parity/case.h"

namespace tessera::parity {

// A case of a golden that holds several: its tensors have this in front of their names ("eval/").
struct SubCase {
  const Golden& golden;
  std::string prefix;
  torch::ScalarType dtype = torch::kFloat64;

  bool has(const std::string& name) const { return golden.has(prefix + name); }
  torch::Tensor tensor(const std::string& name) const { return golden.tensor(prefix + name, dtype); }
  std::vector<std::string> names(const std::string& start) const { return golden.names(prefix + start); }
  // Compares with the stored tensor: results, or gradients ("grad." in the name), as the golden's tolerance says, in
  // double more sharply.
  void compare(Comparison& comparison, const std::string& name, const torch::Tensor& got) const;
  void equal(Comparison& comparison, const std::string& name, const torch::Tensor& got) const;
  std::string what(const std::string& name) const {
    return (dtype == torch::kFloat64 ? "float64 " : "float32 ") + prefix + name;
  }
};
// The names before the first "/" of all tensors, in order.
std::vector<std::string> sub_cases(const Golden& golden);

std::vector<int64_t> numbers(const nlohmann::json& list);

}  // namespace tessera::parity
