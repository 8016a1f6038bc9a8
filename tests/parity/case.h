// A golden case (numbers computed by published code) and what checks it.
//
// The runner reads every case of a folder, finds its handler in the table of handlers.cpp and prints one line
// a case. A handler builds what the case describes from the case's own metadata, never from its full file
// name.
#pragma once

#include "ops/torch.h"

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "io/weights/safetensors.h"

namespace tessera::parity {

struct Golden {
  std::string folder;  // "models", "training" or "components"
  std::string name;    // file name without its ending
  // models, training: the safetensors metadata, each value parsed as JSON where it is JSON, else a string.
  // components: the JSON file beside the arrays (there may be no arrays at all).
  nlohmann::json meta;
  std::unique_ptr<SafetensorsFile> arrays;  // null for a case that is JSON only
  std::string directory;                    // where the case lies: some components name files beside them

  // meta["config"], or an empty object.
  const nlohmann::json& config() const;
  bool has(const std::string& tensor) const;
  const TensorView& view(const std::string& tensor) const;  // fails by name if absent
  // A copy as a tensor of the stored dtype, or converted if it is floating and `dtype` is given.
  torch::Tensor tensor(const std::string& tensor,
                       torch::ScalarType dtype = torch::ScalarType::Undefined) const;
  // Names of all tensors that begin with the prefix, with the prefix cut off.
  std::vector<std::string> names(const std::string& prefix) const;
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

// May throw: the runner counts an exception as a failure with its message.
using Handler = std::function<CaseResult(const Golden&)>;

// Collects comparisons of one case and says which one was worst.
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
  double worst_ = 0;  // largest difference as a share of what was allowed
  std::string worst_what_;
  std::vector<std::string> failures_;
};

// One line of the table: cases of `folder` whose name begins with `prefix` (and, if `family` is not empty,
// whose metadata have that family). The first line that fits is taken; one without a handler skips with
// `reason`.
struct Entry {
  std::string folder, prefix, family;
  Handler handler;
  std::string reason;
};
const std::vector<Entry>& entries();

// Handlers, one file a theme; add yours here and in the table of handlers.cpp.
CaseResult check_vision_lstm(const Golden& golden);          // vision_lstm_cases.cpp
CaseResult check_mlstm_parallel(const Golden& golden);       // mlstm_cases.cpp
CaseResult check_mlstm_cell(const Golden& golden);           // mlstm_cases.cpp
CaseResult check_vit(const Golden& golden);                  // vit_cases.cpp
CaseResult check_swin(const Golden& golden);                 // swin_cases.cpp
CaseResult check_visionllama(const Golden& golden);          // llama_cases.cpp
CaseResult check_pyramid(const Golden& golden);              // twins_cases.cpp
CaseResult check_twins(const Golden& golden);                // twins_cases.cpp
CaseResult check_sine_positions(const Golden& golden);       // position_cases.cpp
CaseResult check_rotary_positions(const Golden& golden);     // position_cases.cpp
CaseResult check_resampled_positions(const Golden& golden);  // position_cases.cpp
CaseResult check_illama(const Golden& golden);               // llama_cases.cpp
CaseResult check_rms_norm(const Golden& golden);             // llama_cases.cpp
CaseResult check_illama_schedules(const Golden& golden);     // llama_cases.cpp
CaseResult check_weight_selection(const Golden& golden);     // llama_cases.cpp
CaseResult check_trajectory(const Golden& golden);           // training_cases.cpp: training/*
CaseResult check_optimiser(const Golden& golden);            // optimiser_cases.cpp: components/opt_*
CaseResult check_loss(const Golden& golden);                 // loss_cases.cpp: components/loss_*
CaseResult check_metric(const Golden& golden);               // metric_cases.cpp: components/metric_*
CaseResult check_image(const Golden& golden);                // image_cases.cpp: components/aug_*
CaseResult check_augment(const Golden& golden);              // augment_cases.cpp: components/aug_*
CaseResult check_resample(const Golden& golden);       // augment_cases.cpp: components/aug_resize_tensor*
CaseResult check_learned_step(const Golden& golden);   // quant_cases.cpp: components/quant_lsq
CaseResult check_int8_linear(const Golden& golden);    // quant_cases.cpp: components/quant_int8_linear
CaseResult check_fake_quantise(const Golden& golden);  // quant_cases.cpp: components/quant_torch_fake

}  // namespace tessera::parity
