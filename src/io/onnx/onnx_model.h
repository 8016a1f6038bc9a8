// ONNX models (https://onnx.ai, IR version 9) as values, and their files in protocol buffers' wire format.
//
// A file has at most 2 GB, the limit of protocol buffers. The bytes of the tensors of larger models are in a second file next to it
// ("external data").
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tessera {

// Element types, by their numbers in files (TensorProto.DataType).
enum class OnnxType : int32_t { f32 = 1, u8 = 2, i8 = 3, i32 = 6, i64 = 7, boolean = 9, f16 = 10, f64 = 11 };
// Returns the bytes of an element, or 0 for a type that is not listed above.
size_t size_of(OnnxType type);
const char* name_of(OnnxType type);

// Bytes in row-major order, little-endian. Copies share them.
struct OnnxTensor {
  std::string name;
  OnnxType type = OnnxType::f32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes = {};
  std::shared_ptr<const void> owner = nullptr;  // keeps `bytes`; null: they outlive the tensor
};

// A dimension is a size, or the name of a free dimension ("batch").
struct OnnxDimension {
  int64_t size = 0;
  std::string name = {};
  bool operator==(const OnnxDimension&) const = default;
};
struct OnnxValue {
  std::string name;
  OnnxType type = OnnxType::f32;
  std::vector<OnnxDimension> shape;
};

struct OnnxGraph;
struct OnnxAttribute {
  std::string name;
  std::variant<int64_t, float, std::string, std::vector<int64_t>, std::vector<float>, OnnxTensor,
               std::shared_ptr<const OnnxGraph>>
      value;
};

struct OnnxNode {
  std::string name, operation;
  std::vector<std::string> inputs, outputs;  // "" is an optional input that is left out
  std::vector<OnnxAttribute> attributes = {};
  // Returns the attribute, or null.
  const OnnxAttribute* find(const std::string& attribute) const;
};

struct OnnxGraph {
  std::string name;
  std::vector<OnnxNode> nodes;  // in an order of computation
  std::vector<OnnxTensor> weights;
  std::vector<OnnxValue> inputs, outputs;
};

struct OnnxModel {
  OnnxGraph graph;
  int64_t opset = 20;
  std::string producer, producer_version, description;
  std::vector<std::pair<std::string, std::string>> metadata;
};

// Writes the model. Weights of more than `most_bytes` in all go to PATH.data. Each file is renamed into
// place, the data first. Throws Error on a full disk; existing files are then unchanged.
void write_onnx(const std::string& path, const OnnxModel& model,
                uint64_t most_bytes = uint64_t{2'000'000'000});

// Reads a model of any program; `tensors` = false leaves out the bytes of weights. Throws Error with the path for a file that is not
// ONNX or is damaged, for sparse tensors, functions and operations of other domains. External data must be in the model's own folder.
OnnxModel read_onnx(const std::string& path, bool tensors = true);
// Reads the content of a file without external data. The tensors are views of `bytes`.
OnnxModel parse_onnx(std::span<const std::byte> bytes, const std::string& name);
// True if a file of this name is treated as ONNX: it ends in ".onnx".
bool is_onnx_name(const std::string& path);

}  // namespace tessera
