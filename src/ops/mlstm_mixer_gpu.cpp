// The inputs of the mLSTM mixer's cell by the kernels of a GPU, with gradients.
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <optional>

#include "ops/gpu.h"
#include "ops/mlstm_mixer.h"

namespace tessera::ops {
namespace {

using kernels::gpu::Form;
using kernels::gpu::MixerInputs;
using kernels::gpu::MixerInputsBackward;

// Convolution, q, k, v, input and forget gate: a weight and a bias each, undefined if there is none.
constexpr size_t kParameters = 12;
using Parameters = std::array<torch::Tensor, kParameters>;

Parameters parameters_of(const MlstmMixerParameters& p) {
  return {p.conv_weight, p.conv_bias, p.q_weight,     p.q_bias,     p.k_weight,      p.k_bias,
          p.v_weight,    p.v_bias,    p.input_weight, p.input_bias, p.forget_weight, p.forget_bias};
}
// Returns them as the kernels read them: floats, the taps of the convolution first.
Parameters as_read(Parameters p) {
  p[0] = p[0].reshape({p[0].size(0), -1}).t();
  for (torch::Tensor& tensor : p) tensor = floats(tensor);
  return p;
}
void set_parameters(MixerInputs& call, const Parameters& p) {
  const std::array fields = {&call.conv_weight,  &call.conv_bias,  &call.q_weight,      &call.q_bias,
                             &call.k_weight,     &call.k_bias,     &call.v_weight,      &call.v_bias,
                             &call.input_weight, &call.input_bias, &call.forget_weight, &call.forget_bias};
  for (size_t i = 0; i < kParameters; ++i) *fields[i] = float_pointer(p[i]);
}

uint16_t* half_pointer(const torch::Tensor& t) {
  return t.defined() ? static_cast<uint16_t*>(const_cast<void*>(t.const_data_ptr())) : nullptr;
}

// What both passes need. The call has shapes and strides, and no data.
struct Plan : torch::CustomClassHolder {
  Plan(const MixerInputs& c, const GpuPlace& p, const Form<MixerInputs>* f,
       const Form<MixerInputsBackward>* b)
      : call(c), place(p), forward(f), backward(b) {}
  MixerInputs call;
  GpuPlace place;
  const Form<MixerInputs>* forward;
  const Form<MixerInputsBackward>* backward;
};

// x: the first half of u. Returns q, k, v, i, f, a.
torch::autograd::variable_list compute(const Plan& plan, const torch::Tensor& x,
                                       const Parameters& as_floats) {
  MixerInputs call = plan.call;
  set_parameters(call, as_floats);
  const auto half = [&] { return torch::empty({call.batch, call.tokens, call.channels}, x.options()); };
  const auto gate = [&] {
    return torch::empty({call.batch, call.heads, call.tokens}, x.options().dtype(torch::kFloat32));
  };
  const torch::Tensor q = half(), k = half(), v = half(), i = gate(), f = gate(), a = half();
  call.x = half_pointer(x), call.a = half_pointer(a);
  call.q = half_pointer(q), call.k = half_pointer(k), call.v = half_pointer(v);
  call.igate = i.mutable_data_ptr<float>(), call.fgate = f.mutable_data_ptr<float>();
  run_on_gpu("mixer inputs", plan.place, *plan.forward, call);
  return {q, k, v, i, f, a};
}

// The gradients of the parameters, from their places in the kernels' numbers.
torch::autograd::variable_list split_gradients(
    const MixerInputs& call, const torch::Tensor& numbers, const torch::Tensor& di, const torch::Tensor& df,
    const std::array<std::optional<torch::Tensor>, kParameters>& like) {
  const int64_t C = call.channels, taps = kernels::gpu::mixer_taps(call), of_gate = 3 * call.heads * C;
  const std::array<int64_t, kParameters> sizes = {taps * C, C, 4 * C,   C, 4 * C,   C,
                                                  4 * C,    C, of_gate, 0, of_gate, 0};
  torch::autograd::variable_list result;
  int64_t place = 0;
  for (size_t i = 0; i < kParameters; ++i) {
    torch::Tensor gradient = numbers.narrow(0, place, sizes[i]);
    place += sizes[i];
    if (i == 0) gradient = gradient.view({taps, C}).t();
    if (sizes[i] == 0) gradient = (i == 9 ? di : df).sum(at::IntArrayRef{0, 2});
    result.push_back(like[i] ? gradient.reshape(like[i]->sizes()).to(like[i]->scalar_type())
                             : torch::Tensor());
  }
  return result;
}

struct GpuMixerInputsNode : torch::autograd::Function<GpuMixerInputsNode> {
  template <class... Given>
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx, const torch::Tensor& x,
                                                const c10::intrusive_ptr<Plan>& plan, const Given&... given) {
    const Parameters parameters = as_read({given.value_or(torch::Tensor())...});
    const torch::autograd::variable_list out = compute(*plan, x, parameters);
    torch::autograd::variable_list saved = {x, out[0], out[1], out[2], out[5]};
    saved.insert(saved.end(), parameters.begin(), parameters.end());
    for (const std::optional<torch::Tensor>& one : {given...}) saved.push_back(one.value_or(torch::Tensor()));
    ctx->save_for_backward(saved);
    ctx->saved_data["plan"] = c10::IValue::make_capsule(plan);
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    check_first_derivative("mlstm_mixer");
    const auto saved = ctx->get_saved_variables();
    const auto holder = ctx->saved_data["plan"].toCapsule();
    const auto& plan = static_cast<const Plan&>(*holder);
    const torch::Tensor& x = saved[0];
    const auto half = [&](size_t i, bool needed) {
      if (gradients[i].defined()) return aligned(gradients[i].to(torch::kBFloat16).contiguous());
      return needed ? torch::zeros_like(saved[1]) : torch::Tensor();
    };
    const torch::Tensor dq = half(0, true), dk = half(1, true), dv = half(2, true), da = half(5, false);
    const auto gate = [&](size_t i) {
      if (gradients[i].defined()) return gradients[i].to(torch::kFloat32).contiguous();
      return torch::zeros({plan.call.batch, plan.call.heads, plan.call.tokens},
                          x.options().dtype(torch::kFloat32));
    };
    const torch::Tensor di = gate(3), df = gate(4);
    MixerInputsBackward call;
    call.of = plan.call;
    Parameters parameters;
    std::array<std::optional<torch::Tensor>, kParameters> given;
    for (size_t i = 0; i < kParameters; ++i) {
      parameters[i] = saved[5 + i];
      if (saved[5 + kParameters + i].defined()) given[i] = saved[5 + kParameters + i];
    }
    set_parameters(call.of, parameters);
    call.of.x = half_pointer(x), call.of.q = half_pointer(saved[1]), call.of.k = half_pointer(saved[2]);
    call.of.v = half_pointer(saved[3]), call.of.a = half_pointer(saved[4]);
    call.dq = half_pointer(dq), call.dk = half_pointer(dk), call.dv = half_pointer(dv),
    call.da = half_pointer(da);
    call.digate = float_pointer(di), call.dfgate = float_pointer(df);
    const int64_t numbers = kernels::gpu::mixer_numbers(call.of);
    const torch::Tensor dx = torch::empty_like(saved[1]),
                        totals = torch::empty({4, dx.numel()}, dx.options()),
                        dparameters = torch::empty({numbers}, di.options()),
                        partial = torch::empty(
                            {kernels::gpu::row_parts(plan.call.batch * plan.call.tokens), numbers},
                            di.options());
    call.dx = half_pointer(dx), call.totals = half_pointer(totals);
    call.dparameters = dparameters.mutable_data_ptr<float>(),
    call.partial = partial.mutable_data_ptr<float>();
    run_on_gpu("mixer inputs backward", plan.place, *plan.backward, call);
    torch::autograd::variable_list result = {dx, {}};
    for (torch::Tensor& one : split_gradients(plan.call, dparameters, di, df, given))
      result.push_back(std::move(one));
    return result;
  }
};

bool known(const torch::Tensor& u, const MlstmMixerParameters& p, const MlstmMixerOptions& options,
           bool grid) {
  return p.conv_weight.defined() && (grid || options.causal) && options.off_grid.empty() &&
         !options.paper_cell && !options.value_conv && !options.whole_gates && !p.k_conv_weight.defined() &&
         p.q_weight.size(-1) == 4 && u.stride(2) == 1 &&
         (!grid || (u.size(1) > 0 && options.rows * options.columns == u.size(1)));
}

}  // namespace

MlstmMixerInputs mixer_inputs_on_gpu(const torch::Tensor& u, const MlstmMixerParameters& p,
                                     const MlstmMixerOptions& options) {
  const int64_t inner = u.size(2) / 2;
  const bool grid = p.conv_weight.defined() && p.conv_weight.dim() == 4;
  const auto place = gpu_place(u);
  if (!place || u.scalar_type() != torch::kBFloat16 || !known(u, p, options, grid)) return {};
  MixerInputs call{
      u.size(0),      u.size(1), inner, options.heads, p.conv_weight.size(-1), grid ? options.columns : 0,
      options.reverse};
  const torch::Tensor x = u.slice(2, 0, inner);
  call.x = half_pointer(x), call.sample = u.stride(0), call.row = u.stride(1);
  const kernels::gpu::Table& table = *kernels::gpu::table();
  MixerInputsBackward backward;
  backward.of = call;
  const bool gradients = gradients_wanted();
  const Plan plan(call, *place, kernels::gpu::choose_form(table.mixer_inputs, place->capability, call),
                  gradients
                      ? kernels::gpu::choose_form(table.mixer_inputs_backward, place->capability, backward)
                      : nullptr);
  if (!plan.forward || (gradients && !plan.backward)) return {};
  const Parameters parameters = parameters_of(p);
  torch::autograd::variable_list out;
  if (!gradients) {
    out = compute(plan, x, as_read(parameters));
  } else {
    const auto given = [&](size_t i) {
      return parameters[i].defined() ? std::optional(parameters[i]) : std::nullopt;
    };
    out = GpuMixerInputsNode::apply(x, c10::make_intrusive<Plan>(plan), given(0), given(1), given(2),
                                    given(3), given(4), given(5), given(6), given(7), given(8), given(9),
                                    given(10), given(11));
  }
  return {out[0], out[1], out[2], out[3], out[4], out[5], u.slice(2, inner)};
}

}  // namespace tessera::ops
