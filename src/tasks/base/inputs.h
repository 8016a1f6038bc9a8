// Batches on the device that computes, by the names of their fields; and the arithmetic it computes in.
#pragma once

#include "ops/torch.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/base/field.h"
#include "ops/inference.h"

namespace tessera::tasks {

// int8: linear layers in int8 with a scale for each row, the rest as in bf16; for inference on a CPU.
enum class Precision { fp32, bf16, fp64, int8, fp16 };
// Usage error naming the right names.
Precision parse_precision(const std::string& name);

struct FieldTensor {
  std::string name;
  torch::Tensor values;               // [batch, shape…]; of ragged fields [all rows, …]
  std::vector<int64_t> offsets = {};  // of ragged fields, as in data::Column
};

// The samples of one stream.
struct StreamInputs {
  std::string name;
  int64_t size = 0;
  int64_t first = 0,
          whole = 0;  // place of the first sample in the batch of all processes, and that batch's size
  std::vector<FieldTensor> fields;

  // Null where there is no such field.
  const torch::Tensor* find(std::string_view field) const;
  // Fails naming the fields that there are.
  const torch::Tensor& at(std::string_view field) const;
  // Piece `index` of `count`, each a run of about equally many samples.
  StreamInputs piece(int64_t index, int64_t count) const;
};

// What one step, or a piece of it, computes: the streams of the task in their order.
struct Inputs {
  std::vector<StreamInputs> streams;

  const StreamInputs& main() const { return streams.at(0); }
  int64_t size() const { return main().size; }
  const torch::Tensor* find(std::string_view field) const { return main().find(field); }
  const torch::Tensor& at(std::string_view field) const { return main().at(field); }
  // Null where the task has no such stream.
  const StreamInputs* stream(std::string_view name) const;
  Inputs piece(int64_t index, int64_t count) const;
};

// Floating fields become float64 where the precision is fp64. On the CPU the tensors lie on the batch's own
// memory, which they keep alive.
StreamInputs to_device(const data::Batch& batch, const std::string& stream, torch::Device device,
                       Precision precision);

// Autocast to bf16 or fp16, and linear layers in int8 where that is asked for, within a scope; nothing for the other
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
