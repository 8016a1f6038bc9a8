#include "ops/bi_wkv.h"

#include <ATen/core/op_registration/op_registration.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <vector>

#include "core/error.h"
#include "kernels/bi_wkv/bi_wkv.h"
#include "ops/inference.h"
#include "ops/selective_scan.h"
#include "ops/sequence_rows.h"

namespace tessera::ops {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double kEmpty = -1e30;  // exponent of an empty sum

void check_inputs(const Tensor& w, const Tensor& u, const Tensor& k, const Tensor& v) {
  check(k.dim() == 3 && v.sizes() == k.sizes() && w.dim() == 1 && w.size(0) == k.size(2) &&
            u.sizes() == w.sizes(),
        "bi_wkv: w ", w.sizes(), ", u ", u.sizes(), ", k ", k.sizes(), ", v ", v.sizes(),
        " must be [channels] twice and [batch, tokens, channels] twice");
}

kernels::BiWkv call_of(const Tensor& w, const Tensor& u, const Tensor& k, const Tensor& v) {
  return {k.size(0),     k.size(1),    k.size(2), w.const_data_ptr<float>(), u.const_data_ptr<float>(),
          float_rows(k), float_rows(v)};
}

struct WkvNode : torch::autograd::Function<WkvNode> {
  static Tensor forward(AutogradContext* ctx, const Tensor& w, const Tensor& u, const Tensor& k,
                        const Tensor& v) {
    const Tensor y = torch::empty(k.sizes(), k.options());
    const Profiled profiled("bi-WKV");
    kernels::bi_wkv({call_of(w, u, k, v), float_rows_out(y)});
    ctx->save_for_backward({w, u, k, v});
    return y;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    check_first_derivative("bi_wkv");
    const auto s = ctx->get_saved_variables();
    const Tensor gy = gradients[0].contiguous(), gk = torch::empty(s[2].sizes(), s[2].options()),
                 gv = torch::empty_like(gk), gw = torch::empty_like(s[0]), gu = torch::empty_like(s[0]);
    const Profiled profiled("bi-WKV backward");
    kernels::bi_wkv_backward({call_of(s[0], s[1], s[2], s[3]), float_rows(gy), float_rows_out(gk),
                              float_rows_out(gv), gw.mutable_data_ptr<float>(),
                              gu.mutable_data_ptr<float>()});
    return {gw, gu, gk, gv};
  }
};

// Sums over tokens, e^p n and e^p d, for each token.
struct Sums {
  Tensor n, d, p;
};

// Sums over the tokens before each. The exponents p are treated as constants, since the result does not
// depend on them.
Sums earlier_sums(const Tensor& w, const Tensor& k, const Tensor& v) {
  const int64_t tokens = k.size(1);
  Sums s{v, torch::ones_like(v), k.detach()};
  const Tensor factor = torch::exp(k - s.p);  // 1, with the gradient of k
  s.n = factor * s.n, s.d = factor * s.d;
  for (int64_t step = 1; step < tokens; step *= 2) {
    const double distance = static_cast<double>(step);
    const auto late = [&](const Tensor& t) { return t.slice(1, step); };
    const auto early = [&](const Tensor& t) { return t.slice(1, 0, tokens - step); };
    const Tensor reached = early(s.p) - distance * w;
    const Tensor p = torch::maximum(late(s.p), reached.detach());
    const Tensor own = torch::exp(late(s.p) - p), before = torch::exp(reached - p);
    const auto joined = [&](const Tensor& t) {
      return torch::cat({t.slice(1, 0, step), own * late(t) + before * early(t)}, 1);
    };
    s = {joined(s.n), joined(s.d), torch::cat({s.p.slice(1, 0, step), p}, 1)};
  }
  const auto shifted = [&](const Tensor& t, double first) {
    return torch::cat({torch::full_like(t.slice(1, 0, 1), first), t.slice(1, 0, tokens - 1)}, 1);
  };
  return {shifted(s.n, 0), shifted(s.d, 0), shifted(s.p, kEmpty)};
}

// The operation that a trace records.
Tensor whole_wkv(const Tensor& w, const Tensor& u, const Tensor& k, const Tensor& v) {
  const WholeScans inside(false);
  const InferenceScope on_kernels({});
  return bi_wkv(w, u, k, v);
}

const auto registered_wkv = c10::RegisterOperators().op(
    "tessera::bi_wkv(Tensor w, Tensor u, Tensor k, Tensor v) -> Tensor", &whole_wkv);

}  // namespace

Tensor bi_wkv_unfused(const Tensor& w, const Tensor& u, const Tensor& k, const Tensor& v) {
  check_inputs(w, u, k, v);
  const Sums before = earlier_sums(w, k, v);
  Sums after = earlier_sums(w, k.flip({1}), v.flip({1}));
  for (Tensor* t : {&after.n, &after.d, &after.p}) *t = t->flip({1});
  const Tensor own = u + k;
  const Tensor m = torch::maximum(torch::maximum(before.p, after.p), own.detach());
  const Tensor a = torch::exp(before.p - m), b = torch::exp(after.p - m), c = torch::exp(own - m);
  return (a * before.n + b * after.n + c * v) / (a * before.d + b * after.d + c);
}

Tensor bi_wkv(const Tensor& w, const Tensor& u, const Tensor& k, const Tensor& v) {
  check_inputs(w, u, k, v);
  if (whole_scans()) {
    static const auto whole =
        c10::Dispatcher::singleton().findSchemaOrThrow("tessera::bi_wkv", "").typed<decltype(whole_wkv)>();
    return whole.call(w, u, k, v);
  }
  const torch::ScalarType type = v.scalar_type();
  const auto wide = [](const Tensor& t) {
    return t.scalar_type() == torch::kFloat64 ? t : t.to(torch::kFloat32);
  };
  const Tensor w_ = wide(w), u_ = wide(u), k_ = wide(k), v_ = wide(v);
  if (k.numel() == 0 || !runs_on_float_kernels(k_, {w_, u_, v_}))
    return bi_wkv_unfused(w_, u_, k_, v_).to(type);
  return WkvNode::apply(w_.contiguous(), u_.contiguous(), channels_adjacent(k_), channels_adjacent(v_))
      .to(type);
}

Tensor bi_wkv_published(const Tensor& w, const Tensor& u, const Tensor& k, const Tensor& v) {
  check_inputs(w, u, k, v);
  check(!whole_scans(),
        "model.wkv = \"published\" has no form in the file: it sums over all pairs of tokens");
  constexpr int64_t kThreads = 32;
  constexpr double kEps = 1e-6;  // added to the divisor, whose largest term is 1
  const int64_t tokens = k.size(1), piece = (tokens + kThreads - 1) / kThreads;
  const Tensor index = torch::arange(tokens, k.options());
  const Tensor t = index.unsqueeze(1), i = index.unsqueeze(0), start = torch::floor(t / piece) * piece;
  const Tensor distance = (t - i).abs(), own_piece = (i >= start) & (i < t);
  // [tokens, tokens, channels]: exponents of the main terms, and the values of the additional terms.
  const Tensor exponent =
      torch::where((i == t).unsqueeze(-1), u, -(distance - own_piece.to(k.scalar_type())).unsqueeze(-1) * w);
  const Tensor inner = (i > start) & (i < t), itself = (i == t) & (t > start);
  const Tensor further = 1 - torch::exp(w);
  const Tensor more = torch::where(inner.unsqueeze(-1), torch::exp(distance.unsqueeze(-1) * w) * further,
                                   torch::where(itself.unsqueeze(-1), further, torch::zeros_like(further)));
  std::vector<Tensor> samples;
  for (int64_t sample = 0; sample < k.size(0); ++sample) {
    const Tensor keys = k[sample].unsqueeze(0), logits = exponent + keys;
    const Tensor m = std::get<0>(logits.detach().max(1, /*keepdim=*/true));
    const Tensor weight = torch::exp(logits - m) + more * torch::exp(keys - m);
    samples.push_back((weight * v[sample].unsqueeze(0)).sum(1) / (weight.sum(1) + kEps));
  }
  return torch::stack(samples);
}

Tensor quad_shift(const Tensor& x, int64_t rows, int64_t columns, double gamma, int64_t pixels) {
  check(x.dim() == 3 && x.size(1) == rows * columns, "quad_shift: x ", x.sizes(), " must be [batch, ", rows,
        " * ", columns, ", channels]");
  check(gamma >= 0 && gamma <= 0.25, "quad_shift: gamma is ", gamma, ", must be 0 to 1/4");
  const auto channel = [&](int parts) {
    return static_cast<int64_t>(static_cast<double>(x.size(2)) * gamma * parts);
  };
  const Tensor map = x.unflatten(1, {rows, columns});
  // The part from channel(first) on, moved along an axis.
  const auto moved = [&](int first, int64_t axis, bool onwards) {
    const Tensor part = map.slice(3, channel(first), channel(first + 1));
    const int64_t side = map.size(axis), by = std::min(pixels, side);
    const Tensor zeros = torch::zeros_like(part.slice(axis, 0, by));
    return onwards ? torch::cat({zeros, part.slice(axis, 0, side - by)}, axis)
                   : torch::cat({part.slice(axis, by), zeros}, axis);
  };
  return torch::cat({moved(0, 2, true), moved(1, 2, false), moved(2, 1, true), moved(3, 1, false),
                     map.slice(3, channel(4))},
                    3)
      .flatten(1, 2);
}

}  // namespace tessera::ops
