#include <torch/csrc/autograd/custom_function.h>

#include "ops/gpu.h"
#include "ops/mlstm.h"

namespace tessera::ops {
namespace {

using kernels::gpu::Form;
using kernels::gpu::MlstmCell;
using kernels::gpu::MlstmGradients;
using kernels::gpu::MlstmStates;

constexpr int64_t kChunk = 256;  // tokens between states

const uint16_t* half_data(const torch::Tensor& t) {
  return t.defined() ? static_cast<const uint16_t*>(t.const_data_ptr()) : nullptr;
}
uint16_t* half_data_to(const torch::Tensor& t) { return static_cast<uint16_t*>(t.mutable_data_ptr()); }
float* floats_to(const torch::Tensor& t) { return t.mutable_data_ptr<float>(); }

struct CellShape {
  int64_t batch, tokens, heads, dim;
  bool reverse, states;
  double eps, norm_eps;

  int64_t items() const { return batch * heads; }
  int64_t chunks() const { return kernels::gpu::chunks_of(tokens, kChunk); }
  // Returns a call of this shape without data: forms decide by it before anything is copied.
  template <class Call>
  Call call() const {
    Call call;
    call.batch = batch, call.tokens = tokens, call.heads = heads, call.key_dim = call.value_dim = dim;
    call.chunk = kChunk, call.reverse = reverse;
    return call;
  }
};

CellShape shape_of(const MlstmGpuInputs& in) {
  const int64_t tokens = in.q.size(1);
  return {in.q.size(0), tokens,     in.heads, in.q.size(2) / in.heads, in.reverse, in.last || tokens > kChunk,
          in.eps,       in.norm_eps};
}

// The kernels of a call; null cell: none.
struct CellForms {
  const Form<MlstmCell>* cell = nullptr;
  const Form<MlstmStates>* states = nullptr;
  const Form<MlstmGradients>* gradients = nullptr;
  bool after = false;  // the cell's kernel has norm, skip and gate too
};

CellForms forms_for(const CellShape& shape, int capability, bool gradients) {
  alignas(16) static uint16_t given[8];  // any pointer: a tensor that the call will have
  alignas(16) static float given_floats[4];
  const kernels::gpu::Table& table = *kernels::gpu::table();
  CellForms forms;
  auto cell = shape.call<MlstmCell>();
  auto states = shape.call<MlstmStates>();
  auto backward = shape.call<MlstmGradients>();
  if (shape.states) cell.c = states.c = given, states.n = states.m = given_floats, backward.c = given;
  if (!gradients) {
    cell.y = given, cell.act = cell.z = given, cell.norm_weight = cell.skip = given_floats;
    forms.cell = kernels::gpu::choose_form(table.mlstm, capability, cell);
    forms.after = forms.cell != nullptr;
    cell.y = nullptr;
  }
  if (!forms.cell) forms.cell = kernels::gpu::choose_form(table.mlstm, capability, cell);
  if (shape.states) forms.states = kernels::gpu::choose_form(table.mlstm_states, capability, states);
  if (gradients) forms.gradients = kernels::gpu::choose_form(table.mlstm_backward, capability, backward);
  if ((shape.states && !forms.states) || (gradients && !forms.gradients)) forms.cell = nullptr;
  return forms;
}

// The tensors that calls point to.
struct CellMemory {
  torch::Tensor q, k, v, i, f;  // as the kernels read them
  torch::Tensor c, n, m;        // before each chunk, if there are states
};

CellMemory memory_of(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                     const torch::Tensor& i, const torch::Tensor& f) {
  return {aligned(q), aligned(k), aligned(v), floats(i), floats(f), {}, {}, {}};
}

template <class Call>
Call call_on(const CellShape& shape, const CellMemory& memory) {
  auto call = shape.call<Call>();
  call.k = half_data(memory.k), call.v = half_data(memory.v);
  call.igate = float_pointer(memory.i), call.fgate = float_pointer(memory.f);
  return call;
}

// Computes the states before each chunk, and the last one into `last`.
void add_states(const CellShape& shape, const GpuPlace& place, const Form<MlstmStates>& form,
                MlstmState* last, CellMemory& memory) {
  const int64_t items = shape.items(), chunks = shape.chunks(), dim = shape.dim;
  memory.c = torch::empty({items, chunks, dim, dim}, memory.q.options());
  memory.n = torch::empty({items, chunks, dim}, memory.i.options());
  memory.m = torch::empty({items, chunks}, memory.i.options());
  auto call = call_on<MlstmStates>(shape, memory);
  call.c = half_data_to(memory.c), call.n = floats_to(memory.n), call.m = floats_to(memory.m);
  if (last) {
    *last = {torch::empty({shape.batch, shape.heads, dim, dim}, memory.i.options()),
             torch::empty({shape.batch, shape.heads, dim}, memory.i.options()),
             torch::empty({shape.batch, shape.heads}, memory.i.options())};
    call.last_c = floats_to(last->c), call.last_n = floats_to(last->n), call.last_m = floats_to(last->m);
  }
  run_on_gpu("mlstm states", place, form, call);
}

MlstmCell cell_call(const CellShape& shape, const CellMemory& memory) {
  auto call = call_on<MlstmCell>(shape, memory);
  call.q = half_data(memory.q), call.eps = static_cast<float>(shape.eps);
  call.c = half_data(memory.c), call.n = float_pointer(memory.n), call.m = float_pointer(memory.m);
  return call;
}

// Settings of the backward pass.
struct CellPlan : torch::CustomClassHolder {
  CellPlan(const CellShape& s, const GpuPlace& p, const CellForms& f) : shape(s), place(p), forms(f) {}
  CellShape shape;
  GpuPlace place;
  CellForms forms;
};

// The cell with gradients: q, k, v, i, f -> h.
struct GpuCellNode : torch::autograd::Function<GpuCellNode> {
  static torch::Tensor forward(torch::autograd::AutogradContext* ctx, const torch::Tensor& q,
                               const torch::Tensor& k, const torch::Tensor& v, const torch::Tensor& i,
                               const torch::Tensor& f, const c10::intrusive_ptr<CellPlan>& plan) {
    const CellShape& shape = plan->shape;
    CellMemory memory = memory_of(q, k, v, i, f);
    if (shape.states) add_states(shape, plan->place, *plan->forms.states, nullptr, memory);
    const torch::Tensor h = torch::empty(q.sizes(), q.options()), rest = torch::empty_like(h);
    const torch::Tensor rows = torch::empty({2, shape.batch, shape.heads, shape.tokens}, memory.i.options());
    MlstmCell call = cell_call(shape, memory);
    call.h = half_data_to(h), call.h_rest = half_data_to(rest);
    call.normaliser = floats_to(rows), call.row_sign = call.normaliser + rows.numel() / 2;
    run_on_gpu("mlstm", plan->place, *plan->forms.cell, call);
    ctx->save_for_backward(
        {memory.q, memory.k, memory.v, memory.i, memory.f, memory.c, memory.n, memory.m, h, rest, rows});
    ctx->saved_data["plan"] = c10::IValue::make_capsule(plan);
    return h;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    check_first_derivative("mlstm");
    const auto saved = ctx->get_saved_variables();
    const auto holder = ctx->saved_data["plan"].toCapsule();
    const auto& plan = static_cast<const CellPlan&>(*holder);
    const CellShape& shape = plan.shape;
    const CellMemory memory = {saved[0], saved[1], saved[2], saved[3],
                               saved[4], saved[5], saved[6], saved[7]};
    const torch::Tensor &h = saved[8], &rest = saved[9], &rows = saved[10],
                        dh = aligned(gradients[0].to(h.scalar_type()));
    auto call = call_on<MlstmGradients>(shape, memory);
    call.q = half_data(memory.q), call.h = half_data(h), call.h_rest = half_data(rest),
    call.dh = half_data(dh);
    call.c = half_data(memory.c), call.n = float_pointer(memory.n), call.m = float_pointer(memory.m);
    call.normaliser = float_pointer(rows), call.row_sign = call.normaliser + rows.numel() / 2;
    const torch::Tensor dq = torch::empty_like(h), dk = torch::empty_like(h), dv = torch::empty_like(h);
    const torch::Tensor digate = torch::empty_like(memory.i), dfgate = torch::empty_like(memory.i);
    call.dq = half_data_to(dq), call.dk = half_data_to(dk), call.dv = half_data_to(dv);
    call.digate = floats_to(digate), call.dfgate = floats_to(dfgate);
    const int64_t slices = kernels::gpu::mlstm_slices(shape.dim);
    const torch::Tensor row_gradient = torch::empty_like(memory.i),
                        dots = torch::empty({2 * slices, memory.i.numel()}, memory.i.options());
    call.row_gradient = floats_to(row_gradient), call.dots = floats_to(dots);
    torch::Tensor dc, dn, crossing;
    if (shape.states) {
      dc = torch::empty_like(memory.c), dn = torch::empty_like(memory.n);
      crossing = torch::empty({memory.m.numel(), slices * slices}, memory.m.options());
      call.dc = half_data_to(dc), call.dn = floats_to(dn), call.crossing = floats_to(crossing);
    }
    run_on_gpu("mlstm backward", plan.place, *plan.forms.gradients, call);
    return {dq, dk, dv, digate, dfgate, {}};
  }
};

bool applies(const MlstmGpuInputs& in) {
  for (const torch::Tensor& t : {in.q, in.k, in.v})
    if (t.scalar_type() != torch::kBFloat16) return false;
  return in.a.scalar_type() == torch::kBFloat16 && in.z.scalar_type() == torch::kBFloat16 &&
         in.skip.defined();
}

}  // namespace

MlstmGpuResult mlstm_on_gpu(const MlstmGpuInputs& in) {
  const auto place = gpu_place(in.q);
  const bool gradients = gradients_wanted();
  if (!place || !applies(in) || (gradients && in.last)) return {};
  const CellShape shape = shape_of(in);
  const CellForms forms = forms_for(shape, place->capability, gradients);
  if (!forms.cell) return {};
  if (gradients)
    return {{},
            GpuCellNode::apply(in.q, in.k, in.v, in.i, in.f,
                               c10::make_intrusive<CellPlan>(shape, *place, forms))};
  CellMemory memory = memory_of(in.q, in.k, in.v, in.i, in.f);
  if (shape.states) add_states(shape, *place, *forms.states, in.last, memory);
  MlstmCell call = cell_call(shape, memory);
  const torch::Tensor out = torch::empty(memory.q.sizes(), memory.q.options());
  if (!forms.after) {
    call.h = half_data_to(out);
    run_on_gpu("mlstm", *place, *forms.cell, call);
    return {{}, out};
  }
  const torch::Tensor a = aligned(in.a), z = aligned(in.z), scale = floats(in.norm_scale),
                      bias = floats(in.norm_bias), skip = floats(in.skip);
  call.act = half_data(a), call.z = half_data(z), call.y = half_data_to(out);
  call.norm_weight = float_pointer(scale), call.norm_bias = float_pointer(bias),
  call.skip = float_pointer(skip);
  call.norm_eps = static_cast<float>(shape.norm_eps);
  run_on_gpu("mlstm", *place, *forms.cell, call);
  return {out, {}};
}

}  // namespace tessera::ops
