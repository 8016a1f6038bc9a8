// Converts traced ATen operations to ONNX nodes. A table has a function for each operation.
#pragma once

#include "ops/torch.h"

#include <map>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "io/onnx/onnx_model.h"
#include "onnx/trace.h"

namespace torch::jit {
struct Node;
}

namespace tessera::onnx {

// A whole number that may depend on the free dimensions of the inputs.
struct Size {
  int64_t value = 0;
  const Dimension* rule = nullptr;  // null: the value is a constant
};

class Call;
using Entry = void (*)(Call&);
using Entries = std::map<std::string, Entry>;  // by name, "aten::softmax"

// The tables of all entries.
const Entries& entries();
void add_shape_entries(Entries& table);
void add_arithmetic_entries(Entries& table);
void add_layer_entries(Entries& table);
void add_scan_entries(Entries& table);

// Builds the graph of a trace. Operations on constants only are evaluated.
class Lowering {
 public:
  // `names` are the names of the weights, keyed by the memory of their elements.
  Lowering(const Function& function, const Trace& traced, int64_t opset,
           std::unordered_map<const void*, std::string> names);
  // Throws Error for an operation without an entry: its name, its weights and its shape.
  OnnxGraph graph(const Entries& table = entries());

  int64_t opset() const { return opset_; }
  // Adds a node with one output and returns the output's name.
  std::string add(const std::string& operation, std::vector<std::string> inputs,
                  std::vector<OnnxAttribute> attributes = {});
  std::vector<std::string> add_several(const std::string& operation, std::vector<std::string> inputs,
                                       size_t outputs, std::vector<OnnxAttribute> attributes = {});
  // Return the name of a constant; equal constants are stored once.
  std::string constant(const torch::Tensor& tensor);
  std::string integers(const std::vector<int64_t>& values);
  std::string scalar(double value, torch::ScalarType type);
  // Return the name of several whole numbers [n], or of a single one [1].
  std::string sizes(const std::vector<Size>& values);
  std::string size(const Size& value);

 private:
  friend class Call;
  std::string rule(const Dimension& dimension);
  std::string name_of(const Dimension& size, const std::string& otherwise) const;
  void lower(const torch::jit::Node& node, const Entries& table);
  bool fold(const torch::jit::Node& node);
  void unpack(const torch::jit::Node& node);
  bool is_constant(const torch::jit::Value* value) const { return constants_.count(value) > 0; }
  std::string name_of(const torch::jit::Value* value);
  void set_scope(const torch::jit::Node& node);

  const Function& function_;
  const Trace& trace_;
  int64_t opset_;
  std::unordered_map<const void*, std::string> weight_names_;
  OnnxGraph graph_;
  std::unordered_map<const torch::jit::Value*, c10::IValue> constants_;
  std::unordered_map<const torch::jit::Value*, std::string> names_;
  std::map<std::string, std::string> stored_;  // maps a constant's content to its name
  std::map<Dimension, std::string> rules_;
  std::string scope_;  // module of the previous weight
  std::map<std::string, int> counts_;
};

// One traced operation, with arguments by their names in ATen's schema.
class Call {
 public:
  Call(Lowering& lowering, const torch::jit::Node& node) : to(lowering), node_(node) {}
  Lowering& to;

  std::string operation() const;
  bool has(const std::string& name) const;  // the argument exists and is not None
  bool is_tensor(const std::string& name) const;
  std::string tensor(const std::string& name);
  std::vector<std::string> tensors(const std::string& name);
  // Returns a tensor or a number, converted to this type.
  std::string operand(const std::string& name, torch::ScalarType type);
  torch::Tensor constant(const std::string& name) const;  // undefined if it is none
  int64_t integer(const std::string& name) const;
  double real(const std::string& name) const;
  bool flag(const std::string& name) const;
  std::string word(const std::string& name) const;
  Size size(const std::string& name) const;
  std::vector<int64_t> integers(const std::string& name) const;
  std::vector<Size> sizes(const std::string& name) const;
  // As traced.
  std::vector<int64_t> shape(const std::string& name) const;
  int64_t rank(const std::string& name) const { return static_cast<int64_t>(shape(name).size()); }
  torch::ScalarType type(const std::string& name) const;
  std::vector<int64_t> result_shape(size_t output = 0) const;
  torch::ScalarType result_type(size_t output = 0) const;
  bool is_used(size_t output) const;
  // An axis counted from 0.
  int64_t axis(const std::string& name, const std::string& of = "self") const;

  void result(const std::string& name, size_t output = 0);
  // For a result that is an unchanged input.
  void same(const std::string& name) { result(tensor(name)); }
  std::string converted(const std::string& name, torch::ScalarType from, torch::ScalarType type);
  [[noreturn]] void refuse(const std::string& reason) const;

 private:
  const torch::jit::Value* argument(const std::string& name) const;
  const c10::IValue& value(const std::string& name) const;
  std::vector<const torch::jit::Value*> list(const std::string& name) const;
  const torch::jit::Node& node_;
};

OnnxType onnx_type(torch::ScalarType type);
torch::ScalarType torch_type(OnnxType type);

}  // namespace tessera::onnx
