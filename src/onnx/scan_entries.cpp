// Scans along a sequence [batch, tokens, …], which a trace records as one operation each
// (ops::WholeScans). ONNX's Scan repeats its body for each token, so neither the file nor the memory of the
// state grows with the sequence.
#include "core/error.h"
#include "onnx/lowering.h"

namespace tessera::onnx {
namespace {

constexpr int64_t kTokens = 1;    // axis
constexpr double kEmpty = -1e30;  // exponent of an empty sum

// Builds a Scan. Values of the body are "step:NAME", which no value of the graph around it is.
class Steps {
 public:
  explicit Steps(Lowering& to) : to_(to) {}

  // Adds a state [batch, …rest] that begins with the value `first` and becomes the value `next` of the body.
  void state(const std::string& name, const std::string& first, const std::string& next,
             const std::vector<int64_t>& rest) {
    add_state(name, first, next, with_batch(rest));
  }
  // Adds a constant. It is a state that stays: not every program lets a body read values around it.
  void constant(const std::string& name, const std::string& value, const std::vector<int64_t>& shape) {
    std::vector<OnnxDimension> sides;
    for (const int64_t side : shape) sides.push_back({.size = side});
    add_state(name, value, name + "_kept", sides);
    node(name + "_kept", "Identity", {name});
  }
  // Adds a sequence [batch, tokens, …rest]. Each step sees one token; `reverse`: the last one first.
  void sequence(const std::string& name, const std::string& whole, const std::vector<int64_t>& rest,
                bool reverse) {
    sequences_.push_back({"step:" + name, OnnxType::f32, with_batch(rest)});
    wholes_.push_back(whole);
    sequence_directions_.push_back(reverse);
  }
  // Adds a result [batch, tokens, …rest] of the values NAME of all steps.
  void result(const std::string& name, const std::vector<int64_t>& rest, bool reverse) {
    results_.push_back({"step:" + name, OnnxType::f32, with_batch(rest)});
    result_directions_.push_back(reverse);
  }
  // Adds a node to the body.
  void node(const std::string& out, const std::string& operation, const std::vector<std::string>& in) {
    OnnxNode one{.name = "step:" + out, .operation = operation, .inputs = {}, .outputs = {"step:" + out}};
    for (const std::string& name : in) one.inputs.push_back("step:" + name);
    nodes_.push_back(std::move(one));
  }

  // Adds the Scan and returns the names of the results, in order.
  std::vector<std::string> add() {
    auto body = std::make_shared<OnnxGraph>();
    body->name = "step", body->nodes = std::move(nodes_);
    body->inputs = std::move(states_), body->outputs = std::move(nexts_);
    body->inputs.insert(body->inputs.end(), sequences_.begin(), sequences_.end());
    body->outputs.insert(body->outputs.end(), results_.begin(), results_.end());
    std::vector<std::string> inputs = std::move(firsts_);
    const size_t states = inputs.size();
    inputs.insert(inputs.end(), wholes_.begin(), wholes_.end());
    const std::vector<int64_t> in_axes(wholes_.size(), kTokens), out_axes(results_.size(), kTokens);
    const std::vector<std::string> outputs =
        to_.add_several("Scan", inputs, states + results_.size(),
                        {{"num_scan_inputs", std::ssize(wholes_)},
                         {"scan_input_axes", in_axes},
                         {"scan_input_directions", sequence_directions_},
                         {"scan_output_axes", out_axes},
                         {"scan_output_directions", result_directions_},
                         {"body", std::shared_ptr<const OnnxGraph>(std::move(body))}});
    return {outputs.begin() + static_cast<std::ptrdiff_t>(states), outputs.end()};
  }

 private:
  static std::vector<OnnxDimension> with_batch(const std::vector<int64_t>& rest) {
    std::vector<OnnxDimension> shape = {{.name = "step:batch"}};
    for (const int64_t side : rest) shape.push_back({.size = side});
    return shape;
  }
  void add_state(const std::string& name, const std::string& first, const std::string& next,
                 const std::vector<OnnxDimension>& shape) {
    states_.push_back({"step:" + name, OnnxType::f32, shape});
    nexts_.push_back({"step:" + next, OnnxType::f32, shape});
    firsts_.push_back(first);
  }

  Lowering& to_;
  std::vector<OnnxNode> nodes_;
  std::vector<OnnxValue> states_, nexts_, sequences_, results_;
  std::vector<std::string> firsts_, wholes_;
  std::vector<int64_t> sequence_directions_, result_directions_;
};

void require_floats(const Call& call, std::initializer_list<const char*> tensors) {
  for (const char* name : tensors)
    if (call.has(name) && call.type(name) != torch::kFloat32)
      call.refuse(std::string("has '") + name + "' of another type than float32");
}

// Returns a tensor [batch of x, …rest] of one value.
std::string filled(Lowering& to, const std::string& x, const std::vector<int64_t>& rest, double value) {
  const std::string batch = to.add("Shape", {x}, {{"start", int64_t{0}}, {"end", int64_t{1}}});
  const std::string shape = to.add("Concat", {batch, to.integers(rest)}, {{"axis", int64_t{0}}});
  return to.add("Expand", {to.constant(torch::full({1}, value)), shape});
}

// h_t = exp(dt_t a) h_{t-1} + dt_t u_t b_t,  y_t = (h_t c_t + d u_t) silu(z_t),  dt = softplus(delta + bias)
void selective_scan(Call& call) {
  require_floats(call, {"u", "delta", "a", "b", "c", "d", "z", "delta_bias"});
  Lowering& to = call.to;
  const std::vector<int64_t> sides = call.shape("a");
  const int64_t channels = sides[0], states = sides[1];
  const bool reverse = call.flag("reverse");
  const std::string u = call.tensor("u");
  std::string dt = call.tensor("delta");
  if (call.has("delta_bias")) dt = to.add("Add", {dt, call.tensor("delta_bias")});
  if (call.flag("softplus")) dt = to.add("Softplus", {dt});
  const auto widened = [&](const std::string& x, int64_t axis) {
    return to.add("Unsqueeze", {x, to.integers({axis})});
  };
  Steps steps(to);
  steps.constant("a", call.tensor("a"), sides);
  steps.state("h", filled(to, u, sides, 0), "next", sides);
  steps.sequence("dt", widened(dt, 3), {channels, 1}, reverse);
  steps.sequence("x", widened(to.add("Mul", {dt, u}), 3), {channels, 1}, reverse);
  steps.sequence("b", widened(call.tensor("b"), 2), {1, states}, reverse);
  steps.sequence("c", widened(call.tensor("c"), 3), {states, 1}, reverse);
  steps.node("rate", "Mul", {"dt", "a"});
  steps.node("decay", "Exp", {"rate"});
  steps.node("kept", "Mul", {"decay", "h"});
  steps.node("added", "Mul", {"x", "b"});
  steps.node("next", "Add", {"kept", "added"});
  steps.node("y", "MatMul", {"next", "c"});
  steps.result("y", {channels, 1}, reverse);
  std::string y = to.add("Squeeze", {steps.add()[0], to.integers({3})});
  if (call.has("d")) y = to.add("Add", {y, to.add("Mul", {call.tensor("d"), u})});
  if (call.has("z")) {
    const std::string z = call.tensor("z");
    y = to.add("Mul", {y, to.add("Mul", {z, to.add("Sigmoid", {z})})});
  }
  call.result(y);
}

// The sums e^p n and e^p d over the tokens before each in one direction: their names in the body and as results.
void add_sums(Steps& steps, const std::string& k, const std::string& v, const std::string& zeros,
              const std::string& empty, int64_t channels, bool reverse) {
  const std::string side = reverse ? "_after" : "_before";
  steps.sequence("k" + side, k, {channels}, reverse);
  steps.sequence("v" + side, v, {channels}, reverse);
  for (const char* sum : {"n", "d", "p"}) {
    const std::string name = sum + side;
    steps.state(name, *sum == 'p' ? empty : zeros, name + "_next", {channels});
    steps.node(name + "_seen", "Identity", {name});
    steps.result(name + "_seen", {channels}, reverse);
  }
  const auto node = [&](const std::string& out, const char* operation, std::vector<std::string> in) {
    for (std::string& one : in)
      if (one != "w") one += side;
    steps.node(out + side, operation, in);
  };
  node("reached", "Sub", {"p", "w"});
  steps.node("p" + side + "_next", "Max", {"reached" + side, "k" + side});
  steps.node("drop" + side, "Sub", {"reached" + side, "p" + side + "_next"});
  steps.node("rise" + side, "Sub", {"k" + side, "p" + side + "_next"});
  node("old", "Exp", {"drop"});
  node("new", "Exp", {"rise"});
  node("old_n", "Mul", {"old", "n"});
  node("new_n", "Mul", {"new", "v"});
  steps.node("n" + side + "_next", "Add", {"old_n" + side, "new_n" + side});
  node("old_d", "Mul", {"old", "d"});
  steps.node("d" + side + "_next", "Add", {"old_d" + side, "new" + side});
}

// y_t = (sums before and after t, and e^{u + k_t} v_t) / (the same with v = 1), the largest exponent split off.
void bi_wkv(Call& call) {
  require_floats(call, {"w", "u", "k", "v"});
  Lowering& to = call.to;
  const int64_t channels = call.shape("w")[0];
  const std::string k = call.tensor("k"), v = call.tensor("v");
  const std::string zeros = filled(to, k, {channels}, 0), empty = filled(to, k, {channels}, kEmpty);
  Steps steps(to);
  steps.constant("w", call.tensor("w"), {channels});
  for (const bool reverse : {false, true}) add_sums(steps, k, v, zeros, empty, channels, reverse);
  const std::vector<std::string> sums = steps.add();  // n, d, p before, then after
  const std::string own = to.add("Add", {call.tensor("u"), k});
  const std::string most = to.add("Max", {to.add("Max", {sums[2], sums[5]}), own});
  const auto share = [&](const std::string& exponent) {
    return to.add("Exp", {to.add("Sub", {exponent, most})});
  };
  const std::string before = share(sums[2]), after = share(sums[5]), now = share(own);
  const auto total = [&](const std::string& a, const std::string& b, const std::string& c) {
    return to.add("Add", {to.add("Add", {to.add("Mul", {before, a}), to.add("Mul", {after, b})}), c});
  };
  const std::string above = total(sums[0], sums[3], to.add("Mul", {now, v}));
  call.result(to.add("Div", {above, total(sums[1], sums[4], now)}));
}

}  // namespace

void add_scan_entries(Entries& table) {
  table.insert({{"tessera::selective_scan", selective_scan}, {"tessera::bi_wkv", bi_wkv}});
}

}  // namespace tessera::onnx
