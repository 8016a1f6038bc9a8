#include "tasks/base/inputs.h"

#include <ATen/autocast_mode.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"
#include "core/text.h"

namespace tessera::tasks {

Precision parse_precision(const std::string& name) {
  static const std::array<std::string, 5> known = {"fp32", "bf16", "fp64", "int8", "fp16"};
  for (size_t i = 0; i < known.size(); ++i)
    if (name == known[i]) return static_cast<Precision>(i);
  fail_usage("precision '", name, "', must be ", join(known, ", "), did_you_mean(name, known));
}

namespace {

torch::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return torch::kFloat32;
    case DType::f64:
      return torch::kFloat64;
    case DType::i64:
      return torch::kInt64;
    case DType::i32:
      return torch::kInt32;
    case DType::u8:
      return torch::kUInt8;
    default:
      fail("a batch has no fields of this element type");
  }
}

// The tensor shares the column's memory and keeps it alive.
torch::Tensor adopt(const data::Column& column, int64_t batch) {
  std::vector<int64_t> shape = column.field.shape;
  if (column.field.ragged)
    shape.at(0) = column.offsets.back();
  else
    shape.insert(shape.begin(), batch);
  const auto keep = [memory = column.memory.shared()](void*) {};
  return torch::from_blob(column.memory.data(), shape, keep,
                          torch::TensorOptions(scalar_type(column.field.dtype)));
}

torch::Tensor in_precision(const torch::Tensor& values, Precision precision) {
  const bool wide = precision == Precision::fp64 && values.is_floating_point();
  return wide ? values.to(torch::kFloat64) : values;
}

// Returns the tensors on a device by one copy, which does not stop the host: through a pinned block, which LibTorch uses
// again when the copy has ended.
std::vector<torch::Tensor> sent_together(const std::vector<torch::Tensor>& values, torch::Device device) {
  constexpr int64_t kBoundary = 64;  // bytes
  std::vector<int64_t> begins;
  int64_t bytes = 0;
  for (const torch::Tensor& each : values) {
    begins.push_back(bytes);
    bytes += (static_cast<int64_t>(each.nbytes()) + kBoundary - 1) / kBoundary * kBoundary;
  }
  const torch::Tensor block =
      torch::empty({bytes}, torch::TensorOptions(torch::kUInt8).pinned_memory(device.is_cuda()));
  const auto part = [&](const torch::Tensor& of, size_t i) {
    const auto size = static_cast<int64_t>(values[i].nbytes());
    return of.narrow(0, begins[i], size).view(values[i].scalar_type()).view(values[i].sizes());
  };
  for (size_t i = 0; i < values.size(); ++i) part(block, i).copy_(values[i]);
  const torch::Tensor there = block.to(device, /*non_blocking=*/true);
  std::vector<torch::Tensor> parts;
  for (size_t i = 0; i < values.size(); ++i) parts.push_back(part(there, i));
  return parts;
}

}  // namespace

const torch::Tensor* StreamInputs::find(std::string_view field) const {
  const auto found = std::find_if(fields.begin(), fields.end(), [&](auto& f) { return f.name == field; });
  return found == fields.end() ? nullptr : &found->values;
}

const torch::Tensor& StreamInputs::at(std::string_view field) const {
  if (const torch::Tensor* values = find(field)) return *values;
  std::vector<std::string> names;
  for (const FieldTensor& one : fields) names.push_back(one.name);
  fail("the stream '", name, "' has no field '", field, "', it has ", join(names, ", "));
}

const torch::Tensor& StreamInputs::on_host(std::string_view field) const {
  for (const FieldTensor& one : fields)
    if (one.name == field) return one.on_host();
  return at(field);
}

StreamInputs StreamInputs::piece(int64_t index, int64_t count) const {
  const int64_t begin = size * index / count, end = size * (index + 1) / count;
  StreamInputs cut{name, end - begin, first + begin, whole, {}};
  const auto add = [&](const FieldTensor& field, int64_t from, int64_t rows, std::vector<int64_t> offsets) {
    const torch::Tensor& host = field.host;
    cut.fields.push_back({field.name, field.values.narrow(0, from, rows), std::move(offsets),
                          host.defined() ? host.narrow(0, from, rows) : host});
  };
  for (const FieldTensor& field : fields) {
    if (field.offsets.empty()) {
      add(field, begin, end - begin, {});
      continue;
    }
    std::vector<int64_t> offsets(field.offsets.begin() + begin, field.offsets.begin() + end + 1);
    const int64_t from = offsets.front();
    for (int64_t& offset : offsets) offset -= from;
    const int64_t rows = offsets.back();
    add(field, from, rows, std::move(offsets));
  }
  return cut;
}

const StreamInputs* Inputs::stream(std::string_view name) const {
  const auto found = std::find_if(streams.begin(), streams.end(), [&](auto& s) { return s.name == name; });
  return found == streams.end() ? nullptr : &*found;
}

Inputs Inputs::piece(int64_t index, int64_t count) const {
  Inputs cut;
  for (const StreamInputs& stream : streams) cut.streams.push_back(stream.piece(index, count));
  return cut;
}

StreamInputs to_device(const data::Batch& batch, const std::string& stream, torch::Device device,
                       Precision precision) {
  StreamInputs out{stream, batch.size, batch.first, batch.whole, {}};
  std::vector<torch::Tensor> values;
  for (const data::Column& column : batch.columns) values.push_back(adopt(column, batch.size));
  std::vector<torch::Tensor> hosts(values.size());
  if (!device.is_cpu()) hosts = std::exchange(values, sent_together(values, device));
  for (size_t i = 0; i < values.size(); ++i)
    out.fields.push_back({batch.columns[i].field.name, in_precision(values[i], precision),
                          batch.columns[i].offsets,
                          hosts[i].defined() ? in_precision(hosts[i], precision) : hosts[i]});
  return out;
}

AutocastScope::AutocastScope(torch::Device device, Precision precision)
    : device_(device.type()), on_(precision != Precision::fp32 && precision != Precision::fp64) {
  if (!on_) return;
  if (precision == Precision::int8) {
    if (!device.is_cpu()) fail_usage("precision 'int8' is for the CPU; on a GPU use bf16");
    ops::InferenceSettings settings = ops::inference_settings();
    settings.int8 = true;
    int8_.emplace(settings);
  }
  was_enabled_ = at::autocast::is_autocast_enabled(device_);
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::set_autocast_dtype(device_, precision == Precision::fp16 ? torch::kHalf : torch::kBFloat16);
  at::autocast::increment_nesting();
}

AutocastScope::~AutocastScope() {
  if (!on_) return;
  // The cache holds this step's copies of the weights.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
}

}  // namespace tessera::tasks
