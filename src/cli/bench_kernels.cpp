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

Json describe(const char* what, const Shape& s, int threads) {
  return {{"bench", what},    {"batch", s.batch},       {"tokens", s.tokens},
          {"heads", s.heads}, {"head_dim", s.head_dim}, {"threads", threads}};
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
  print(s, describe("attention", s, threads), forms, {});
}

void mlstm(const Shape& s) {
  const int threads = train::use_threads(s.threads);
  const auto make = [&] { return torch::randn({s.batch, s.tokens, s.heads, s.head_dim}) * 0.1; };
  const torch::Tensor q = make(), k = make(), v = make(), h = make(), dh = make(), dq = make(), dk = make(),
                      dv = make();
  const torch::Tensor i = torch::randn({s.batch, s.tokens, s.heads}), f = i + 4, di = i.clone(),
                      df = i.clone();
  const torch::Tensor saved = torch::empty({2, s.batch, s.heads, s.tokens});
  float* normaliser = saved.mutable_data_ptr<float>();
  float* sign = normaliser + saved.numel() / 2;
  const kernels::MlstmShape shape{s.batch, s.heads, s.tokens, s.head_dim, s.head_dim};
  const auto forward = [&] {
    kernels::mlstm_forward({shape, in(q), in(k), in(v), gate(i), gate(f), out(h), {}, {}, normaliser, sign});
  };
  std::vector<Form> forms = {{"chunkwise forward", forward}, {"chunkwise forward and backward", [&] {
                                                                forward();
                                                                kernels::mlstm_backward({shape,
                                                                                         in(q),
                                                                                         in(k),
                                                                                         in(v),
                                                                                         gate(i),
                                                                                         gate(f),
                                                                                         in(h),
                                                                                         normaliser,
                                                                                         sign,
                                                                                         in(dh),
                                                                                         out(dq),
                                                                                         out(dk),
                                                                                         out(dv),
                                                                                         gate_out(di),
                                                                                         gate_out(df),
                                                                                         {},
                                                                                         {},
                                                                                         {}});
                                                              }}};
  // The parallel form holds several matrices of tokens x tokens.
  if (static_cast<double>(s.batch * s.heads) * static_cast<double>(s.tokens) * static_cast<double>(s.tokens) <
      2e8) {
    const auto heads = [](const torch::Tensor& t) { return t.transpose(1, 2).contiguous(); };
    const torch::Tensor hq = heads(q), hk = heads(k), hv = heads(v), hi = heads(i), hf = heads(f);
    forms.push_back({"parallel forward", [=] {
                       const torch::NoGradGuard no_grad;
                       ops::mlstm_parallel(hq, hk, hv, hi, hf);
                     }});
    forms.push_back({"parallel forward and backward", [=] {
                       const torch::Tensor gq = hq.detach().requires_grad_();
                       ops::mlstm_parallel(gq, hk, hv, hi, hf).sum().backward();
                     }});
  }
  print(s, describe("mlstm", s, threads), forms, {});
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
