// Batches on the compute device, by field name; and the precision of the computation.
#pragma once

#include "ops/torch.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/base/field.h"
#include "ops/inference.h"

namespace tessera::tasks {

// int8: linear layers in int8 with a scale for each row, everything else as in bf16; for inference on a CPU.
enum class Precision { fp32, bf16, fp64, int8, fp16 };
// Throws a usage error that lists the valid names.
Precision parse_precision(const std::string& name);

struct FieldTensor {
  std::string name;
  torch::Tensor values;               // [batch, shape…]; if ragged [all rows, …]
  std::vector<int64_t> offsets = {};  // if ragged, as in data::Column
  torch::Tensor host = {};            // the same in main memory if `values` is on a device

  const torch::Tensor& on_host() const { return host.defined() ? host : values; }
};

// The samples of one stream.
struct StreamInputs {
  std::string name;
  int64_t size = 0;
  int64_t first = 0,
          whole = 0;  // index of the first sample in the batch of all processes, and that batch's size
  std::vector<FieldTensor> fields;

  // Null if there is no such field.
  const torch::Tensor* find(std::string_view field) const;
  // Throws an error that lists the fields if there is no such field.
  const torch::Tensor& at(std::string_view field) const;
  // Returns the field in main memory, for what the host decides: a device's values would stop it.
  const torch::Tensor& on_host(std::string_view field) const;
  // Returns piece `index` of `count`: consecutive samples, about equally many in each.
  StreamInputs piece(int64_t index, int64_t count) const;
};

// The inputs of a step, or of a piece of it: the task's streams in order.
struct Inputs {
  std::vector<StreamInputs> streams;

  const StreamInputs& main() const { return streams.at(0); }
  int64_t size() const { return main().size; }
  const torch::Tensor* find(std::string_view field) const { return main().find(field); }
  const torch::Tensor& at(std::string_view field) const { return main().at(field); }
  const torch::Tensor& on_host(std::string_view field) const { return main().on_host(field); }
  // Null if the task has no such stream.
  const StreamInputs* stream(std::string_view name) const;
  Inputs piece(int64_t index, int64_t count) const;
};

// Converts floating-point fields to float64 if the precision is fp64. Tensors on the CPU share the batch's memory and keep
// it alive.
StreamInputs to_device(const data::Batch& batch, const std::string& stream, torch::Device device,
                       Precision precision);

// Within its scope: autocast for bf16 and fp16, int8 linear layers for int8. Does nothing for other
// precisions.
class AutocastScope {
 public:
  AutocastScope(torch::Device device, Precision precision);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  c10::DeviceType device_;
  bool on_, was_enabled_ = false;
  std::optional<ops::InferenceScope> int8_;
};

}  // namespace tessera::tasks
