// A golden case (numbers computed by published code) and its result.
//
// The runner reads every case of a folder, finds its handler (handlers.h) and prints one line a case. A handler
// builds the case from its metadata, never from its file name.
#pragma once

#include "ops/torch.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "io/weights/safetensors.h"
#include "tests/parity/handlers.h"

namespace tessera::parity {

struct Golden {
  std::string folder;  // "models", "training" or "components"
  std::string name;    // file name without its ending
  // models, training: the safetensors metadata, each value parsed as JSON if it is JSON, else a string.
  // components: the JSON file next to the arrays, if any.
  nlohmann::json meta;
  std::shared_ptr<SafetensorsFile> arrays;  // null for a case that is JSON only
  std::string directory;                    // of the case: some components name files in it
  std::string prefix = {};                  // of the names of its arrays in the file ("step/")

  // meta["config"], or an empty object.
  const nlohmann::json& config() const;
  bool has(const std::string& tensor) const;
  const TensorView& view(const std::string& tensor) const;  // fails by name if absent
  // A copy as a tensor of the stored dtype, or converted if it is floating and `dtype` is given.
  torch::Tensor tensor(const std::string& tensor,
                       torch::ScalarType dtype = torch::ScalarType::Undefined) const;
  // Names of all tensors that begin with `start`, without it.
  std::vector<std::string> names(const std::string& start) const;
  // Several cases in one file: the names in "config", sorted; and one of them as a golden of its own, with its
  // entry of "config" and the arrays whose names begin with "NAME/". An entry "mode" is that of the case.
  std::vector<std::string> parts() const;
  Golden part(const std::string& name) const;
};

// Reads DIR/models/X.safetensors, DIR/training/X.safetensors, DIR/components/X.json (+ X.safetensors).
Golden read_golden(const std::string& root, const std::string& folder, const std::string& name);

enum class Outcome { passed, failed, skipped };

struct CaseResult {
  Outcome outcome = Outcome::passed;
  std::string detail;  // passed: what was compared, the largest share of the tolerance used; else why
  static CaseResult pass(std::string detail) { return {Outcome::passed, std::move(detail)}; }
  static CaseResult fail(std::string detail) { return {Outcome::failed, std::move(detail)}; }
  static CaseResult skip(std::string reason) { return {Outcome::skipped, std::move(reason)}; }
};

// Collects the comparisons of one case and finds the worst one.
class Comparison {
 public:
  // |got - want| <= relative * |want| + absolute, element by element, in double. Shapes must be equal; a NaN
  // on either side fails. `what` names the tensor in the detail line.
  void close(const std::string& what, const torch::Tensor& got, const torch::Tensor& want, double relative,
             double absolute);
  // Same shape and every element equal.
  void equal(const std::string& what, const torch::Tensor& got, const torch::Tensor& want);
  // A plain yes or no.
  void holds(const std::string& what, bool condition, const std::string& otherwise);
  CaseResult result() const;
  int64_t count() const { return count_; }

 private:
  int64_t count_ = 0;
  double worst_ = 0;  // largest difference as a share of its tolerance
  std::string worst_what_;
  std::vector<std::string> failures_;
};

}  // namespace tessera::parity
