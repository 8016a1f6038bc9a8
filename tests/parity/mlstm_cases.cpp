// models/mlstm_*: the cell alone, and the cell with its gates and norm.
#include "core/error.h"
#include "nn/mlstm.h"
#include "ops/mlstm_testing.h"
#include "tests/parity/model_case.h"

namespace tessera::parity::mlstm_cases {
namespace {

CaseResult check_mlstm_parallel(const Golden& golden) {
  const auto& config = golden.config();
  const ops::MlstmOptions options{.eps = config.value("eps", 1e-6),
                                  .rowwise = config.value("stabilize_rowwise", true)};
  const bool reverse = config.value("reverse", false);
  return compare_function(golden, [&](const Leaves& leaves) {
    const auto flipped = [&](const torch::Tensor& x) { return reverse ? x.flip(2) : x; };
    const auto input = [&](const char* name) { return flipped(leaves.at(std::string("input.") + name)); };
    const torch::Tensor h = ops::mlstm_parallel(
        input("q"), input("k"), input("v"), input("igate").squeeze(-1), input("fgate").squeeze(-1), options);
    return NamedOutputs{{"h", flipped(h)}};
  });
}

CaseResult check_mlstm_cell(const Golden& golden) {
  const auto& config = golden.config();
  return compare_function(golden, [&](const Leaves& leaves) {
    const auto width = config["dim"].get<int64_t>();
    nn::MlstmCell cell(width, config["num_heads"].get<int64_t>(), golden.has("param.outnorm.bias"),
                       3 * width);
    for (const auto& [name, owner] :
         {std::pair<std::string, torch::Tensor*>{"igate.weight", &cell->igate->weight},
          {"igate.bias", &cell->igate->bias},
          {"fgate.weight", &cell->fgate->weight},
          {"fgate.bias", &cell->fgate->bias},
          {"outnorm.weight", &cell->outnorm->weight},
          {"outnorm.bias", &cell->outnorm->bias}})
      if (golden.has("param." + name)) *owner = leaves.at("param." + name);
    return NamedOutputs{{"h", cell(leaves.at("input.q"), leaves.at("input.k"), leaves.at("input.v"))}};
  });
}

ops::MlstmState state_of(const Leaves& leaves, const torch::Tensor& k, const torch::Tensor& v) {
  if (!leaves.contains("input.C0")) return ops::mlstm_start(k, v, ops::MlstmStart::published);
  return {leaves.at("input.C0"), leaves.at("input.n0"), leaves.at("input.m0").squeeze(-1)};
}

// The states of all borders between pieces, side by side: "C_states", "n_states", "m_states" after `prefix`.
class States {
 public:
  void add(const ops::MlstmState& state) {
    c_.push_back(state.c);
    n_.push_back(state.n);
    m_.push_back(state.m);
  }
  void put(NamedOutputs& outputs, const std::string& prefix) const {
    outputs[prefix + "C_states"] = torch::stack(c_, 2);
    outputs[prefix + "n_states"] = torch::stack(n_, 2);
    outputs[prefix + "m_states"] = torch::stack(m_, 2);
  }

 private:
  std::vector<torch::Tensor> c_, n_, m_;
};

// Runs pieces of `length` tokens, each from the state that the one before left.
template <class Form>
torch::Tensor in_pieces(const Leaves& leaves, int64_t length, States& states, ops::MlstmState& state,
                        Form form) {
  std::vector<torch::Tensor> rows;
  const auto gate = [&](const char* name) { return leaves.at(name).squeeze(-1); };
  const torch::Tensor q = leaves.at("input.q"), k = leaves.at("input.k"), v = leaves.at("input.v");
  const torch::Tensor i = gate("input.igate"), f = gate("input.fgate");
  state = state_of(leaves, k, v);
  states.add(state);
  for (int64_t first = 0; first < q.size(2); first += length) {
    const auto part = [&](const torch::Tensor& x) { return x.slice(2, first, first + length); };
    const ops::MlstmResult piece = form(part(q), part(k), part(v), part(i), part(f), state);
    rows.push_back(piece.h);
    state = piece.last;
    states.add(state);
  }
  return torch::cat(rows, 2);
}

CaseResult check_mlstm_states(const Golden& golden) {
  const ops::MlstmOptions options{.eps = golden.config().value("eps", 1e-6)};
  const auto chunk = golden.config()["chunk_size"].get<int64_t>();
  double apart = 0;  // of the chunkwise form from the recurrent one, in float64
  const CaseResult result = compare_function(golden, [&](const Leaves& leaves) {
    NamedOutputs outputs;
    ops::MlstmState last, chunk_last;
    States steps, chunks;
    outputs["h"] = in_pieces(leaves, 1, steps, last,
                             [&](const auto&... x) { return ops::mlstm_recurrent(x..., options); });
    const torch::Tensor h = in_pieces(
        leaves, chunk, chunks, chunk_last,
        [&](const auto& q, const auto& k, const auto& v, const auto& i, const auto& f, const auto& state) {
          return ops::mlstm_chunkwise(q, k, v, i, f, chunk, state, options);
        });
    if (h.scalar_type() == torch::kFloat64)
      apart = ((h - outputs["h"]).abs().max() / h.abs().max()).item<double>();
    steps.put(outputs, "");
    chunks.put(outputs, "chunk_");
    outputs["C_last"] = last.c;
    outputs["n_last"] = last.n;
    outputs["m_last"] = last.m.unsqueeze(-1);
    return outputs;
  });
  if (result.outcome == Outcome::passed && apart > 1e-12)
    return CaseResult::fail(text("chunkwise and recurrent h differ by ", apart, " of the largest"));
  return result;
}

const Registered registered({
    {"mlstm_parallel", check_mlstm_parallel, {"models/mlstm_parallel"}},
    {"mlstm_cell", check_mlstm_cell, {"models/mlstm_cell"}},
    {"mlstm_states", check_mlstm_states, {"models/mlstm_states"}},
});

}  // namespace
}  // namespace tessera::parity::mlstm_cases
