// Arithmetic on elements, comparisons and reductions.
#include "onnx/lowering.h"

#include <cmath>

#include "core/error.h"

namespace tessera::onnx {
namespace {

// The type in which two operands are computed: the type of the result or, for a comparison, the wider
// operand's.
torch::ScalarType common_type(const Call& call) {
  if (call.result_type() != torch::kBool) return call.result_type();
  if (!call.is_tensor("other")) return call.type("self");
  return c10::promoteTypes(call.type("self"), call.type("other"));
}

std::string binary(Call& call, const char* operation) {
  const torch::ScalarType type = common_type(call);
  return call.to.add(operation, {call.operand("self", type), call.operand("other", type)});
}

// self + alpha other
void sum_or_difference(Call& call, const char* operation) {
  const torch::ScalarType type = call.result_type();
  std::string other = call.operand("other", type);
  if (call.has("alpha") && call.real("alpha") != 1)
    other = call.to.add("Mul", {other, call.operand("alpha", type)});
  call.result(call.to.add(operation, {call.operand("self", type), other}));
}
void add(Call& call) { sum_or_difference(call, "Add"); }
void sub(Call& call) { sum_or_difference(call, "Sub"); }
void rsub(Call& call) {
  const torch::ScalarType type = call.result_type();
  call.result(call.to.add("Sub", {call.operand("other", type), call.operand("self", type)}));
}
void mul(Call& call) { call.result(binary(call, "Mul")); }
// self + weight (end - self)
void lerp(Call& call) {
  const std::string path = call.to.add("Sub", {call.tensor("end"), call.tensor("self")});
  const std::string part = call.to.add("Mul", {path, call.operand("weight", call.result_type())});
  call.result(call.to.add("Add", {call.tensor("self"), part}));
}

std::string rounded_quotient(Call& call, const std::string& rounding) {
  const std::string quotient = binary(call, "Div");
  const bool whole = !torch::isFloatingType(call.result_type());
  if (rounding == "floor" && !whole) return call.to.add("Floor", {quotient});
  if (!rounding.empty() && !whole) call.refuse("rounds in a way that has no form in the file");
  return quotient;  // for whole numbers that are not negative
}
void div(Call& call) {
  call.result(rounded_quotient(call, call.has("rounding_mode") ? call.word("rounding_mode") : ""));
}
void floor_divide(Call& call) { call.result(rounded_quotient(call, "floor")); }

// x - y floor(x / y), with the sign of y
void remainder(Call& call) {
  if (!torch::isFloatingType(call.result_type())) return call.result(binary(call, "Mod"));
  const torch::ScalarType type = call.result_type();
  const std::string x = call.operand("self", type), y = call.operand("other", type);
  const std::string whole = call.to.add("Floor", {call.to.add("Div", {x, y})});
  call.result(call.to.add("Sub", {x, call.to.add("Mul", {y, whole})}));
}

void maximum(Call& call) { call.result(binary(call, "Max")); }
void minimum(Call& call) { call.result(binary(call, "Min")); }
void equal(Call& call) { call.result(binary(call, "Equal")); }
void differs(Call& call) { call.result(call.to.add("Not", {binary(call, "Equal")})); }
void less(Call& call) { call.result(binary(call, "Less")); }
void less_or_equal(Call& call) { call.result(binary(call, "LessOrEqual")); }
void greater(Call& call) { call.result(binary(call, "Greater")); }
void greater_or_equal(Call& call) { call.result(binary(call, "GreaterOrEqual")); }
void both(Call& call) { call.result(binary(call, "And")); }
void either(Call& call) { call.result(binary(call, "Or")); }

void power(Call& call) {
  const torch::ScalarType type = call.result_type();
  const std::string exponent = call.operand("exponent", type);
  call.result(call.to.add("Pow", {call.operand("self", type), exponent}));
}

template <const char* const& kOperation>
void unary(Call& call) {
  call.result(call.to.add(kOperation, {call.tensor("self")}));
}
constexpr const char *kAbs = "Abs", *kNeg = "Neg", *kExp = "Exp", *kLog = "Log", *kSqrt = "Sqrt",
                     *kSin = "Sin", *kCos = "Cos", *kFloor = "Floor", *kRound = "Round", *kTanh = "Tanh",
                     *kSigmoid = "Sigmoid", *kRelu = "Relu", *kErf = "Erf", *kNot = "Not",
                     *kReciprocal = "Reciprocal";

void square(Call& call) { call.result(call.to.add("Mul", {call.tensor("self"), call.tensor("self")})); }
void rsqrt(Call& call) {
  call.result(call.to.add("Reciprocal", {call.to.add("Sqrt", {call.tensor("self")})}));
}
void silu(Call& call) {
  call.result(call.to.add("Mul", {call.tensor("self"), call.to.add("Sigmoid", {call.tensor("self")})}));
}
// -log(1 + exp(-x))
void log_sigmoid(Call& call) {
  call.result(call.to.add("Neg", {call.to.add("Softplus", {call.to.add("Neg", {call.tensor("self")})})}));
}
void softplus(Call& call) {
  if (call.real("beta") != 1) call.refuse("has a beta other than 1");
  call.result(call.to.add("Softplus", {call.tensor("self")}));
}
void hardtanh(Call& call) {
  const torch::ScalarType type = call.type("self");
  call.result(call.to.add(
      "Clip", {call.tensor("self"), call.operand("min_val", type), call.operand("max_val", type)}));
}
void clamp(Call& call) {
  const torch::ScalarType type = call.type("self");
  call.result(call.to.add("Clip", {call.tensor("self"), call.has("min") ? call.operand("min", type) : "",
                                   call.has("max") ? call.operand("max", type) : ""}));
}

// x/2 (1 + erf(x / sqrt 2)), or its approximation with tanh
std::string composed_gelu(Call& call, bool by_tanh) {
  const torch::ScalarType type = call.type("self");
  const std::string x = call.tensor("self");
  const auto times = [&](const std::string& a, double b) {
    return call.to.add("Mul", {a, call.to.scalar(b, type)});
  };
  std::string inner;
  if (by_tanh) {
    const std::string cube = call.to.add("Mul", {call.to.add("Mul", {x, x}), x});
    inner = call.to.add("Tanh", {times(call.to.add("Add", {x, times(cube, 0.044715)}), std::sqrt(2 / M_PI))});
  } else {
    inner = call.to.add("Erf", {times(x, std::sqrt(0.5))});
  }
  return call.to.add("Mul", {times(x, 0.5), call.to.add("Add", {inner, call.to.scalar(1, type)})});
}
void gelu(Call& call) {
  const std::string form = call.word("approximate");
  if (call.to.opset() < 20) return call.result(composed_gelu(call, form == "tanh"));
  call.result(call.to.add("Gelu", {call.tensor("self")}, {{"approximate", form}}));
}

// Reductions have their axes as an input: sums from opset 13 on, others from 18 on.
void reduce(Call& call, const char* operation, int64_t since) {
  std::vector<int64_t> axes;
  if (call.has("dim")) axes = call.integers("dim");
  for (int64_t& axis : axes) axis += axis < 0 ? call.rank("self") : 0;
  std::vector<OnnxAttribute> attributes = {{"keepdims", static_cast<int64_t>(call.flag("keepdim"))}};
  std::vector<std::string> inputs = {
      call.converted(call.tensor("self"), call.type("self"), call.result_type())};
  if (!axes.empty() && call.to.opset() >= since) inputs.push_back(call.to.integers(axes));
  if (!axes.empty() && call.to.opset() < since) attributes.push_back({"axes", axes});
  call.result(call.to.add(operation, inputs, attributes));
}
void sum(Call& call) { reduce(call, "ReduceSum", 13); }
void mean(Call& call) { reduce(call, "ReduceMean", 18); }
void greatest(Call& call) { reduce(call, "ReduceMax", 18); }

// The largest value along an axis, and its index.
void max(Call& call) {
  if (!call.has("dim")) return greatest(call);
  const int64_t axis = call.axis("dim"), keep = static_cast<int64_t>(call.flag("keepdim"));
  std::vector<OnnxAttribute> attributes = {{"keepdims", keep}};
  std::vector<std::string> inputs = {call.tensor("self")};
  if (call.to.opset() >= 18)
    inputs.push_back(call.to.integers({axis}));
  else
    attributes.push_back({"axes", std::vector<int64_t>{axis}});
  call.result(call.to.add("ReduceMax", inputs, attributes), 0);
  if (call.is_used(1))
    call.result(call.to.add("ArgMax", {call.tensor("self")}, {{"axis", axis}, {"keepdims", keep}}), 1);
}
// The place of the largest or smallest value.
void arg_extreme(Call& call) {
  if (!call.has("dim")) call.refuse("has no axis");
  call.result(
      call.to.add(call.operation() == "aten::argmax" ? "ArgMax" : "ArgMin", {call.tensor("self")},
                  {{"axis", call.axis("dim")}, {"keepdims", static_cast<int64_t>(call.flag("keepdim"))}}));
}
// The Euclidean norm.
void norm(Call& call) {
  if (call.has("ord") && call.real("ord") != 2) call.refuse("is not the Euclidean norm");
  if (call.has("p") && call.real("p") != 2) call.refuse("is not the Euclidean norm");
  reduce(call, "ReduceL2", 18);
}

void cumsum(Call& call) {
  call.result(call.to.add(
      "CumSum", {call.tensor("self"), call.to.constant(torch::tensor(call.axis("dim"), torch::kInt64))}));
}
void softmax(Call& call) {
  const std::string x = call.converted(call.tensor("self"), call.type("self"), call.result_type());
  call.result(call.to.add(call.operation() == "aten::softmax" ? "Softmax" : "LogSoftmax", {x},
                          {{"axis", call.axis("dim")}}));
}

void matmul(Call& call) {
  const char* other = call.operation() == "aten::matmul" ? "other" : "mat2";
  call.result(call.to.add("MatMul", {call.tensor("self"), call.tensor(other)}));
}
void outer(Call& call) {
  const torch::ScalarType type = call.result_type();
  const std::string column = call.to.add("Unsqueeze", {call.operand("self", type), call.to.integers({1})});
  call.result(call.to.add("Mul", {column, call.operand("vec2", type)}));
}
void einsum(Call& call) {
  call.result(call.to.add("Einsum", call.tensors("tensors"), {{"equation", call.word("equation")}}));
}

}  // namespace

void add_arithmetic_entries(Entries& table) {
  table.insert({{"aten::add", add},
                {"aten::sub", sub},
                {"aten::rsub", rsub},
                {"aten::mul", mul},
                {"aten::lerp", lerp},
                {"aten::div", div},
                {"aten::floor_divide", floor_divide},
                {"aten::remainder", remainder},
                {"aten::maximum", maximum},
                {"aten::minimum", minimum},
                {"aten::eq", equal},
                {"aten::ne", differs},
                {"aten::lt", less},
                {"aten::le", less_or_equal},
                {"aten::gt", greater},
                {"aten::ge", greater_or_equal},
                {"aten::logical_and", both},
                {"aten::bitwise_and", both},
                {"aten::logical_or", either},
                {"aten::bitwise_or", either},
                {"aten::pow", power},
                {"aten::abs", unary<kAbs>},
                {"aten::neg", unary<kNeg>},
                {"aten::exp", unary<kExp>},
                {"aten::log", unary<kLog>},
                {"aten::sqrt", unary<kSqrt>},
                {"aten::sin", unary<kSin>},
                {"aten::cos", unary<kCos>},
                {"aten::floor", unary<kFloor>},
                {"aten::round", unary<kRound>},
                {"aten::tanh", unary<kTanh>},
                {"aten::sigmoid", unary<kSigmoid>},
                {"aten::relu", unary<kRelu>},
                {"aten::erf", unary<kErf>},
                {"aten::logical_not", unary<kNot>},
                {"aten::bitwise_not", unary<kNot>},
                {"aten::reciprocal", unary<kReciprocal>},
                {"aten::square", square},
                {"aten::rsqrt", rsqrt},
                {"aten::silu", silu},
                {"aten::log_sigmoid", log_sigmoid},
                {"aten::softplus", softplus},
                {"aten::hardtanh", hardtanh},
                {"aten::clamp", clamp},
                {"aten::clamp_min", clamp},
                {"aten::clamp_max", clamp},
                {"aten::gelu", gelu},
                {"aten::sum", sum},
                {"aten::mean", mean},
                {"aten::amax", greatest},
                {"aten::max", max},
                {"aten::argmax", arg_extreme},
                {"aten::argmin", arg_extreme},
                {"aten::linalg_vector_norm", norm},
                {"aten::norm", norm},
                {"aten::cumsum", cumsum},
                {"aten::softmax", softmax},
                {"aten::log_softmax", softmax},
                {"aten::matmul", matmul},
                {"aten::bmm", matmul},
                {"aten::mm", matmul},
                {"aten::outer", outer},
                {"aten::einsum", einsum}});
}

}  // namespace tessera::onnx
