// `tessera bench linear|attention|mlstm|data`: one part alone, each form of it.
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/bench_limit.h"
#include "cli/command.h"
#include "core/error.h"
#include "data/loader_bench.h"
#include "kernels/attention/attention.h"
#include "kernels/bench.h"
#include "kernels/linear/linear.h"
#include "kernels/mlstm/mlstm.h"
#include "ops/mlstm.h"
#include "train/device.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Shape {
  int64_t batch = 1, tokens = 3136, heads = 4, head_dim = 96;
  int64_t rows = 1576, in = 384, out = 1536;
  int64_t threads = 0;
  double seconds = 3;
  bool json = false;
};

using Form = kernels::bench::Candidate;

// `gflop` of each form, or empty.
void print(const Shape& shape, Json line, const std::vector<Form>& forms, const std::vector<double>& gflop) {
  const std::vector<kernels::bench::Timing> timings = kernels::bench::measure(forms, shape.seconds);
  for (size_t i = 0; i < forms.size(); ++i) {
    const double seconds = timings[i].median;
    Json result = {{"ms", seconds * 1e3}};
    if (i < gflop.size()) result["gflops"] = gflop[i] / seconds;
    line["forms"][forms[i].name] = result;
  }
  std::cout << (shape.json ? line.dump() : line.dump(2)) << "\n";
}

void linear(const Shape& s) {
  const int threads = train::use_threads(s.threads);
  const torch::NoGradGuard no_grad;
  const torch::Tensor x = torch::randn({s.rows, s.in}), w = torch::randn({s.out, s.in}),
                      b = torch::randn({s.out});
  const torch::Tensor y = torch::empty({s.rows, s.out});
  const kernels::LinearLayer layer{
      s.in, s.out, {w.const_data_ptr(), kernels::Element::f32, s.in, 1}, b.const_data_ptr<float>()};
  std::vector<std::shared_ptr<kernels::PackedLinear>> packed;
  std::vector<Form> forms;
  for (const BenchDtype dtype : {BenchDtype::fp32, BenchDtype::bf16, BenchDtype::int8}) {
    for (const auto& implementation :
         kernels::linear_implementations(static_cast<kernels::Arithmetic>(dtype))) {
      if (implementation.isa < kernels::Isa::avx2) continue;
      packed.push_back(std::make_shared<kernels::PackedLinear>(layer, implementation));
      forms.push_back({text(name_of(dtype), " ", implementation.name), [&, weights = packed.back()] {
                         kernels::LinearForward call;
                         call.rows = s.rows, call.x = {x.const_data_ptr(), kernels::Element::f32, s.in};
                         call.y = {y.mutable_data_ptr(), kernels::Element::f32, s.out};
                         kernels::linear_forward(*weights, call);
                       }});
    }
    forms.push_back({text(name_of(dtype), " oneDNN"),
                     [product = LimitProduct(dtype, s.rows, s.in, s.out)] { product(); }});
  }
  const double gflop = 2e-9 * static_cast<double>(s.rows * s.in * s.out);
  print(s, {{"bench", "linear"}, {"rows", s.rows}, {"in", s.in}, {"out", s.out}, {"threads", threads}}, forms,
        std::vector<double>(forms.size(), gflop));
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

template <class Functions>
Json describe(const char* what, const kernels::Table<Functions>& table, const Shape& s, int threads) {
  return {{"bench", what},     {"kernel", kernels::name_of(kernels::choose_entry(table).isa)},
          {"batch", s.batch},  {"tokens", s.tokens},
          {"heads", s.heads},  {"head_dim", s.head_dim},
          {"threads", threads}};
}

void attention(const Shape& s) {
  const int threads = train::use_threads(s.threads);
  const torch::NoGradGuard no_grad;
  std::vector<Form> forms;
  const kernels::AttentionShape shape{s.batch,  s.heads,    s.tokens,
                                      s.tokens, s.head_dim, 1 / std::sqrt(static_cast<float>(s.head_dim))};
  const torch::Tensor lse = torch::empty({s.batch, s.heads, s.tokens});
  for (const auto type : {torch::kFloat32, torch::kBFloat16}) {
    const std::string name = type == torch::kFloat32 ? "fp32" : "bf16";
    const auto make = [&] { return torch::randn({s.batch, s.tokens, s.heads, s.head_dim}).to(type); };
    const torch::Tensor q = make(), k = make(), v = make(), o = make(), d = make(), dq = make(), dk = make(),
                        dv = make();
    const auto forward = [=] {
      kernels::attention_forward(
          {shape, {}, in(q), in(k), in(v), out(o), {}, {}, {}, lse.mutable_data_ptr<float>()});
    };
    forms.push_back({name + " forward", forward});
    forms.push_back({name + " forward and backward", [=] {
                       forward();
                       kernels::attention_backward({shape,
                                                    {},
                                                    in(q),
                                                    in(k),
                                                    in(v),
                                                    in(o),
                                                    lse.const_data_ptr<float>(),
                                                    in(d),
                                                    out(dq),
                                                    out(dk),
                                                    out(dv),
                                                    {},
                                                    {},
                                                    {}});
                     }});
    forms.push_back(
        {name + " forward, LibTorch",
         [=] { at::scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)); }});
  }
  print(s, describe("attention", kernels::attention_table(), s, threads), forms, {});
}

// The cell's inputs and outputs [batch, tokens, heads, head dim] in one element type, gates in float.
struct MlstmTensors {
  MlstmTensors(const Shape& s, torch::ScalarType type)
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

void mlstm(const Shape& s) {
  const int threads = train::use_threads(s.threads);
  const MlstmTensors floats(s, torch::kFloat32);
  std::vector<Form> forms = chunkwise_forms("chunkwise", floats);
  const auto add = [&](std::vector<Form> more) { forms.insert(forms.end(), more.begin(), more.end()); };
  add(chunkwise_forms("chunkwise bf16", MlstmTensors(s, torch::kBFloat16)));
  forms.push_back(recurrent_form(floats));
  // The parallel form holds several matrices of tokens x tokens.
  if (static_cast<double>(s.batch * s.heads) * static_cast<double>(s.tokens) * static_cast<double>(s.tokens) <
      2e8)
    add(parallel_forms(floats));
  print(s, describe("mlstm", kernels::mlstm_table(), s, threads), forms, {});
}

void add_common(Arguments& command, const std::shared_ptr<Shape>& shape) {
  command.add("--threads", shape->threads, "compute threads, 0 = all cores").show_default().range(0, 1024);
  command.add("--seconds", shape->seconds, "how long to measure").show_default().range(0.0, 3600.0);
  command.flag("--json", shape->json, "one JSON line");
}

void size_option(Arguments& command, const char* name, int64_t& value, const char* what) {
  command.add(name, value, what).show_default().range(1, 1 << 20);
}

std::shared_ptr<Shape> add_heads(Arguments& command) {
  auto shape = std::make_shared<Shape>();
  size_option(command, "--batch", shape->batch, "sequences");
  size_option(command, "--tokens", shape->tokens, "length of a sequence");
  size_option(command, "--heads", shape->heads, "heads");
  size_option(command, "--head-dim", shape->head_dim, "channels of a head");
  add_common(command, shape);
  return shape;
}

}  // namespace

void add_bench_linear(Arguments& command, Action& action) {
  auto shape = std::make_shared<Shape>();
  size_option(command, "--rows", shape->rows, "rows of x");
  size_option(command, "--in", shape->in, "columns of x");
  size_option(command, "--out", shape->out, "columns of the result");
  add_common(command, shape);
  action = [shape] { linear(*shape); };
}

void add_bench_attention(Arguments& command, Action& action) {
  const auto shape = add_heads(command);
  action = [shape] { attention(*shape); };
}

void add_bench_mlstm(Arguments& command, Action& action) {
  const auto shape = add_heads(command);
  action = [shape] { mlstm(*shape); };
}

void add_bench_data(Arguments& command, Action& action) {
  auto folder = std::make_shared<std::string>();
  auto config = std::make_shared<data::LoaderBenchConfig>();
  auto json = std::make_shared<bool>(false);
  command.add("FOLDER", *folder, "a folder of classes").required();
  size_option(command, "--size", config->size, "side of the crops in pixels");
  size_option(command, "--batch", config->batch, "pictures at a time");
  size_option(command, "--threads", config->threads, "decoding threads");
  command.flag("--json", *json, "one JSON line");
  action = [folder, config, json] {
    data::time_loader(*folder, *config);  // brings the files into memory
    const data::LoaderPass pass = data::time_loader(*folder, *config);
    const Json line = {{"bench", "data"},
                       {"images", pass.images},
                       {"size", config->size},
                       {"threads", config->threads},
                       {"images_per_s", static_cast<double>(pass.images) / pass.seconds},
                       {"cpu_ms_an_image", pass.cpu_seconds * 1e3 / static_cast<double>(pass.images)}};
    std::cout << (*json ? line.dump() : line.dump(2)) << "\n";
  };
}

}  // namespace tessera::cli
