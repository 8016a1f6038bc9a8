#include "ops/mlstm.h"

#include <cmath>
#include <limits>
#include <vector>

#include "core/error.h"

namespace tessera::ops {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

void check_sequence(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                    const torch::Tensor& input_gate, const torch::Tensor& forget_gate) {
  check(q.dim() == 4 && k.sizes() == q.sizes() && v.dim() == 4 &&
            v.sizes().slice(0, 3) == q.sizes().slice(0, 3),
        "mlstm: q ", q.sizes(), ", k ", k.sizes(), ", v ", v.sizes(), " must be [batch, heads, tokens, d]");
  check(input_gate.sizes() == q.sizes().slice(0, 3) && forget_gate.sizes() == input_gate.sizes(),
        "mlstm: gates ", input_gate.sizes(), " and ", forget_gate.sizes(), " must be [batch, heads, tokens]");
}

void check_state(const MlstmState& state, int64_t batch, int64_t heads, int64_t key_dim, int64_t value_dim) {
  using Shape = std::vector<int64_t>;
  check(state.c.sizes() == Shape{batch, heads, key_dim, value_dim} &&
            state.n.sizes() == Shape{batch, heads, key_dim} && state.m.sizes() == Shape{batch, heads},
        "mlstm: a state of c ", state.c.sizes(), ", n ", state.n.sizes(), ", m ", state.m.sizes(),
        " does not fit ", batch, " x ", heads, " heads of ", key_dim, " keys and ", value_dim, " values");
}

torch::Tensor log_forget(const torch::Tensor& gate, const MlstmOptions& options) {
  return options.exponential_forget ? gate : torch::log_sigmoid(gate);
}

double score_scale(const torch::Tensor& q) { return 1 / std::sqrt(static_cast<double>(q.size(-1))); }

// Returns log D of one run of tokens: [batch, heads, tokens, tokens], -inf above the diagonal.
torch::Tensor log_weights(const torch::Tensor& decay, const torch::Tensor& input_gate) {
  const int64_t tokens = decay.size(-1);
  const torch::Tensor later = torch::ones({tokens, tokens}, decay.options().dtype(torch::kBool)).triu(1);
  return (decay.unsqueeze(-1) - decay.unsqueeze(-2) + input_gate.unsqueeze(-2)).masked_fill(later, kNever);
}

// Returns h from its numerator, the sum of weights and the stabiliser m.
torch::Tensor normalised(const torch::Tensor& numerator, const torch::Tensor& sum, const torch::Tensor& m,
                         const MlstmOptions& options) {
  return numerator / (torch::maximum(sum.abs(), torch::exp(-m)) + options.eps).unsqueeze(-1);
}

MlstmResult one_chunk(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                      const torch::Tensor& input_gate, const torch::Tensor& forget_gate,
                      const MlstmState& before, const MlstmOptions& options) {
  const torch::Tensor decay = torch::cumsum(log_forget(forget_gate, options), -1);
  const torch::Tensor log_d = log_weights(decay, input_gate);
  const torch::Tensor from_state = decay + before.m.unsqueeze(-1);  // log of the state's weight at each token
  const torch::Tensor m = torch::maximum(std::get<0>(log_d.max(-1)), from_state);
  const torch::Tensor scaled = q * score_scale(q), share = torch::exp(from_state - m).unsqueeze(-1);
  const torch::Tensor c = torch::matmul(scaled, k.transpose(-2, -1)) * torch::exp(log_d - m.unsqueeze(-1));
  const torch::Tensor sum = c.sum(-1) + (share * torch::matmul(scaled, before.n.unsqueeze(-1))).squeeze(-1);
  const torch::Tensor numerator = torch::matmul(c, v) + share * torch::matmul(scaled, before.c);
  // The last row of D has the weights of the tokens in the state after the chunk.
  const torch::Tensor last_m = m.select(-1, -1), kept = share.select(-2, -1);  // [batch, heads], [.., 1]
  const torch::Tensor weighted = k * torch::exp(log_d.select(-2, -1) - last_m.unsqueeze(-1)).unsqueeze(-1);
  return {normalised(numerator, sum, m, options),
          {kept.unsqueeze(-1) * before.c + torch::matmul(weighted.transpose(-2, -1), v),
           kept * before.n + weighted.sum(-2), last_m}};
}

}  // namespace

MlstmState mlstm_start(const torch::Tensor& k, const torch::Tensor& v, MlstmStart start) {
  check(k.dim() == 4 && v.dim() == 4, "mlstm: k ", k.sizes(), " and v ", v.sizes(),
        " must be [batch, heads, tokens, d]");
  const int64_t batch = k.size(0), heads = k.size(1), key_dim = k.size(3);
  return {torch::zeros({batch, heads, key_dim, v.size(3)}, k.options()),
          torch::zeros({batch, heads, key_dim}, k.options()),
          torch::full({batch, heads}, start == MlstmStart::fresh ? kNever : 0, k.options())};
}

torch::Tensor mlstm_parallel(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                             const torch::Tensor& input_gate, const torch::Tensor& forget_gate,
                             const MlstmOptions& options) {
  check_sequence(q, k, v, input_gate, forget_gate);
  const torch::Tensor log_d = log_weights(torch::cumsum(log_forget(forget_gate, options), -1), input_gate);
  const torch::Tensor m = options.rowwise
                              ? std::get<0>(log_d.max(-1, /*keepdim=*/true))
                              : std::get<0>(log_d.flatten(-2).max(-1, /*keepdim=*/true)).unsqueeze(-1);
  const torch::Tensor c = torch::matmul(q, (k * score_scale(q)).transpose(-2, -1)) * torch::exp(log_d - m);
  const torch::Tensor n = torch::maximum(c.sum(-1, /*keepdim=*/true).abs(), torch::exp(-m));
  return torch::matmul(c / (n + options.eps), v);
}

MlstmResult mlstm_chunkwise(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                            const torch::Tensor& input_gate, const torch::Tensor& forget_gate, int64_t chunk,
                            const MlstmState& initial, const MlstmOptions& options) {
  check_sequence(q, k, v, input_gate, forget_gate);
  check_state(initial, q.size(0), q.size(1), q.size(3), v.size(3));
  check(chunk > 0, "mlstm: a chunk of ", chunk, " tokens, must be at least 1");
  MlstmState state = initial;
  std::vector<torch::Tensor> pieces;
  for (int64_t first = 0, tokens = q.size(2); first < tokens; first += chunk) {
    const auto part = [&](const torch::Tensor& x) {
      return x.slice(2, first, std::min(first + chunk, tokens));
    };
    MlstmResult done =
        one_chunk(part(q), part(k), part(v), part(input_gate), part(forget_gate), state, options);
    pieces.push_back(std::move(done.h));
    state = std::move(done.last);
  }
  return {pieces.empty() ? torch::zeros_like(v) : torch::cat(pieces, 2), state};
}

MlstmResult mlstm_step(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                       const torch::Tensor& input_gate, const torch::Tensor& forget_gate,
                       const MlstmState& before, const MlstmOptions& options) {
  check(q.dim() == 3 && k.sizes() == q.sizes() && v.dim() == 3 &&
            input_gate.sizes() == q.sizes().slice(0, 2) && forget_gate.sizes() == input_gate.sizes(),
        "mlstm: a step takes q, k, v [batch, heads, d] and gates [batch, heads], q is ", q.sizes());
  check_state(before, q.size(0), q.size(1), q.size(2), v.size(2));
  const torch::Tensor decayed = log_forget(forget_gate, options) + before.m;
  const torch::Tensor m = torch::maximum(decayed, input_gate);
  const torch::Tensor a = torch::exp(decayed - m).unsqueeze(-1);
  const torch::Tensor taken = torch::exp(input_gate - m).unsqueeze(-1) * k;
  const torch::Tensor c = a.unsqueeze(-1) * before.c + taken.unsqueeze(-1) * v.unsqueeze(-2);
  const torch::Tensor n = a * before.n + taken;
  const torch::Tensor scaled = q * score_scale(q);
  const torch::Tensor numerator = torch::matmul(scaled.unsqueeze(-2), c).squeeze(-2);
  return {normalised(numerator, (scaled * n).sum(-1), m, options), {c, n, m}};
}

}  // namespace tessera::ops
