#include "weights/load_tensors.h"

#include <cstring>

#include "core/error.h"
#include "core/text.h"
#include "io/weights/safetensors_shards.h"

namespace tessera::train {
namespace {

torch::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return torch::kFloat64;
    case DType::f32:
      return torch::kFloat32;
    case DType::f16:
      return torch::kFloat16;
    case DType::bf16:
      return torch::kBFloat16;
    case DType::i64:
      return torch::kInt64;
    case DType::i32:
      return torch::kInt32;
    case DType::i16:
      return torch::kInt16;
    case DType::i8:
      return torch::kInt8;
    case DType::u8:
      return torch::kUInt8;
    case DType::boolean:
      return torch::kBool;
  }
  fail("unknown element type");
}

}  // namespace

DType element_type(const torch::Tensor& tensor, const std::string& name) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32,
                            DType::i16, DType::i8, DType::u8, DType::boolean})
    if (scalar_type(dtype) == tensor.scalar_type()) return dtype;
  fail("tensor '", name, "': element type ", c10::toString(tensor.scalar_type()),
       " has no place in safetensors");
}

std::string save_tensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata) {
  std::vector<torch::Tensor> kept;  // the views' memory
  std::vector<TensorView> views;
  for (const auto& [name, tensor] : tensors) {
    const torch::Tensor& plain = kept.emplace_back(tensor.detach().to(torch::kCPU).contiguous());
    views.push_back({name,
                     element_type(plain, name),
                     plain.sizes().vec(),
                     {static_cast<const std::byte*>(plain.const_data_ptr()), plain.nbytes()}});
  }
  return write_safetensors(path, views, metadata);
}

std::string save_each_tensor(const std::string& path, const NamedTensors& like, const Metadata& metadata,
                             const std::function<torch::Tensor()>& next, uint64_t most_bytes) {
  std::vector<TensorView> views;
  for (const auto& [name, tensor] : like)
    views.push_back({name, element_type(tensor, name), tensor.sizes().vec(), {}});
  torch::Tensor plain;  // the memory of the bytes until the next call
  const BytesOf bytes_of = [&](const TensorView& view) {
    plain = next().detach().to(torch::kCPU).contiguous();
    check(element_type(plain, view.name) == view.dtype, "'", path, "': tensor '", view.name,
          "' has another element type than the model's");
    return std::span(static_cast<const std::byte*>(plain.const_data_ptr()), plain.nbytes());
  };
  if (!path.ends_with(kShardIndexEnding)) return stream_safetensors(path, views, metadata, bytes_of);
  stream_sharded_safetensors(path, views, metadata, most_bytes, bytes_of);
  return "";
}

torch::Tensor to_tensor(const TensorView& view) {
  torch::Tensor tensor = torch::empty(view.shape, torch::TensorOptions(scalar_type(view.dtype)));
  check(tensor.nbytes() == view.bytes.size(), "tensor '", view.name, "' has ", view.bytes.size(),
        " bytes, its shape ", c10::IntArrayRef(view.shape), " needs ", tensor.nbytes());
  if (!view.bytes.empty()) std::memcpy(tensor.mutable_data_ptr(), view.bytes.data(), view.bytes.size());
  return tensor;
}

namespace {

NamedTensors copies_of(const std::vector<TensorView>& views) {
  NamedTensors tensors;
  for (const TensorView& view : views) tensors.emplace_back(view.name, to_tensor(view));
  return tensors;
}

}  // namespace

NamedTensors read_tensors(const SafetensorsFile& file) { return copies_of(file.tensors()); }
NamedTensors read_tensors(const WeightFile& file) { return copies_of(file.tensors()); }

}  // namespace tessera::train
