#include "ops/mlstm_gpu.h"

#include "ops/gpu.h"

namespace tessera::ops {
namespace {

using kernels::gpu::MlstmCell;
using kernels::gpu::MlstmStates;

const uint16_t* half_data(const torch::Tensor& t) {
  return static_cast<const uint16_t*>(static_cast<const void*>(t.const_data_ptr()));
}
uint16_t* half_data_to(const torch::Tensor& t) {
  return static_cast<uint16_t*>(static_cast<void*>(t.mutable_data_ptr()));
}

// The tensors that a call points to.
struct CellMemory {
  torch::Tensor q, k, v, i, f, a, z, scale, bias, skip, c, n, m;
};

CellMemory memory_of(const MlstmGpuInputs& in) {
  const auto gate = [](const torch::Tensor& t) { return t.to(torch::kFloat32).contiguous(); };
  return {aligned(in.q),
          aligned(in.k),
          aligned(in.v),
          gate(in.i),
          gate(in.f),
          aligned(in.a),
          aligned(in.z),
          floats(in.norm_scale),
          floats(in.norm_bias),
          floats(in.skip),
          {},
          {},
          {}};
}

// Fills the fields that cell and states share.
template <class Call>
Call shared_call(const MlstmGpuInputs& in, const CellMemory& memory) {
  constexpr int64_t kChunk = 256;
  Call call;
  call.batch = in.q.size(0), call.tokens = in.q.size(1), call.heads = in.heads;
  call.key_dim = call.value_dim = in.q.size(2) / in.heads, call.chunk = kChunk;
  call.k = half_data(memory.k), call.v = half_data(memory.v);
  call.igate = float_pointer(memory.i), call.fgate = float_pointer(memory.f);
  return call;
}

MlstmCell cell_call(const MlstmGpuInputs& in, const CellMemory& memory) {
  auto call = shared_call<MlstmCell>(in, memory);
  call.q = half_data(memory.q), call.eps = static_cast<float>(in.eps);
  call.act = half_data(memory.a), call.z = half_data(memory.z);
  call.norm_weight = float_pointer(memory.scale), call.norm_bias = float_pointer(memory.bias);
  call.skip = float_pointer(memory.skip), call.norm_eps = static_cast<float>(in.norm_eps);
  return call;
}

bool applies(const MlstmGpuInputs& in) {
  for (const torch::Tensor& t : {in.q, in.k, in.v, in.a, in.z})
    if (t.scalar_type() != torch::kBFloat16) return false;
  return !gradients_wanted() && in.skip.defined();
}

// Computes the states before each chunk. Returns false if no kernel does.
bool add_states(const MlstmGpuInputs& in, const GpuPlace& place, CellMemory& memory, MlstmCell& cell) {
  if (cell.tokens <= cell.chunk) return true;
  const int64_t items = cell.batch * cell.heads, chunks = kernels::gpu::chunks_of(cell.tokens, cell.chunk);
  memory.c = torch::empty({items, chunks, cell.key_dim, cell.value_dim}, in.q.options());
  memory.n = torch::empty({items, chunks, cell.key_dim}, memory.i.options());
  memory.m = torch::empty({items, chunks}, memory.i.options());
  auto call = shared_call<MlstmStates>(in, memory);
  call.c = half_data_to(memory.c);
  call.n = memory.n.mutable_data_ptr<float>(), call.m = memory.m.mutable_data_ptr<float>();
  const auto* form = kernels::gpu::choose_form(kernels::gpu::table()->mlstm_states, place.capability, call);
  if (!form) return false;
  run_on_gpu("mlstm states", place, *form, call);
  cell.c = call.c, cell.n = call.n, cell.m = call.m;
  return true;
}

}  // namespace

MlstmGpuResult mlstm_on_gpu(const MlstmGpuInputs& in) {
  const auto place = gpu_place(in.q);
  if (!place || !applies(in)) return {};
  CellMemory memory = memory_of(in);
  MlstmCell call = cell_call(in, memory);
  const torch::Tensor out = torch::empty(memory.q.sizes(), memory.q.options());
  // States exist if there are several chunks: any pointer makes a form answer for them.
  if (call.tokens > call.chunk) call.c = call.q;
  call.y = half_data_to(out);
  const auto& forms = kernels::gpu::table()->mlstm;
  const auto* form = kernels::gpu::choose_form(forms, place->capability, call);
  const bool after = form != nullptr;
  if (!after) {
    call.h = call.y, call.y = nullptr;
    form = kernels::gpu::choose_form(forms, place->capability, call);
  }
  if (!form || !add_states(in, *place, memory, call)) return {};
  run_on_gpu("mlstm", *place, *form, call);
  return after ? MlstmGpuResult{out, {}} : MlstmGpuResult{{}, out};
}

}  // namespace tessera::ops
