#include "ops/mlstm_mixer.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>

#include <torch/csrc/autograd/custom_function.h>

#include "core/error.h"
#include "ops/gpu.h"
#include "ops/inference.h"

namespace tessera::ops {

torch::Tensor headwise_linear(const torch::Tensor& x, const torch::Tensor& weight,
                              const torch::Tensor& bias) {
  const int64_t blocks = weight.size(0), size = weight.size(2), inner = x.size(-1);
  check(blocks * size == inner && weight.size(1) == size, "block-diagonal weight ", weight.sizes(),
        " does not fit a width of ", inner);
  // [blocks, n, size] x [blocks, size, size]^T, block by block.
  const torch::Tensor split = x.reshape({-1, blocks, size}).transpose(0, 1);
  const torch::Tensor y = torch::bmm(split, weight.transpose(1, 2)).transpose(0, 1).reshape(x.sizes());
  return bias.defined() ? y + bias : y;
}

torch::Tensor sequence_conv(const torch::Tensor& x, const torch::Tensor& weight_in, const torch::Tensor& bias,
                            int64_t rows, int64_t columns, bool causal, bool reverse) {
  const int64_t batch = x.size(0), tokens = x.size(1), inner = x.size(2), kernel = weight_in.size(-1);
  torch::Tensor weight = weight_in;
  if (reverse) weight = weight.dim() == 3 ? weight.flip(2) : weight.flip({2, 3});
  if (weight.dim() == 3) {
    check(causal || kernel % 2 == 1, "a non-causal convolution needs an odd kernel, not ", kernel);
    const int64_t earlier = causal ? kernel - 1 : kernel / 2, later = kernel - 1 - earlier;
    const torch::Tensor padded =
        torch::constant_pad_nd(x.transpose(1, 2), {reverse ? later : earlier, reverse ? earlier : later});
    return torch::conv1d(padded, weight, bias, at::IntArrayRef{1}, at::IntArrayRef{0}, at::IntArrayRef{1},
                         inner)
        .transpose(1, 2);
  }
  check(rows * columns == tokens, "a grid of ", rows, " x ", columns, " tokens does not hold ", tokens,
        " tokens");
  const torch::Tensor grid = x.view({batch, rows, columns, inner}).permute({0, 3, 1, 2});
  return torch::conv2d(grid, weight, bias, at::IntArrayRef{1}, at::IntArrayRef{kernel / 2},
                       at::IntArrayRef{1}, inner)
      .permute({0, 2, 3, 1})
      .reshape({batch, tokens, inner});
}

torch::Tensor headwise_norm(const torch::Tensor& h, int64_t heads, const torch::Tensor& scale,
                            const torch::Tensor& bias, double eps) {
  const int64_t inner = h.size(-1);
  return torch::group_norm(h.reshape({-1, inner}), heads, scale, bias, eps).view(h.sizes());
}

namespace {

// Returns conv(x) of the sequence; its tokens are in walking order if `walked`, else as in u.
torch::Tensor convolved(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                        const MlstmMixerOptions& options, bool walked) {
  const bool reverse = options.reverse && !walked;
  if (!weight.defined()) return x;
  if (weight.dim() == 3 || options.off_grid.empty())
    return sequence_conv(x, weight, bias, options.rows, options.columns, options.causal, reverse);
  const int64_t tokens = x.size(1);
  std::vector<int64_t> on_grid;
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t place = options.reverse && walked ? tokens - 1 - t : t;
    if (!std::binary_search(options.off_grid.begin(), options.off_grid.end(), place)) on_grid.push_back(t);
  }
  const torch::Tensor patches = kept_on(x.device(), torch::tensor(on_grid, torch::kInt64));
  const torch::Tensor seen =
      sequence_conv(x.index_select(1, patches), weight, bias, options.rows, options.columns, true, reverse);
  return x.index_copy(1, patches, seen.to(x.scalar_type()));
}

// Widens half precision, which has too few bits for sums of the gates over the tokens.
torch::Tensor widened(const torch::Tensor& t) {
  const bool half = t.scalar_type() == torch::kBFloat16 || t.scalar_type() == torch::kHalf;
  return half ? t.to(torch::kFloat32) : t;
}

using CellInputs = MlstmMixerInputs;

// Tokens are in walking order if `walked`, else as in u.
CellInputs cell_inputs(const torch::Tensor& u_in, const MlstmMixerParameters& p,
                       const MlstmMixerOptions& options, bool walked = true) {
  const int64_t inner = u_in.size(2) / 2, heads = options.heads;
  const torch::Tensor u = options.reverse && walked ? u_in.flip(1) : u_in;
  const torch::Tensor x = u.slice(2, 0, inner).contiguous(), z = u.slice(2, inner);
  const torch::Tensor a = torch::silu(convolved(x, p.conv_weight, p.conv_bias, options, walked));
  // k and v read the same convolution of x, or each their own.
  const auto read = [&](const torch::Tensor& weight, const torch::Tensor& bias) {
    return weight.defined() ? torch::silu(convolved(x, weight, bias, options, walked)) : a;
  };
  const torch::Tensor q = headwise_linear(a, p.q_weight, p.q_bias);
  // The cell divides keys by sqrt(d), including the bias.
  const bool whole_bias = options.paper_cell && p.k_bias.defined();
  const torch::Tensor k =
      headwise_linear(read(p.k_conv_weight, p.k_conv_bias), p.k_weight,
                      whole_bias ? p.k_bias * std::sqrt(static_cast<double>(inner / heads)) : p.k_bias);
  const torch::Tensor v =
      headwise_linear(options.value_conv ? read(p.v_conv_weight, p.v_conv_bias) : x, p.v_weight, p.v_bias);
  const torch::Tensor seen = options.paper_cell ? x : torch::cat({q, k, v}, -1);
  const auto gate = [&](const torch::Tensor& weight, const torch::Tensor& bias) {
    if (!options.whole_gates) return widened(torch::linear(seen, weight, bias)).transpose(1, 2);
    return (options.whole_gates(widened(torch::linear(seen, weight))) + bias).transpose(1, 2);
  };
  const torch::Tensor i = gate(p.input_weight, p.input_bias), f = gate(p.forget_weight, p.forget_bias);
  return {q, k, v, i, f, a, z};
}

// Returns [batch, heads, tokens, d] in the precision of the cell.
torch::Tensor by_head(const torch::Tensor& t, int64_t heads) {
  return widened(t).view({t.size(0), t.size(1), heads, t.size(2) / heads}).transpose(1, 2);
}

// Computes the cell, and all after it, by a GPU's kernels if there are some. They walk over tokens as in u.
MlstmGpuResult on_gpu(const CellInputs& in, const MlstmMixerParameters& p, const MlstmMixerOptions& options) {
  if (options.paper_cell || !p.skip.defined()) return {};
  return mlstm_on_gpu({in.q, in.k, in.v, in.i, in.f, in.a, in.z, p.norm_weight + 1, p.norm_bias, p.skip,
                       options.heads, options.cell_eps, options.norm_eps, options.reverse, options.last});
}

CellInputs flipped(const CellInputs& in) {
  return {in.q.flip(1), in.k.flip(1), in.v.flip(1), in.i.flip(2), in.f.flip(2), in.a.flip(1), in.z.flip(1)};
}

MlstmOptions cell_options(const MlstmMixerOptions& options) {
  return {.eps = options.paper_cell ? 0 : options.cell_eps, .exponential_forget = options.paper_cell};
}

constexpr int64_t kComposedChunk = 256;  // tokens

}  // namespace

torch::Tensor mlstm_mixer_unfused(const torch::Tensor& u, const MlstmMixerParameters& p,
                                  const MlstmMixerOptions& options) {
  const int64_t batch = u.size(0), tokens = u.size(1), inner = u.size(2) / 2;
  bool walked = u.scalar_type() != torch::kBFloat16 || !gpu_place(u);
  CellInputs in = walked ? CellInputs{} : mixer_inputs_on_gpu(u, p, options);
  if (!in.q.defined()) in = cell_inputs(u, p, options, walked);
  const MlstmGpuResult by_kernels = walked ? MlstmGpuResult{} : on_gpu(in, p, options);
  if (by_kernels.y.defined()) return by_kernels.y;
  torch::Tensor h = by_kernels.h;
  if (!h.defined()) {
    if (options.reverse && !walked) in = flipped(in), walked = true;
    const torch::Tensor q = by_head(in.q, options.heads), k = by_head(in.k, options.heads),
                        v = by_head(in.v, options.heads);
    const MlstmOptions cell = cell_options(options);
    const int64_t most = inference_settings().parallel_tokens;
    if (options.last) {
      const MlstmResult result = mlstm_chunkwise(q, k, v, in.i, in.f, tokens, mlstm_start(k, v), cell);
      h = result.h;
      *options.last = result.last;
    } else if (most > 0 && tokens > most) {
      h = mlstm_chunkwise(q, k, v, in.i, in.f, kComposedChunk, mlstm_start(k, v), cell).h;
    } else {
      h = mlstm_parallel(q, k, v, in.i, in.f, cell);
    }
    h = h.transpose(1, 2).reshape({batch, tokens, inner});
  }
  h = h.to(u.scalar_type());
  torch::Tensor y = headwise_norm(h, options.heads, p.norm_weight + 1, p.norm_bias, options.norm_eps);
  if (p.skip.defined()) y = y + p.skip * in.a;
  y = y * (options.paper_cell ? torch::sigmoid(in.z) : torch::silu(in.z));
  return options.reverse && walked ? y.flip(1) : y;
}

torch::Tensor mlstm_mixing(const torch::Tensor& u, const MlstmMixerParameters& p,
                           const MlstmMixerOptions& options) {
  const CellInputs in = cell_inputs(u, p, options);
  const torch::Tensor q = by_head(in.q, options.heads), k = by_head(in.k, options.heads);
  // The cell is linear in its values: an identity as values gives the matrix itself.
  const torch::Tensor values =
      torch::eye(u.size(1), q.options()).expand({u.size(0), options.heads, u.size(1), u.size(1)});
  const torch::Tensor matrix = mlstm_parallel(q, k, values, in.i, in.f, cell_options(options));
  return options.reverse ? matrix.flip({2, 3}) : matrix;
}

namespace {

using Optional = std::optional<torch::Tensor>;

Optional given_floats(const torch::Tensor& tensor) {
  return tensor.defined() ? Optional(tensor.to(torch::kFloat32).contiguous()) : std::nullopt;
}
const float* data_of(const Optional& tensor) { return tensor ? tensor->const_data_ptr<float>() : nullptr; }

kernels::MlstmMixerShape shape_of(const torch::Tensor& u, const MlstmMixerParameters& p,
                                  const MlstmMixerOptions& options) {
  kernels::MlstmMixerShape shape{};
  shape.causal = p.conv_weight.dim() == 3;
  shape.batch = u.size(0);
  shape.rows = shape.causal ? 1 : options.rows;
  shape.columns = shape.causal ? u.size(1) : options.columns;
  shape.channels = u.size(2) / 2;
  shape.heads = options.heads;
  shape.kernel = p.conv_weight.size(-1);
  shape.reverse = options.reverse;
  shape.norm_eps = static_cast<float>(options.norm_eps);
  shape.cell_eps = static_cast<float>(options.cell_eps);
  return shape;
}

// Guards the kernel, which copies memory by these sizes.
void check_parameters(const MlstmMixerParameters& p, const kernels::MlstmMixerShape& s) {
  const int64_t inner = s.channels, heads = s.heads;
  check(heads > 0 && inner % heads == 0 && inner % 4 == 0, "mlstm_mixer: ", inner, " channels, ", heads,
        " heads: a head must have a whole number of channels, and all together a multiple of 4");
  kernels::visit_mixer_parameters(
      s,
      [&](const char* name, bool required, const kernels::ParameterShape& shape,
          const torch::Tensor& tensor) {
        check(tensor.defined() ? tensor.numel() == shape.numbers() : !required, "mlstm_mixer: ", name,
              " has ", tensor.defined() ? tensor.numel() : 0, " numbers, must have ", shape.numbers(),
              " for ", inner, " channels and ", heads, " heads");
      },
      p);
}

// The parameters in the order of the table; missing ones are nullopt.
using ParameterList = std::array<Optional, kernels::kMixerParameters>;

ParameterList list_of(const MlstmMixerParameters& p, const kernels::MlstmMixerShape& s) {
  ParameterList list;
  kernels::visit_mixer_parameters(
      s,
      [next = list.begin()](const char*, bool, const kernels::ParameterShape&,
                            const torch::Tensor& tensor) mutable { *next++ = given_floats(tensor); },
      p);
  return list;
}

template <class Pointer, class Of>
kernels::MlstmMixerParametersOf<Pointer> pointers(const ParameterList& list,
                                                  const kernels::MlstmMixerShape& s, Of of) {
  kernels::MlstmMixerParametersOf<Pointer> p;
  kernels::visit_mixer_parameters(
      s,
      [&, next = list.begin()](const char*, bool, const kernels::ParameterShape&, Pointer& field) mutable {
        field = of(*next++);
      },
      p);
  return p;
}

template <class Pointer>
kernels::TokenRowsOf<Pointer> token_rows(const torch::Tensor& tensor,
                                         Pointer data) {  // contiguous [batch, tokens, width]
  return {data, element_of(tensor), tensor.stride(0), tensor.stride(1)};
}
kernels::TokenRows token_rows(const torch::Tensor& tensor) {
  return token_rows(tensor, tensor.const_data_ptr());
}
kernels::TokenRowsOut token_rows_to(const torch::Tensor& tensor) {
  return token_rows(tensor, tensor.mutable_data_ptr());
}

struct FusedMixer : torch::autograd::Function<FusedMixer> {
  // `parameters` are a ParameterList, unpacked into separate arguments for autograd.
  template <class... Parameters>
  static torch::Tensor forward(torch::autograd::AutogradContext* ctx, const torch::Tensor& u,
                               const kernels::MlstmMixerShape& shape, bool keep,
                               const Parameters&... parameters) {
    const ParameterList list{parameters...};
    const int64_t tokens = u.size(1);
    const torch::Tensor y = torch::empty({shape.batch, tokens, shape.channels}, u.options());
    kernels::MlstmMixerSaved buffers{};
    if (keep) {
      const auto floats = u.options().dtype(torch::kFloat32);
      const torch::Tensor h = torch::empty({shape.batch, tokens, shape.channels}, floats);
      const torch::Tensor rows = torch::empty({2, shape.batch, shape.heads, tokens}, floats);
      buffers = saved_in(h, rows);
      torch::autograd::variable_list saved{u, h, rows};
      for (const Optional& parameter : list) saved.push_back(parameter.value_or(torch::Tensor()));
      ctx->save_for_backward(saved);
      ctx->saved_data["shape"] = c10::IValue::make_capsule(c10::make_intrusive<Shape>(shape));
    }
    const Profiled profiled("mlstm_mixer");
    kernels::mlstm_mixer_forward(
        {shape, token_rows(u), pointers<const float*>(list, shape, data_of), token_rows_to(y), buffers});
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    check_first_derivative("mlstm_mixer");
    const auto saved = ctx->get_saved_variables();
    const auto holder = ctx->saved_data["shape"].toCapsule();
    const kernels::MlstmMixerShape& shape = static_cast<Shape&>(*holder).shape;
    const torch::Tensor& u = saved[0];
    const torch::Tensor dy = gradients[0].to(u.scalar_type()).contiguous(), du = torch::empty_like(u);
    ParameterList list, dlist;
    for (size_t i = 0; i < list.size(); ++i)
      if (saved[3 + i].defined()) {
        list[i] = saved[3 + i];
        dlist[i] = torch::empty_like(saved[3 + i]);
      }
    const auto out = [](const Optional& tensor) {
      return tensor ? tensor->mutable_data_ptr<float>() : nullptr;
    };
    const Profiled profiled("mlstm_mixer backward");
    kernels::mlstm_mixer_backward({shape, token_rows(u), token_rows(dy),
                                   pointers<const float*>(list, shape, data_of), saved_in(saved[1], saved[2]),
                                   token_rows_to(du), pointers<float*>(dlist, shape, out)});
    torch::autograd::variable_list result{du, {}, {}};  // no gradients for shape and keep
    for (const Optional& gradient : dlist) result.push_back(gradient.value_or(torch::Tensor()));
    return result;
  }

  static kernels::MlstmMixerSaved saved_in(const torch::Tensor& h, const torch::Tensor& rows) {
    float* normaliser = rows.mutable_data_ptr<float>();
    return {h.mutable_data_ptr<float>(), normaliser, normaliser + rows.numel() / 2};
  }

  struct Shape : torch::CustomClassHolder {
    explicit Shape(const kernels::MlstmMixerShape& s) : shape(s) {}
    kernels::MlstmMixerShape shape;
  };
};

}  // namespace

bool mlstm_mixer_fuses(const torch::Tensor& u, const MlstmMixerParameters& parameters,
                       const MlstmMixerOptions& options) {
  const torch::Tensor& conv = parameters.conv_weight;
  if (!conv.defined() || !parameters.skip.defined() || options.paper_cell || u.numel() == 0 ||
      parameters.k_conv_weight.defined() || options.value_conv || options.last || options.whole_gates)
    return false;
  const bool handled = conv.dim() == 3 ? options.causal : options.off_grid.empty();
  return handled && inference_settings().fused && u.device().is_cpu() &&
         (u.scalar_type() == torch::kFloat32 || u.scalar_type() == torch::kBFloat16) &&
         conv.scalar_type() != torch::kFloat64 && parameters.q_weight.size(-1) == 4;
}

torch::Tensor mlstm_mixer(const torch::Tensor& u, const MlstmMixerParameters& parameters,
                          const MlstmMixerOptions& options) {
  if (!mlstm_mixer_fuses(u, parameters, options)) return mlstm_mixer_unfused(u, parameters, options);
  const kernels::MlstmMixerShape shape = shape_of(u, parameters, options);
  check(shape.rows * shape.columns == u.size(1), "a grid of ", shape.rows, " x ", shape.columns,
        " tokens does not hold ", u.size(1), " tokens");
  check_parameters(parameters, shape);
  const ParameterList list = list_of(parameters, shape);
  bool keep = u.requires_grad();
  for (const Optional& parameter : list) keep = keep || (parameter && parameter->requires_grad());
  return std::apply(
      [&](const auto&... p) {
        return FusedMixer::apply(u.contiguous(), shape, keep && torch::GradMode::is_enabled(), p...);
      },
      list);
}

}  // namespace tessera::ops
