#include "ops/selective_scan.h"

#include <ATen/core/op_registration/op_registration.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <vector>

#include "core/error.h"
#include "kernels/selective_scan/selective_scan.h"
#include "ops/inference.h"
#include "ops/sequence_rows.h"

namespace tessera::ops {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using MaybeTensor = std::optional<Tensor>;

MaybeTensor to_optional(const Tensor& t) { return t.defined() ? MaybeTensor(t) : std::nullopt; }
Tensor from_optional(const MaybeTensor& t) { return t.value_or(Tensor()); }

// Returns B or C as [batch, tokens, groups, states].
Tensor in_groups(const Tensor& b, const SelectiveScanInputs& in, const char* name) {
  const int64_t batch = in.u.size(0), tokens = in.u.size(1), channels = in.u.size(2), states = in.a.size(1);
  if (b.dim() == 2 && b.size(0) == channels && b.size(1) == states)
    return b.unsqueeze(0).unsqueeze(0).expand({batch, tokens, channels, states});
  check((b.dim() == 3 || b.dim() == 4) && b.size(0) == batch && b.size(1) == tokens && b.size(-1) == states &&
            (b.dim() == 3 || (b.size(2) > 0 && channels % b.size(2) == 0)),
        "selective_scan: ", name, " is ", b.sizes(), " for u ", in.u.sizes(), " and a ", in.a.sizes(),
        ", must be [batch, tokens, states], [batch, tokens, groups, states] or [channels, states]");
  return b.dim() == 3 ? b.unsqueeze(2) : b;
}

// Returns both with the larger of the two numbers of groups.
std::pair<Tensor, Tensor> b_and_c(const SelectiveScanInputs& in) {
  Tensor b = in_groups(in.b, in, "b"), c = in_groups(in.c, in, "c");
  const int64_t groups = std::max(b.size(2), c.size(2));
  const auto widened = [&](const Tensor& t) {
    return t.size(2) == groups ? t : t.repeat_interleave(groups / t.size(2), 2);
  };
  check(groups % b.size(2) == 0 && groups % c.size(2) == 0, "selective_scan: ", b.size(2),
        " groups of b and ", c.size(2), " of c");
  return {widened(b), widened(c)};
}

void check_inputs(const SelectiveScanInputs& in) {
  check(
      in.u.dim() == 3 && in.delta.sizes() == in.u.sizes() && in.a.dim() == 2 && in.a.size(0) == in.u.size(2),
      "selective_scan: u ", in.u.sizes(), ", delta ", in.delta.sizes(), ", a ", in.a.sizes(),
      " must be [batch, tokens, channels] twice and [channels, states]");
  check(!in.a.is_complex(), "selective_scan: a is complex, must be real");
  const auto fits = [&](const Tensor& t) { return !t.defined() || t.numel() == in.u.size(2); };
  check(fits(in.d) && fits(in.delta_bias) && (!in.z.defined() || in.z.sizes() == in.u.sizes()),
        "selective_scan: d, z or delta_bias do not fit u ", in.u.sizes());
  check(!in.first_state.defined() ||
            in.first_state.sizes() == at::IntArrayRef({in.u.size(0), in.u.size(2), in.a.size(1)}),
        "selective_scan: a first state for u ", in.u.sizes(), " must be [batch, channels, states]");
}

// h_t = decay_t h_{t-1} + added_t along axis 1. Each round adds the sums of twice as many tokens.
Tensor scan(Tensor decay, Tensor added) {
  const int64_t tokens = added.size(1);
  for (int64_t step = 1; step < tokens; step *= 2) {
    const Tensor late = decay.slice(1, step);
    added = torch::cat(
        {added.slice(1, 0, step), added.slice(1, step) + late * added.slice(1, 0, tokens - step)}, 1);
    if (2 * step < tokens)
      decay = torch::cat({decay.slice(1, 0, step), late * decay.slice(1, 0, tokens - step)}, 1);
  }
  return added;
}

// The part of the kernel's arguments that both directions share.
template <class Call>
Call call_of(const Tensor& u, const Tensor& delta, const Tensor& a, const Tensor& b, const Tensor& c,
             const Tensor& d, const Tensor& z, const Tensor& bias, bool softplus, bool reverse) {
  Call call;
  call.batch = u.size(0), call.tokens = u.size(1), call.channels = u.size(2), call.states = a.size(1);
  call.groups = b.size(2), call.softplus = softplus, call.reverse = reverse;
  call.u = float_rows(u), call.delta = float_rows(delta), call.z = float_rows(z);
  call.a = a.const_data_ptr<float>();
  call.b = float_rows(b), call.c = float_rows(c);
  call.d = float_pointer(d), call.delta_bias = float_pointer(bias);
  return call;
}

struct ScanNode : torch::autograd::Function<ScanNode> {
  static variable_list forward(AutogradContext* ctx, const Tensor& u, const Tensor& delta, const Tensor& a,
                               const Tensor& b, const Tensor& c, const MaybeTensor& d, const MaybeTensor& z,
                               const MaybeTensor& bias, bool softplus, bool reverse, const MaybeTensor& first,
                               bool with_last, bool keep) {
    auto call = call_of<kernels::SelectiveScanForward>(u, delta, a, b, c, from_optional(d), from_optional(z),
                                                       from_optional(bias), softplus, reverse);
    const Tensor y = torch::empty(u.sizes(), u.options());
    Tensor last, kept;
    call.y = float_rows_out(y);
    if (first) call.first_state = first->const_data_ptr<float>();
    if (with_last) {
      last = torch::empty({call.batch, call.channels, call.states}, u.options());
      call.last_state = last.mutable_data_ptr<float>();
    }
    if (keep) {
      kept = torch::empty({kernels::scan_kept(call)}, u.options());
      call.kept = kept.mutable_data_ptr<float>();
    }
    const Profiled profiled("selective scan");
    kernels::selective_scan(call);
    ctx->save_for_backward(
        {u, delta, a, b, c, from_optional(d), from_optional(z), from_optional(bias), kept});
    ctx->saved_data["softplus"] = softplus;
    ctx->saved_data["reverse"] = reverse;
    if (!with_last) return {y};
    ctx->mark_non_differentiable({last});
    return {y, last};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    check_first_derivative("selective_scan");
    const auto s = ctx->get_saved_variables();
    const Tensor &u = s[0], &a = s[2], &b = s[3], &d = s[5], &z = s[6], &bias = s[7];
    auto call = call_of<kernels::SelectiveScanBackward>(u, s[1], a, b, s[4], d, z, bias,
                                                        ctx->saved_data["softplus"].toBool(),
                                                        ctx->saved_data["reverse"].toBool());
    const auto like = [](const Tensor& t) { return t.defined() ? torch::empty(t.sizes(), t.options()) : t; };
    const auto to = [](const Tensor& t) { return t.defined() ? t.mutable_data_ptr<float>() : nullptr; };
    const Tensor gy = gradients[0].contiguous(), gu = like(u), gdelta = like(u), gz = like(z), ga = like(a),
                 gb = like(b), gc = like(b), gd = like(d), gbias = like(bias);
    call.kept = s[8].mutable_data_ptr<float>();
    call.gy = float_rows(gy), call.gu = float_rows_out(gu), call.gdelta = float_rows_out(gdelta);
    call.gz = float_rows_out(gz);
    call.ga = to(ga), call.gb = to(gb), call.gc = to(gc), call.gd = to(gd), call.gdelta_bias = to(gbias);
    const Profiled profiled("selective scan backward");
    kernels::selective_scan_backward(call);
    return {gu, gdelta, ga, gb, gc, gd, gz, gbias, {}, {}, {}, {}, {}};
  }
};

// The operation that a trace records.
Tensor whole_scan(const Tensor& u, const Tensor& delta, const Tensor& a, const Tensor& b, const Tensor& c,
                  const MaybeTensor& d, const MaybeTensor& z, const MaybeTensor& delta_bias, bool softplus,
                  bool reverse) {
  const WholeScans inside(false);
  const InferenceScope on_kernels({});
  return selective_scan({.u = u,
                         .delta = delta,
                         .a = a,
                         .b = b,
                         .c = c,
                         .d = from_optional(d),
                         .z = from_optional(z),
                         .delta_bias = from_optional(delta_bias),
                         .softplus = softplus,
                         .reverse = reverse})
      .y;
}

const auto registered_scan = c10::RegisterOperators().op(
    "tessera::selective_scan(Tensor u, Tensor delta, Tensor a, Tensor b, Tensor c, Tensor? d, Tensor? z, "
    "Tensor? delta_bias, bool softplus, bool reverse) -> Tensor",
    &whole_scan);

thread_local bool scans_are_whole = false;

}  // namespace

WholeScans::WholeScans(bool on) : before_(scans_are_whole) { scans_are_whole = on; }
WholeScans::~WholeScans() { scans_are_whole = before_; }
bool whole_scans() { return scans_are_whole; }

SelectiveScanResult selective_scan_unfused(const SelectiveScanInputs& in, bool with_last_state) {
  check_inputs(in);
  const auto [groups_b, groups_c] = b_and_c(in);
  const int64_t channels = in.u.size(2), groups = groups_b.size(2);
  const auto walk = [&](const Tensor& t) { return in.reverse ? t.flip({1}) : t; };
  // [batch, tokens, groups, states] -> [batch, tokens, channels or 1, states]
  const auto of_channels = [&](const Tensor& t) {
    return walk(groups == 1 ? t : t.repeat_interleave(channels / groups, 2));
  };
  const Tensor b = of_channels(groups_b), c = of_channels(groups_c), u = walk(in.u);
  Tensor dt = walk(in.delta);
  if (in.delta_bias.defined()) dt = dt + in.delta_bias;
  if (in.softplus) dt = torch::softplus(dt);
  const Tensor decay = torch::exp(dt.unsqueeze(-1) * in.a);
  Tensor added = (dt * u).unsqueeze(-1) * b;
  if (in.first_state.defined())
    added = torch::cat(
        {added.slice(1, 0, 1) + (decay.select(1, 0) * in.first_state).unsqueeze(1), added.slice(1, 1)}, 1);
  const Tensor h = scan(decay, added);
  Tensor y = (h * c).sum(-1);
  if (in.d.defined()) y = y + in.d * u;
  y = walk(y);
  if (in.z.defined()) y = y * torch::silu(in.z);
  return {y, with_last_state ? h.select(1, -1).detach() : Tensor()};
}

SelectiveScanResult selective_scan(const SelectiveScanInputs& in, bool with_last_state) {
  check_inputs(in);
  if (whole_scans() && !in.first_state.defined() && !with_last_state && in.b.dim() == 3 && in.c.dim() == 3) {
    static const auto whole = c10::Dispatcher::singleton()
                                  .findSchemaOrThrow("tessera::selective_scan", "")
                                  .typed<decltype(whole_scan)>();
    return {whole.call(in.u, in.delta, in.a, in.b, in.c, to_optional(in.d), to_optional(in.z),
                       to_optional(in.delta_bias), in.softplus, in.reverse),
            {}};
  }
  const torch::ScalarType type = in.u.scalar_type();
  const auto wide = [](const Tensor& t) {
    return t.defined() && t.scalar_type() != torch::kFloat64 ? t.to(torch::kFloat32) : t;
  };
  SelectiveScanInputs wider = in;
  for (Tensor* t : {&wider.u, &wider.delta, &wider.a, &wider.b, &wider.c, &wider.d, &wider.z,
                    &wider.delta_bias, &wider.first_state})
    *t = wide(*t);
  const bool state_has_gradient =
      in.first_state.defined() && in.first_state.requires_grad() && gradients_wanted();
  if (state_has_gradient || in.u.size(0) == 0 || in.u.size(1) == 0 ||
      !runs_on_float_kernels(wider.u, {wider.delta, wider.a, wider.b, wider.c, wider.d, wider.z,
                                       wider.delta_bias, wider.first_state})) {
    const SelectiveScanResult result = selective_scan_unfused(wider, with_last_state);
    return {result.y.to(type), result.last_state};
  }
  const auto [b, c] = b_and_c(wider);
  const auto states_adjacent = [](const Tensor& t) {
    return t.stride(3) == 1 && (t.size(2) == 1 || t.stride(2) == t.size(3)) ? t : t.contiguous();
  };
  const variable_list result = ScanNode::apply(
      channels_adjacent(wider.u), channels_adjacent(wider.delta), wider.a.contiguous(), states_adjacent(b),
      states_adjacent(c), to_optional(wider.d.defined() ? wider.d.contiguous() : wider.d),
      to_optional(wider.z.defined() ? channels_adjacent(wider.z) : wider.z),
      to_optional(wider.delta_bias.defined() ? wider.delta_bias.contiguous() : wider.delta_bias), in.softplus,
      in.reverse,
      to_optional(wider.first_state.defined() ? wider.first_state.contiguous() : wider.first_state),
      with_last_state, torch::GradMode::is_enabled());
  return {result[0].to(type), with_last_state ? result[1] : Tensor()};
}

SelectiveScanResult selective_scan_step(SelectiveScanInputs in) {
  for (Tensor* t : {&in.u, &in.delta, &in.z})
    if (t->defined()) *t = t->unsqueeze(1);
  const bool constant_b = in.b.sizes() == in.a.sizes() && in.b.size(0) != in.u.size(0);
  if (!constant_b) in.b = in.b.unsqueeze(1);
  const bool constant_c = in.c.sizes() == in.a.sizes() && in.c.size(0) != in.u.size(0);
  if (!constant_c) in.c = in.c.unsqueeze(1);
  const SelectiveScanResult result = selective_scan(in, /*with_last_state=*/true);
  return {result.y.squeeze(1), result.last_state};
}

}  // namespace tessera::ops
