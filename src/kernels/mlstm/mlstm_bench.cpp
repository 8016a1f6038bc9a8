// mlstm_bench [batch heads tokens dim [chunk ...]]: milliseconds and GFLOP/s of each implementation.
// mlstm_bench --json batch heads tokens dim: one JSON line, by the clock and of processor time of all
// threads.
#include <cstdlib>
#include <memory>

#include "core/error.h"
#include "core/threads.h"
#include "kernels/bench.h"
#include "kernels/mlstm/mlstm.h"
#include "kernels/testing.h"

namespace tessera::kernels {
namespace {

using testing::HeadTensor;
using testing::Layout;
using testing::normal;
using testing::uniform;

struct Problem {
  Problem(int64_t batch, int64_t heads, int64_t tokens, int64_t dim, int64_t chunk)
      : shape{batch, heads, tokens, dim, dim, false, 1e-6f, chunk} {
    const int64_t rows = batch * heads * tokens;
    for (auto* x : {&q, &k, &v, &h, &dh, &dq, &dk, &dv}) *x = normal(rows * dim, 1 + (x - &q), 0.1);
    igate = normal(rows, 20), fgate = uniform(rows, 21, 3, 6);
    digate = dfgate = normaliser = row_sign = igate;
  }
  HeadRows in(const std::vector<float>& x) const {
    const int64_t width = shape.heads * shape.key_dim;
    return {x.data(), Element::f32, shape.tokens * width, shape.key_dim, width};
  }
  HeadRowsOut out(std::vector<float>& x) const {
    const int64_t width = shape.heads * shape.key_dim;
    return {x.data(), Element::f32, shape.tokens * width, shape.key_dim, width};
  }
  Gates gate(const std::vector<float>& x) const {
    return {x.data(), shape.tokens * shape.heads, 1, shape.heads};
  }
  GatesOut gate_out(std::vector<float>& x) const {
    return {x.data(), shape.tokens * shape.heads, 1, shape.heads};
  }
  void forward() {
    mlstm_forward({shape,
                   in(q),
                   in(k),
                   in(v),
                   gate(igate),
                   gate(fgate),
                   out(h),
                   {},
                   {},
                   normaliser.data(),
                   row_sign.data()});
  }
  void backward() {
    MlstmBackward call{shape,
                       in(q),
                       in(k),
                       in(v),
                       gate(igate),
                       gate(fgate),
                       in(h),
                       normaliser.data(),
                       row_sign.data(),
                       in(dh),
                       out(dq),
                       out(dk),
                       out(dv),
                       gate_out(digate),
                       gate_out(dfgate),
                       {},
                       {},
                       {}};
    mlstm_backward(call);
  }
  MlstmShape shape;
  std::vector<float> q, k, v, h, dh, dq, dk, dv, igate, fgate, digate, dfgate, normaliser, row_sign;
};

// Multiply-adds that the plan needs, the triangles counted as halves.
double work(const MlstmShape& s, int64_t chunk, bool backward) {
  const double D = static_cast<double>(s.key_dim), T = static_cast<double>(s.tokens),
               L = static_cast<double>(chunk);
  const double chunks = T / L, passes = static_cast<double>(s.batch * s.heads);
  const double pairs = T * (L + 1) / 2, between = std::max(0.0, chunks - 1) / chunks * T;
  return passes * (backward ? 5 * pairs * D + 5 * between * D * D : 2 * pairs * D + 2 * between * D * D) * 2;
}

void report(int64_t batch, int64_t heads, int64_t tokens, int64_t dim, std::vector<int64_t> chunks) {
  for (int64_t chunk : chunks) {
    Problem p(batch, heads, tokens, dim, chunk);
    const int64_t planned = mlstm_plan(p.shape).chunk;
    p.forward();
    std::vector<bench::Candidate> candidates;
    const Isa before = active_isa();
    std::vector<Isa> isas = {Isa::avx512};
    if (chunks.size() == 1) isas = {Isa::avx512, Isa::avx2, Isa::portable};
    for (Isa isa : isas) {
      if (isa > machine().best) continue;
      candidates.push_back({text(name_of(isa), " forward"), [&p, isa] { force_isa(isa), p.forward(); }});
      candidates.push_back({text(name_of(isa), " backward"), [&p, isa] { force_isa(isa), p.backward(); }});
    }
    const auto times = bench::measure(candidates, 0.7);
    force_isa(before);
    for (size_t i = 0; i < times.size(); ++i) {
      const double flops = work(p.shape, planned, i % 2 == 1);
      std::printf("B%-4ld H%ld T%-6ld D%-3ld chunk %-4ld %-20s %9.3f ms (fastest %9.3f)  %6.1f GFLOP/s\n",
                  static_cast<long>(batch), static_cast<long>(heads), static_cast<long>(tokens),
                  static_cast<long>(dim), static_cast<long>(planned), candidates[i].name.c_str(),
                  times[i].median * 1e3, times[i].fastest * 1e3, flops / times[i].median * 1e-9);
    }
  }
}

double seconds_on(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Runs for 0.3 s; the median by the clock and the mean of processor time, in milliseconds.
void print_json(const char* name, const std::function<void()>& run, const char* behind) {
  const auto timing = bench::measure({{name, run}}, 0.3)[0];
  int64_t runs = 0;
  const double begin = seconds_on(CLOCK_MONOTONIC), cpu = seconds_on(CLOCK_PROCESS_CPUTIME_ID);
  for (; runs == 0 || seconds_on(CLOCK_MONOTONIC) - begin < 0.3; ++runs) run();
  std::printf("\"%s_ms\": %.4f, \"%s_cpu_ms\": %.4f%s", name, timing.median * 1e3, name,
              (seconds_on(CLOCK_PROCESS_CPUTIME_ID) - cpu) / static_cast<double>(runs) * 1e3, behind);
}

void report_json(int64_t batch, int64_t heads, int64_t tokens, int64_t dim) {
  Problem p(batch, heads, tokens, dim, 0);
  p.forward();
  std::printf("{");
  print_json(
      "forward", [&p] { p.forward(); }, ", ");
  print_json(
      "forward_backward", [&p] { p.forward(), p.backward(); }, "}\n");
}

}  // namespace
}  // namespace tessera::kernels

int main(int argc, char** argv) {
  using tessera::kernels::report;
  if (argc == 6 && std::string(argv[1]) == "--json") {
    tessera::kernels::report_json(std::atoll(argv[2]), std::atoll(argv[3]), std::atoll(argv[4]),
                                  std::atoll(argv[5]));
    return 0;
  }
  std::printf("%d threads, %s\n", tessera::num_threads(), name_of(tessera::kernels::active_isa()));
  if (argc > 4) {
    std::vector<int64_t> chunks;
    for (int i = 5; i < argc; ++i) chunks.push_back(std::atoll(argv[i]));
    if (chunks.empty()) chunks.push_back(0);
    report(std::atoll(argv[1]), std::atoll(argv[2]), std::atoll(argv[3]), std::atoll(argv[4]), chunks);
    return 0;
  }
  report(128, 4, 64, 48, {0});
  for (int64_t tokens : {196, 784, 3136, 12544}) report(1, 4, tokens, 96, {0});
  report(8, 4, 196, 96, {0});
}
