#include "onnx/lowering.h"

#include <ATen/Functions.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <limits>
#include <unordered_set>

#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"

namespace tessera::onnx {

using torch::jit::Node;
using torch::jit::Value;

OnnxType onnx_type(torch::ScalarType type) {
  switch (type) {
    case torch::kFloat32:
      return OnnxType::f32;
    case torch::kFloat64:
      return OnnxType::f64;
    case torch::kFloat16:
      return OnnxType::f16;
    case torch::kInt64:
      return OnnxType::i64;
    case torch::kInt32:
      return OnnxType::i32;
    case torch::kInt8:
      return OnnxType::i8;
    case torch::kUInt8:
      return OnnxType::u8;
    case torch::kBool:
      return OnnxType::boolean;
    default:
      fail("tensors of type ", c10::toString(type), " have no form in the file");
  }
}

torch::ScalarType torch_type(OnnxType type) {
  for (const torch::ScalarType candidate : {torch::kFloat32, torch::kFloat64, torch::kFloat16, torch::kInt64,
                                            torch::kInt32, torch::kInt8, torch::kUInt8, torch::kBool})
    if (onnx_type(candidate) == type) return candidate;
  fail("tensors of type ", name_of(type), " are not computed with");
}

namespace {

// Returns the values that the outputs depend on.
std::unordered_set<const Node*> needed_nodes(const torch::jit::Graph& graph) {
  std::unordered_set<const Node*> needed;
  std::vector<const Value*> open(graph.outputs().begin(), graph.outputs().end());
  while (!open.empty()) {
    const Node* node = open.back()->node();
    open.pop_back();
    if (!needed.insert(node).second) continue;
    for (const Value* input : node->inputs()) open.push_back(input);
  }
  return needed;
}

std::vector<OnnxDimension> dimensions_of(const std::vector<int64_t>& shape) {
  std::vector<OnnxDimension> out;
  for (const int64_t side : shape) out.push_back({.size = side});
  return out;
}

// True for roundings to integers and back, which the file has even for constants.
bool is_rounding(c10::Symbol kind) {
  return kind == c10::aten::fake_quantize_per_tensor_affine ||
         kind == c10::aten::fake_quantize_per_channel_affine;
}

// True for operations that divide a tensor along an axis into a list.
bool is_division(c10::Symbol kind) {
  return kind == c10::aten::chunk || kind == c10::aten::split || kind == c10::aten::split_with_sizes;
}

c10::TensorTypePtr tensor_type(const Value* value) {
  const auto type = value->type()->cast<c10::TensorType>();
  check(type && type->scalarType() && type->sizes().concrete_sizes(), "a traced tensor has no shape");
  return type;
}

}  // namespace

Lowering::Lowering(const Function& function, const Trace& traced, int64_t opset,
                   std::unordered_map<const void*, std::string> names)
    : function_(function), trace_(traced), opset_(opset), weight_names_(std::move(names)) {
  for (size_t i = 0; i < function.inputs.size(); ++i) {
    OnnxValue value{.name = function.inputs[i].name,
                    .type = onnx_type(*tensor_type(traced.graph->inputs()[i])->scalarType()),
                    .shape = dimensions_of(function.inputs[i].shape)};
    for (const Function::FreeAxis& axis : function.free)
      for (const auto& [input, dimension] : axis.places)
        if (input == i) value.shape[dimension] = {.name = axis.name};
    names_[traced.graph->inputs()[i]] = value.name;
    graph_.inputs.push_back(std::move(value));
  }
}

OnnxGraph Lowering::graph(const Entries& table) {
  const std::unordered_set<const Node*> needed = needed_nodes(*trace_.graph);
  for (const Node* node : trace_.graph->nodes())
    if (needed.count(node)) lower(*node, table);
  size_t sizes = function_.outputs.size();  // their sizes follow the outputs
  for (size_t i = 0; i < function_.outputs.size(); ++i) {
    const Value* output = trace_.graph->outputs()[i];
    // Gives each output its own name: a computed value may be two outputs, or an input.
    graph_.nodes.push_back({.name = function_.outputs[i],
                            .operation = "Identity",
                            .inputs = {name_of(output)},
                            .outputs = {function_.outputs[i]}});
    OnnxValue value{
        .name = function_.outputs[i], .type = onnx_type(*tensor_type(output)->scalarType()), .shape = {}};
    value.shape = dimensions_of(*tensor_type(output)->sizes().concrete_sizes());
    for (size_t axis = 0; axis < value.shape.size(); ++axis)
      if (const auto rule = trace_.dimensions.find(trace_.graph->outputs()[sizes++]);
          rule != trace_.dimensions.end())
        value.shape[axis] = {.name = name_of(rule->second, text(function_.outputs[i], "_", axis))};
    graph_.outputs.push_back(std::move(value));
  }
  graph_.name = "tessera";
  return std::move(graph_);
}

// Returns the name of the free axis that has this size, else `otherwise`.
std::string Lowering::name_of(const Dimension& size, const std::string& otherwise) const {
  for (size_t axis = 0; axis < function_.free.size(); ++axis)
    if (size == Dimension{.factors = {{.axis = axis}}}) return function_.free[axis].name;
  return otherwise;
}

void Lowering::lower(const Node& node, const Entries& table) {
  if (node.kind() == c10::prim::Constant) {
    if (!trace_.dimensions.count(node.output()))
      constants_[node.output()] = *torch::jit::toIValue(node.output());
    return;
  }
  if ((!is_rounding(node.kind()) && fold(node)) || node.kind() == c10::prim::ListConstruct ||
      node.kind() == c10::prim::Param)
    return;
  if (is_division(node.kind())) return;  // lists have no nodes
  if (node.kind() == c10::prim::ListUnpack) return unpack(node);
  set_scope(node);
  const auto entry = table.find(node.kind().toQualString());
  Call call(*this, node);
  if (entry == table.end()) call.refuse("has no form in the file");
  entry->second(call);
}

// Computes an operation whose inputs are all constants.
bool Lowering::fold(const Node& node) {
  torch::jit::Stack stack;
  for (const Value* input : node.inputs()) {
    const auto found = constants_.find(input);
    if (found == constants_.end()) return false;
    stack.push_back(found->second);
  }
  const torch::NoGradGuard no_gradients;
  if (node.kind() == c10::prim::ListConstruct) {
    const auto list = node.output()->type()->expect<c10::ListType>()->getElementType();
    if (list->isSubtypeOf(*c10::IntType::get())) {
      std::vector<int64_t> values;
      for (const c10::IValue& value : stack) values.push_back(value.toInt());
      constants_[node.output()] = values;
      return true;
    }
    c10::impl::GenericList values(list);
    for (const c10::IValue& value : stack) values.push_back(value);
    constants_[node.output()] = values;
    return true;
  }
  try {
    node.getOperation()(stack);
  } catch (const c10::Error& error) {
    set_scope(node);
    Call(*this, node).refuse("of constants fails: " + printable(error.what_without_backtrace(), 200));
  }
  for (size_t i = 0; i < node.outputs().size(); ++i) constants_[node.outputs()[i]] = stack.at(i);
  return true;
}

// Lowers the parts of a tensor along an axis, one slice each.
void Lowering::unpack(const Node& node) {
  Call parts(*this, *node.input()->node());
  if (!is_division(node.input()->node()->kind())) parts.refuse("has no form in the file");
  const int64_t axis = parts.axis("dim");
  int64_t first = 0;
  for (const Value* output : node.outputs()) {
    const int64_t size = (*tensor_type(output)->sizes().concrete_sizes()).at(static_cast<size_t>(axis));
    names_[output] =
        add("Slice", {parts.tensor("self"), integers({first}), integers({first + size}), integers({axis})});
    first += size;
  }
}

// Names nodes after the module of their weight, or else of the last weight before them.
void Lowering::set_scope(const Node& node) {
  for (const Value* input : node.inputs()) {
    const auto found = constants_.find(input);
    if (found == constants_.end() || !found->second.isTensor() || !found->second.toTensor().defined())
      continue;
    const auto name = weight_names_.find(found->second.toTensor().data_ptr());
    if (name == weight_names_.end()) continue;
    const size_t end = name->second.rfind('.');
    scope_ = end == std::string::npos ? name->second : name->second.substr(0, end);
    return;
  }
}

std::string Lowering::name_of(const Value* value) {
  if (const auto found = names_.find(value); found != names_.end()) return found->second;
  const auto constant_value = constants_.find(value);
  check(constant_value != constants_.end() && constant_value->second.isTensor(),
        "a traced value has no tensor");
  return constant(constant_value->second.toTensor());
}

std::vector<std::string> Lowering::add_several(const std::string& operation, std::vector<std::string> inputs,
                                               size_t outputs, std::vector<OnnxAttribute> attributes) {
  const std::string base = (scope_.empty() ? "" : scope_ + ".") + operation;
  const int number = counts_[base]++;
  OnnxNode node{.name = number > 0 ? text(base, "_", number) : base,
                .operation = operation,
                .inputs = std::move(inputs),
                .outputs = {},
                .attributes = std::move(attributes)};
  for (size_t i = 0; i < outputs; ++i)
    node.outputs.push_back(i > 0 ? text(node.name, ":", i) : node.name + ":0");
  graph_.nodes.push_back(node);
  return node.outputs;
}

std::string Lowering::add(const std::string& operation, std::vector<std::string> inputs,
                          std::vector<OnnxAttribute> attributes) {
  return add_several(operation, std::move(inputs), 1, std::move(attributes))[0];
}

std::string Lowering::constant(const torch::Tensor& tensor) {
  const torch::Tensor kept = tensor.detach().to(torch::kCPU).contiguous();
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(kept.data_ptr()), kept.nbytes());
  const auto weight = weight_names_.find(tensor.data_ptr());
  const bool is_weight = weight != weight_names_.end() && tensor.is_contiguous();
  const auto key =
      text(is_weight ? weight->second : checksum_of(bytes), " ", tensor.sizes(), " ", tensor.dtype());
  const auto [found, fresh] = stored_.emplace(key, "");
  if (!fresh) return found->second;
  std::string name = is_weight ? weight->second : text("constant_", stored_.size());
  if (is_weight && counts_[name]++ > 0) name += text("_", stored_.size());
  graph_.weights.push_back({.name = name,
                            .type = onnx_type(kept.scalar_type()),
                            .shape = kept.sizes().vec(),
                            .bytes = bytes,
                            .owner = std::make_shared<torch::Tensor>(kept)});
  return found->second = name;
}

std::string Lowering::integers(const std::vector<int64_t>& values) {
  return constant(torch::tensor(values, torch::kInt64));
}

std::string Lowering::scalar(double value, torch::ScalarType type) {
  return constant(torch::full({}, value, type));
}

std::string Lowering::size(const Size& value) {
  return value.rule ? rule(*value.rule) : integers({value.value});
}

std::string Lowering::sizes(const std::vector<Size>& values) {
  std::vector<int64_t> constants;
  for (const Size& value : values) constants.push_back(value.value);
  if (std::none_of(values.begin(), values.end(), [](const Size& value) { return value.rule; }))
    return integers(constants);
  std::vector<std::string> parts;
  for (const Size& value : values) parts.push_back(size(value));
  return parts.size() == 1 ? parts[0] : add("Concat", parts, {{"axis", int64_t{0}}});
}

// Computes a rule from the shapes of the inputs, once.
std::string Lowering::rule(const Dimension& dimension) {
  if (const auto found = rules_.find(dimension); found != rules_.end()) return found->second;
  std::string product;
  for (const Dimension::Factor& factor : dimension.factors) {
    const auto [input, axis] = function_.free[factor.axis].places[0];
    std::string size =
        add("Gather", {add("Shape", {function_.inputs[input].name}), integers({static_cast<int64_t>(axis)})},
            {{"axis", int64_t{0}}});
    if (factor.plus != 0) size = add("Add", {size, integers({factor.plus})});
    if (factor.divisor != 1) size = add("Div", {size, integers({factor.divisor})});
    product = product.empty() ? size : add("Mul", {product, size});
  }
  if (dimension.numerator != 1) product = add("Mul", {product, integers({dimension.numerator})});
  if (dimension.denominator != 1) product = add("Div", {product, integers({dimension.denominator})});
  if (dimension.offset != 0) product = add("Add", {product, integers({dimension.offset})});
  return rules_[dimension] = product;
}

const Entries& entries() {
  static const Entries table = [] {
    Entries all;
    add_shape_entries(all), add_arithmetic_entries(all), add_layer_entries(all), add_scan_entries(all);
    return all;
  }();
  return table;
}

// --- Call

std::string Call::operation() const { return node_.kind().toQualString(); }

const Value* Call::argument(const std::string& name) const {
  const auto& arguments = node_.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i)
    if (arguments[i].name() == name) return node_.inputs()[i];
  return nullptr;
}

const c10::IValue& Call::value(const std::string& name) const {
  const Value* found = argument(name);
  const auto constant = found ? to.constants_.find(found) : to.constants_.end();
  if (constant == to.constants_.end()) refuse("has an argument '" + name + "' that is not a constant");
  return constant->second;
}

bool Call::has(const std::string& name) const {
  const Value* found = argument(name);
  if (!found) return false;
  const auto constant = to.constants_.find(found);
  if (constant == to.constants_.end()) return true;
  return !constant->second.isNone() &&
         !(constant->second.isTensor() && !constant->second.toTensor().defined());
}

bool Call::is_tensor(const std::string& name) const {
  const Value* found = argument(name);
  return found && found->type()->isSubtypeOf(*c10::TensorType::get());
}

std::string Call::tensor(const std::string& name) {
  return has(name) ? to.name_of(argument(name)) : std::string();
}

std::vector<const Value*> Call::list(const std::string& name) const {
  const Value* found = argument(name);
  if (found->node()->kind() != c10::prim::ListConstruct) refuse("has no list '" + name + "'");
  return {found->node()->inputs().begin(), found->node()->inputs().end()};
}

std::vector<std::string> Call::tensors(const std::string& name) {
  std::vector<std::string> out;
  for (const Value* one : list(name)) out.push_back(to.name_of(one));
  return out;
}

torch::Tensor Call::constant(const std::string& name) const {
  const auto found = to.constants_.find(argument(name));
  return found != to.constants_.end() && found->second.isTensor() ? found->second.toTensor()
                                                                  : torch::Tensor();
}

int64_t Call::integer(const std::string& name) const {
  const c10::IValue& found = value(name);
  return found.isBool()     ? found.toBool()
         : found.isTensor() ? found.toTensor().item<int64_t>()
                            : found.toInt();
}

double Call::real(const std::string& name) const {
  const c10::IValue& found = value(name);
  return found.isTensor() ? found.toTensor().item<double>() : found.toScalar().toDouble();
}

bool Call::flag(const std::string& name) const { return has(name) && value(name).toBool(); }
std::string Call::word(const std::string& name) const { return value(name).toStringRef(); }

Size Call::size(const std::string& name) const {
  const auto rule = to.trace_.dimensions.find(argument(name));
  if (rule == to.trace_.dimensions.end()) return {integer(name)};
  return {torch::jit::toIValue(argument(name))->toInt(), &rule->second};
}

std::vector<Size> Call::sizes(const std::string& name) const {
  std::vector<Size> out;
  if (const auto found = to.constants_.find(argument(name)); found != to.constants_.end()) {
    for (const int64_t one : found->second.toIntVector()) out.push_back({one});
    return out;
  }
  for (const Value* one : list(name)) {
    const auto rule = to.trace_.dimensions.find(one);
    out.push_back(
        {torch::jit::toIValue(one)->toInt(), rule == to.trace_.dimensions.end() ? nullptr : &rule->second});
  }
  return out;
}

std::vector<int64_t> Call::integers(const std::string& name) const {
  std::vector<int64_t> out;
  for (const Size& one : sizes(name)) {
    if (one.rule) refuse("has sizes '" + name + "' that follow the input");
    out.push_back(one.value);
  }
  return out;
}

std::vector<int64_t> Call::shape(const std::string& name) const {
  if (const torch::Tensor known = constant(name); known.defined()) return known.sizes().vec();
  return *tensor_type(argument(name))->sizes().concrete_sizes();
}
torch::ScalarType Call::type(const std::string& name) const {
  if (const torch::Tensor known = constant(name); known.defined()) return known.scalar_type();
  return *tensor_type(argument(name))->scalarType();
}
std::vector<int64_t> Call::result_shape(size_t output) const {
  return *tensor_type(node_.outputs()[output])->sizes().concrete_sizes();
}
torch::ScalarType Call::result_type(size_t output) const {
  return *tensor_type(node_.outputs()[output])->scalarType();
}
bool Call::is_used(size_t output) const { return !node_.outputs()[output]->uses().empty(); }

int64_t Call::axis(const std::string& name, const std::string& of) const {
  const int64_t found = integer(name);
  return found < 0 ? found + rank(of) : found;
}

std::string Call::converted(const std::string& name, torch::ScalarType from, torch::ScalarType type) {
  if (from == type) return name;
  return to.add("Cast", {name}, {{"to", static_cast<int64_t>(onnx_type(type))}});
}

std::string Call::operand(const std::string& name, torch::ScalarType wanted) {
  if (!is_tensor(name)) return to.scalar(real(name), wanted);
  // A number inside a tensor has the type of the other operand.
  if (const torch::Tensor known = constant(name); known.defined()) return to.constant(known.to(wanted));
  return converted(tensor(name), type(name), wanted);
}

void Call::result(const std::string& name, size_t output) { to.names_[node_.outputs()[output]] = name; }

void Call::refuse(const std::string& reason) const {
  std::string shape;
  for (const Value* output : node_.outputs())
    if (const auto type = output->type()->cast<c10::TensorType>(); type && type->sizes().concrete_sizes())
      shape = text(at::IntArrayRef(*type->sizes().concrete_sizes()));
  fail("operation ", operation(), to.scope_.empty() ? "" : " of '" + to.scope_ + "'",
       shape.empty() ? "" : " with result ", shape, " ", reason);
}

}  // namespace tessera::onnx
