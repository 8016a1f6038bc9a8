// `tessera bench linear|attention|mlstm|data`: one part of the program, in each of its forms.
#include <torch/autograd.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/base/command.h"
#include "cli/bench/bench_limit.h"
#include "core/error.h"
#include "data/loading/loader_timing.h"
#include "kernels/attention/attention.h"
#include "kernels/bench.h"
#include "kernels/linear/linear.h"
#include "kernels/mlstm/mlstm.h"
#include "open/device.h"
#include "ops/attention.h"
#include "ops/inference.h"
#include "ops/mlstm.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Measurement {
  int64_t threads = 0;
  double seconds = 3;
  bool json = false;

  template <class V>
  void visit(V& v) {
    v("threads", threads, between(0, 1024), "compute threads, 0 = OMP_NUM_THREADS or all cores");
    v("seconds", seconds, between(0, 3600), "seconds of measurement");
    v("json", json, "one JSON line");
  }
};

const std::vector<std::string> kActivations = {"none", "gelu", "silu_gate"};  // kernels::Activation's
constexpr Range kSides = between(1, 1 << 20);

struct LinearShape : Measurement {
  int64_t rows = 1576, in = 384, out = 1536;
  std::string activation = "none";
  bool norm = false, residual = false;

  template <class V>
  void visit(V& v) {
    v("rows", rows, kSides, "rows of x");
    v("in", in, kSides, "columns of x");
    v("out", out, kSides, "columns of the result");
    v("activation", activation, {.choices = kActivations},
      "activation after the product; silu_gate makes two products");
    v("norm", norm, "a LayerNorm before the product");
    v("residual", residual, "a residual added to the result");
    Measurement::visit(v);
  }
};

struct HeadsShape : Measurement {
  std::string device = "cpu";
  int64_t batch = 1, tokens = 3136, heads = 4, head_dim = 96;

  template <class V>
  void visit(V& v) {
    v("batch", batch, kSides, "sequences");
    v("tokens", tokens, kSides, "length of a sequence");
    v("heads", heads, kSides, "heads");
    v("head_dim", head_dim, kSides, "channels of a head");
    v("device", device, "cpu, cuda or auto");
    Measurement::visit(v);
  }
};

struct AttentionShape : HeadsShape {
  bool causal = false, rope = false;
  int64_t window = 0;

  template <class V>
  void visit(V& v) {
    HeadsShape::visit(v);
    v("causal", causal, "a token sees itself and those before it");
    v("window", window, between(0, 1 << 20), "a token sees tokens closer than this, 0 = all");
    v("rope", rope, "queries and keys rotated by their position");
  }
};

using Form = kernels::bench::Candidate;

// `gflop` of each form, or empty.
void print(const Measurement& shape, Json line, const std::vector<Form>& forms,
           const std::vector<double>& gflop) {
  const std::vector<kernels::bench::Timing> timings = kernels::bench::measure(forms, shape.seconds);
  for (size_t i = 0; i < forms.size(); ++i) {
    const double seconds = timings[i].median;
    Json result = {{"ms", seconds * 1e3}};
    if (i < gflop.size()) result["gflops"] = gflop[i] / seconds;
    line["forms"][forms[i].name] = result;
  }
  std::cout << (shape.json ? line.dump() : line.dump(2)) << "\n";
}

// A layer with random weights, and the tensors around it.
struct LinearTensors {
  explicit LinearTensors(const LinearShape& shape) : s(shape) {
    const auto matrix = [](const torch::Tensor& m) {
      return kernels::MatrixView{m.const_data_ptr(), kernels::Element::f32, m.size(1), 1};
    };
    layer = {s.in, s.out, matrix(w), b.const_data_ptr<float>()};
    const auto at = std::find(kActivations.begin(), kActivations.end(), s.activation) - kActivations.begin();
    layer.activation = static_cast<kernels::Activation>(at);
    if (gated()) layer.gate = matrix(g);
    norm.weight = norm_weight.const_data_ptr<float>();
  }
  bool gated() const { return s.activation == "silu_gate"; }
  void run(const kernels::PackedLinear& weights) const {
    kernels::LinearForward call;
    call.rows = s.rows, call.x = {x.const_data_ptr(), kernels::Element::f32, s.in};
    call.y = {y.mutable_data_ptr(), kernels::Element::f32, s.out};
    if (s.norm) call.norm = &norm;
    if (s.residual) call.residual = {residual.const_data_ptr(), kernels::Element::f32, s.out};
    kernels::linear_forward(weights, call);
  }
  LinearShape s;
  torch::Tensor x = torch::randn({s.rows, s.in}), w = torch::randn({s.out, s.in}), g = torch::randn_like(w),
                b = torch::randn({s.out}), residual = torch::randn({s.rows, s.out}),
                y = torch::empty_like(residual), norm_weight = torch::ones({s.in});
  kernels::RowNorm norm;
  kernels::LinearLayer layer;
};

void linear(const LinearShape& s) {
  const int threads = train::use_threads(s.threads);
  const torch::NoGradGuard no_grad;
  const LinearTensors tensors(s);
  const int64_t outputs = tensors.gated() ? 2 * s.out : s.out;
  std::vector<Form> forms;
  for (const BenchDtype dtype : {BenchDtype::fp32, BenchDtype::bf16, BenchDtype::int8}) {
    for (const auto& implementation :
         kernels::linear_implementations(static_cast<kernels::Arithmetic>(dtype))) {
      if (implementation.isa < kernels::Isa::avx2) continue;
      const auto weights = std::make_shared<kernels::PackedLinear>(tensors.layer, implementation);
      forms.push_back(
          {text(name_of(dtype), " ", implementation.name), [&tensors, weights] { tensors.run(*weights); }});
    }
    // Only the product: the limit.
    forms.push_back({text(name_of(dtype), " oneDNN"),
                     [product = LimitProduct(dtype, s.rows, s.in, outputs)] { product(); }});
  }
  const double gflop = 2e-9 * static_cast<double>(s.rows * s.in * outputs);
  print(s,
        {{"bench", "linear"},
         {"rows", s.rows},
         {"in", s.in},
         {"out", s.out},
         {"activation", s.activation},
         {"norm", s.norm},
         {"residual", s.residual},
         {"threads", threads}},
        forms, std::vector<double>(forms.size(), gflop));
}

// [batch, tokens, heads, d] in memory, seen by kernels.
kernels::HeadRows in(const torch::Tensor& t) {
  return {t.const_data_ptr(),
          t.scalar_type() == torch::kFloat32 ? kernels::Element::f32 : kernels::Element::bf16, t.stride(0),
          t.stride(2), t.stride(1)};
}
kernels::HeadRowsOut out(const torch::Tensor& t) {
  const kernels::HeadRows rows = in(t);
  return {t.mutable_data_ptr(), rows.element, rows.batch, rows.head, rows.token};
}
kernels::Gates gate(const torch::Tensor& t) {
  return {t.const_data_ptr<float>(), t.stride(0), t.stride(2), t.stride(1)};
}
kernels::GatesOut gate_out(const torch::Tensor& t) {
  return {t.mutable_data_ptr<float>(), t.stride(0), t.stride(2), t.stride(1)};
}

// The kernel is that of a CPU; on a GPU `tessera doctor` lists those of the library.
Json describe(const char* what, const auto& table, const HeadsShape& s, int threads,
              const torch::Device& device) {
  Json line = {{"bench", what}};
  if (device.is_cpu()) line["kernel"] = kernels::name_of(kernels::choose_entry(table).isa);
  line.update({{"device", device.str()},
               {"batch", s.batch},
               {"tokens", s.tokens},
               {"heads", s.heads},
               {"head_dim", s.head_dim},
               {"threads", threads}});
  return line;
}

// The options of attention beyond softmax(q k^T) v, for the kernel and for the operation.
struct AttentionExtras {
  AttentionExtras(const AttentionShape& s, const torch::Device& device) {
    options.causal = mask.causal = s.causal, options.window = mask.window = s.window;
    if (!s.rope) return;
    const torch::Tensor places = torch::arange(s.tokens, torch::kFloat32).unsqueeze(1);
    const torch::Tensor angles =
        places * torch::pow(1e-4, torch::arange(s.head_dim / 2) * 2.0 / s.head_dim).unsqueeze(0);
    options.cos = angles.cos().contiguous().to(device), options.sin = angles.sin().contiguous().to(device);
    if (device.is_cpu())
      rotary = {options.cos.const_data_ptr<float>(), options.sin.const_data_ptr<float>(), 0, s.head_dim / 2,
                s.head_dim / 2};
  }
  kernels::AttentionMask mask;
  kernels::Rotary rotary;
  ops::AttentionOptions options;
};

// Adds the operation, by the program's own kernels or composed of LibTorch's.
void add_attention_operation(std::vector<Form>& forms, const AttentionShape& s, torch::ScalarType type,
                             const AttentionExtras& extras, const torch::Device& device, bool fused) {
  const std::string name = type == torch::kFloat32 ? "fp32" : "bf16", by = fused ? "" : ", LibTorch";
  const auto make = [&] {
    const auto options = torch::TensorOptions(type).device(device);
    return torch::randn({s.batch, s.tokens, s.heads, s.head_dim}, options).transpose(1, 2);
  };
  const torch::Tensor q = make(), k = make(), v = make(), d = make();
  const auto forward = [=, options = extras.options](bool gradients) {
    const ops::InferenceScope scope({.fused = fused});
    const torch::AutoGradMode mode(gradients);
    for (const torch::Tensor& x : {q, k, v}) x.requires_grad_(gradients);
    return ops::attention(q, k, v, options);
  };
  forms.push_back({name + " forward" + by, waited_for([=] { forward(false); }, device)});
  forms.push_back({name + " forward and backward" + by, waited_for(
                                                            [=] {
                                                              const torch::Tensor out = forward(true);
                                                              torch::autograd::grad({out}, {q, k, v}, {d});
                                                            },
                                                            device)});
}

// Adds the kernels of a CPU for one element type.
void add_attention(std::vector<Form>& forms, const AttentionShape& s, torch::ScalarType type,
                   const AttentionExtras& extras) {
  const kernels::AttentionShape shape{s.batch,  s.heads,    s.tokens,
                                      s.tokens, s.head_dim, 1 / std::sqrt(static_cast<float>(s.head_dim))};
  const torch::Tensor lse = torch::empty({s.batch, s.heads, s.tokens});
  const std::string name = type == torch::kFloat32 ? "fp32" : "bf16";
  const auto make = [&] { return torch::randn({s.batch, s.tokens, s.heads, s.head_dim}).to(type); };
  const torch::Tensor q = make(), k = make(), v = make(), o = make(), d = make(), dq = make(), dk = make(),
                      dv = make();
  const auto forward = [=] {
    kernels::attention_forward({shape,
                                extras.mask,
                                in(q),
                                in(k),
                                in(v),
                                out(o),
                                extras.rotary,
                                extras.rotary,
                                {},
                                lse.mutable_data_ptr<float>()});
  };
  forms.push_back({name + " forward", forward});
  forms.push_back({name + " forward and backward", [=] {
                     forward();
                     kernels::attention_backward({shape,
                                                  extras.mask,
                                                  in(q),
                                                  in(k),
                                                  in(v),
                                                  in(o),
                                                  lse.const_data_ptr<float>(),
                                                  in(d),
                                                  out(dq),
                                                  out(dk),
                                                  out(dv),
                                                  extras.rotary,
                                                  extras.rotary,
                                                  {}});
                   }});
}

void attention(const AttentionShape& s) {
  if (s.rope && s.head_dim % 2 != 0)
    fail_usage("--rope rotates pairs of channels: --head-dim ", s.head_dim, " must be even");
  const int threads = train::use_threads(s.threads);
  const torch::NoGradGuard no_grad;
  const torch::Device device = train::choose_device(s.device);
  std::vector<Form> forms;
  const AttentionExtras extras(s, device);
  for (const auto type : {torch::kFloat32, torch::kBFloat16}) {
    if (device.is_cpu())
      add_attention(forms, s, type, extras);
    else
      add_attention_operation(forms, s, type, extras, device, /*fused=*/true);
    add_attention_operation(forms, s, type, extras, device, /*fused=*/false);
  }
  Json line = describe("attention", kernels::attention_table(), s, threads, device);
  if (device.is_cpu()) {
    const bool pairs =
        kernels::attention_bf16_pairs() && kernels::bf16_pairs_are_faster(kernels::active_isa());
    line["kernel_bf16"] = pairs ? kernels::name_of(kernels::active_isa()) : line["kernel"].get<std::string>();
  }
  line.update({{"causal", s.causal}, {"window", s.window}, {"rope", s.rope}});
  print(s, line, forms, {});
}

// The cell's inputs and outputs [batch, tokens, heads, head dim] in one element type, gates in float.
struct MlstmTensors {
  MlstmTensors(const HeadsShape& s, torch::ScalarType type)
      : shape{s.batch, s.heads, s.tokens, s.head_dim, s.head_dim} {
    for (torch::Tensor* t : {&q, &k, &v, &h, &dh, &dq, &dk, &dv})
      *t = (torch::randn({s.batch, s.tokens, s.heads, s.head_dim}) * 0.1).to(type);
    i = torch::randn({s.batch, s.tokens, s.heads}), f = i + 4, di = i.clone(), df = i.clone();
    normaliser = torch::empty({s.batch, s.heads, s.tokens}), sign = normaliser.clone();
  }
  kernels::MlstmForward forward() const {
    kernels::MlstmForward call{};
    call.shape = shape;
    call.q = in(q), call.k = in(k), call.v = in(v);
    call.igate = gate(i), call.fgate = gate(f);
    call.h = out(h);
    call.normaliser = normaliser.mutable_data_ptr<float>();
    call.row_sign = sign.mutable_data_ptr<float>();
    return call;
  }
  kernels::MlstmBackward backward() const {
    kernels::MlstmBackward call{};
    call.shape = shape;
    call.q = in(q), call.k = in(k), call.v = in(v);
    call.igate = gate(i), call.fgate = gate(f);
    call.h = in(h), call.dh = in(dh);
    call.normaliser = normaliser.const_data_ptr<float>();
    call.row_sign = sign.const_data_ptr<float>();
    call.dq = out(dq), call.dk = out(dk), call.dv = out(dv);
    call.digate = gate_out(di), call.dfgate = gate_out(df);
    return call;
  }
  kernels::MlstmShape shape;
  torch::Tensor q, k, v, h, dh, dq, dk, dv, i, f, di, df, normaliser, sign;
};

std::vector<Form> chunkwise_forms(const std::string& name, const MlstmTensors& t) {
  return {{name + " forward", [t] { kernels::mlstm_forward(t.forward()); }},
          {name + " forward and backward", [t] {
             kernels::mlstm_forward(t.forward());
             kernels::mlstm_backward(t.backward());
           }}};
}

// Streaming: one token after another, the state in place.
Form recurrent_form(const MlstmTensors& t) {
  const auto [batch, heads, tokens, key_dim, value_dim, reverse, eps, chunk] = t.shape;
  const torch::Tensor c = torch::zeros({batch, heads, key_dim, value_dim}),
                      n = torch::zeros({batch, heads, key_dim}), m = torch::zeros({batch, heads});
  std::vector<kernels::MlstmForward> steps;
  for (int64_t token = 0; token < tokens; ++token) {
    const auto at = [token](const torch::Tensor& all) { return all.narrow(1, token, 1); };
    kernels::MlstmForward step = t.forward();
    step.q = in(at(t.q)), step.k = in(at(t.k)), step.v = in(at(t.v));
    step.igate = gate(at(t.i)), step.fgate = gate(at(t.f));
    step.h = out(at(t.h));
    step.normaliser = step.row_sign = nullptr;
    step.shape.tokens = 1;
    step.last = {c.mutable_data_ptr<float>(), n.mutable_data_ptr<float>(), m.mutable_data_ptr<float>()};
    step.initial = {step.last.c, step.last.n, step.last.m};
    steps.push_back(step);
  }
  return {"recurrent forward", [t, c, n, m, steps] {
            for (const torch::Tensor& state : {c, n, m}) state.zero_();
            for (const kernels::MlstmForward& step : steps) kernels::mlstm_forward(step);
          }};
}

std::vector<Form> parallel_forms(const MlstmTensors& t) {
  std::vector<torch::Tensor> inputs;
  for (const torch::Tensor& x : {t.q, t.k, t.v, t.i, t.f}) inputs.push_back(x.transpose(1, 2).contiguous());
  const auto forward = [](const std::vector<torch::Tensor>& x) {
    return ops::mlstm_parallel(x[0], x[1], x[2], x[3], x[4]);
  };
  return {{"parallel forward",
           [=] {
             const torch::NoGradGuard no_grad;
             forward(inputs);
           }},
          {"parallel forward and backward", [=] {
             std::vector<torch::Tensor> leaves;
             for (const torch::Tensor& x : inputs) leaves.push_back(x.detach().requires_grad_());
             forward(leaves).sum().backward();
           }}};
}

// The cell on a GPU, by the library's kernels (forward with norm, skip and gate, if one kernel has them), and composed of
// LibTorch's operations in chunks of 64.
struct MlstmOnGpu {
  using Tensors = std::vector<torch::Tensor>;
  MlstmOnGpu(const HeadsShape& s, const torch::Device& device) {
    const auto half = torch::TensorOptions(torch::kBFloat16).device(device),
               floats = half.dtype(torch::kFloat32);
    for (torch::Tensor* t : {&x.q, &x.k, &x.v, &x.a, &x.z})
      *t = torch::randn({s.batch, s.tokens, s.heads * s.head_dim}, half) * 0.1;
    x.i = torch::randn({s.batch, s.heads, s.tokens}, floats), x.f = x.i + 4;
    x.norm_scale = x.skip = torch::ones({s.heads * s.head_dim}, floats), x.heads = s.heads;
  }
  Tensors inputs() const { return {x.q, x.k, x.v, x.i, x.f}; }
  torch::Tensor by_kernels(const Tensors& t) const {
    ops::MlstmGpuInputs given = x;
    given.q = t[0], given.k = t[1], given.v = t[2], given.i = t[3], given.f = t[4];
    const ops::MlstmGpuResult result = ops::mlstm_on_gpu(given);
    check(result.h.defined() || result.y.defined(),
          "bench mlstm: the GPU has no kernel for heads of this size: `tessera doctor` prints its kernels");
    return result.h.defined() ? result.h : result.y;
  }
  torch::Tensor composed(const Tensors& t) const {
    const auto of_heads = [&](size_t i) { return t[i].unflatten(2, {x.heads, -1}).transpose(1, 2); };
    const torch::Tensor k = of_heads(1), v = of_heads(2);
    return ops::mlstm_chunkwise(of_heads(0), k, v, t[3], t[4], 64, ops::mlstm_start(k, v)).h;
  }
  ops::MlstmGpuInputs x;
};

std::vector<Form> mlstm_gpu_forms(const HeadsShape& s, const torch::Device& device) {
  const MlstmOnGpu gpu(s, device);
  std::vector<Form> forms;
  const auto add = [&](const std::string& by, const auto& cell) {
    const auto trained = [=] {
      const torch::AutoGradMode mode(true);
      MlstmOnGpu::Tensors leaves;
      for (const torch::Tensor& t : gpu.inputs()) leaves.push_back(t.detach().requires_grad_());
      torch::autograd::grad({cell(leaves).sum()}, leaves);
    };
    forms.push_back({"bf16 forward" + by, waited_for([=] { cell(gpu.inputs()); }, device)});
    forms.push_back({"bf16 forward and backward" + by, waited_for(trained, device)});
  };
  add("", [gpu](const MlstmOnGpu::Tensors& t) { return gpu.by_kernels(t); });
  add(", LibTorch", [gpu](const MlstmOnGpu::Tensors& t) { return gpu.composed(t); });
  return forms;
}

void mlstm(const HeadsShape& s) {
  const int threads = train::use_threads(s.threads);
  const torch::Device device = train::choose_device(s.device);
  if (!device.is_cpu()) {
    const torch::NoGradGuard no_grad;
    print(s, describe("mlstm", kernels::mlstm_table(), s, threads, device), mlstm_gpu_forms(s, device), {});
    return;
  }
  const MlstmTensors floats(s, torch::kFloat32);
  std::vector<Form> forms = chunkwise_forms("chunkwise", floats);
  const auto add = [&](std::vector<Form> more) { forms.insert(forms.end(), more.begin(), more.end()); };
  add(chunkwise_forms("chunkwise bf16", MlstmTensors(s, torch::kBFloat16)));
  forms.push_back(recurrent_form(floats));
  // The parallel form needs several matrices of tokens x tokens.
  if (static_cast<double>(s.batch * s.heads) * static_cast<double>(s.tokens) * static_cast<double>(s.tokens) <
      2e8)
    add(parallel_forms(floats));
  print(s, describe("mlstm", kernels::mlstm_table(), s, threads, device), forms, {});
}

struct BenchDataOptions {
  std::string folder;
  data::LoaderBenchConfig config;
  bool json = false;

  template <class V>
  void visit(V& v) {
    v("folder", folder, {.argument = "FOLDER", .required = true}, "folder of classes");
    v("size", config.size, kSides, "side of the crops in pixels");
    v("batch_size", config.batch, {.range = kSides, .names = "--batch"}, "images at a time");
    v("threads", config.threads, kSides, "decoding threads");
    v("json", json, "one JSON line");
  }
};

void bench_data(const BenchDataOptions& options) {
  data::time_loader(options.folder, options.config);  // brings the files into memory
  const data::LoaderPass pass = data::time_loader(options.folder, options.config);
  const Json line = {{"bench", "data"},
                     {"images", pass.images},
                     {"size", options.config.size},
                     {"threads", options.config.threads},
                     {"images_per_second", static_cast<double>(pass.images) / pass.seconds},
                     {"cpu_ms_an_image", pass.cpu_seconds * 1e3 / static_cast<double>(pass.images)}};
  std::cout << (options.json ? line.dump() : line.dump(2)) << "\n";
}

}  // namespace

void add_bench_linear(Arguments& command, Action& action) {
  action = with_options<LinearShape>(command, linear);
}

void add_bench_attention(Arguments& command, Action& action) {
  action = with_options<AttentionShape>(command, attention);
}

void add_bench_mlstm(Arguments& command, Action& action) {
  action = with_options<HeadsShape>(command, mlstm);
}

void add_bench_data(Arguments& command, Action& action) {
  action = with_options<BenchDataOptions>(command, bench_data);
}

}  // namespace tessera::cli
