// linear_bench [rows in out]: GFLOP/s of each implementation; by default the layers of DeiT-S and ViL-T.
#include <cstdlib>

#include "core/error.h"
#include "core/threads.h"
#include "kernels/bench.h"
#include "kernels/linear/linear_backward.h"
#include "kernels/linear/linear_cases.h"

namespace tessera::kernels {
namespace {

void report(const testing::LinearCase& c) {
  testing::LinearProblem p(c, /*shift=*/0);
  const LinearForward call = p.call();
  std::vector<float> dw(p.weight.size());
  std::vector<PackedLinear> packed;
  std::vector<bench::Candidate> candidates;
  packed.reserve(16);
  const char* names[] = {"f32", "bf16", "int8"};
  for (const Arithmetic arithmetic : {Arithmetic::f32, Arithmetic::bf16, Arithmetic::int8})
    for (const LinearImplementation& implementation : linear_implementations(arithmetic)) {
      if (implementation.isa < Isa::avx2) continue;
      packed.emplace_back(p.layer(), implementation);
      const PackedLinear& weights = packed.back();
      candidates.push_back({text(names[static_cast<int>(arithmetic)], " ", implementation.name),
                            [&weights, call] { linear_forward(weights, call); }});
    }
  const Rows y{call.y.data, call.y.element, call.y.row};
  for (const Arithmetic arithmetic : {Arithmetic::f32, Arithmetic::bf16})
    candidates.push_back(
        {text("dW ", names[static_cast<int>(arithmetic)]), [&, arithmetic] {
           linear_gradients({c.rows, c.in, c.out, call.x, y, arithmetic, dw.data(), nullptr});
         }});
  const auto times = bench::measure(candidates, 1);
  const double flops = 2e-9 * static_cast<double>(c.rows * c.in * c.out);
  for (size_t i = 0; i < times.size(); ++i)
    std::printf("%5ld x %4ld -> %4ld%s%s  %-18s %8.3f ms  %7.1f GFLOP/s (fastest %7.1f)\n",
                static_cast<long>(c.rows), static_cast<long>(c.in), static_cast<long>(c.out),
                c.norm ? " norm" : "", c.activation == Activation::gelu ? " gelu" : "",
                candidates[i].name.c_str(), times[i].median * 1e3, flops / times[i].median,
                flops / times[i].fastest);
}

// Times the memory-bound functions; prints gigabytes per second.
void report_backward(int64_t rows, int64_t columns) {
  const auto count = static_cast<size_t>(rows * columns);
  std::vector<float> x(count, 0.5f), dy(count, 0.25f), out(count),
      weight(8 * static_cast<size_t>(columns), 1.0f), dweight(weight.size()), dbias(weight.size());
  const Rows in{x.data(), Element::f32, columns}, slope{dy.data(), Element::f32, columns};
  const RowsOut to{out.data(), Element::f32, columns};
  const auto times = bench::measure(
      {{"norm backward",
        [&] {
          norm_backward(
              {rows, columns, true, 1e-6f, in, slope, weight.data(), to, dweight.data(), dbias.data()});
        }},
       {"gelu backward",
        [&] {
          activation_backward({rows, columns, false, in, {}, slope, to, {}});
        }},
       {"sample scale backward",
        [&] {
          sample_scale_backward({rows, columns, rows / 8, in, slope, weight.data(), to, dweight.data()});
        }}},
      1);
  const char* names[] = {"norm backward", "gelu backward", "sample scale backward"};
  for (size_t i = 0; i < times.size(); ++i)
    std::printf("%5ld x %4ld  %-18s %8.3f ms  %7.1f GB/s\n", static_cast<long>(rows),
                static_cast<long>(columns), names[i], times[i].median * 1e3,
                12e-9 * static_cast<double>(rows * columns) / times[i].median);
}

}  // namespace
}  // namespace tessera::kernels

int main(int argc, char** argv) {
  using tessera::kernels::report;
  std::printf("%d threads, %s\n", tessera::num_threads(), name_of(tessera::kernels::active_isa()));
  if (argc > 3) {
    report({"given", std::atoll(argv[1]), std::atoll(argv[2]), std::atoll(argv[3])});
    return 0;
  }
  for (const auto& c : tessera::kernels::testing::linear_bench_cases()) report(c);
  tessera::kernels::report_backward(1576, 384);
  tessera::kernels::report_backward(1576, 1536);
}
