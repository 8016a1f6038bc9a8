// mlstm_bench [batch heads tokens dim [chunk ...]]: milliseconds and GFLOP/s of each implementation.
// mlstm_bench --json batch heads tokens dim: one JSON line with wall-clock time and CPU time of all threads.
#include <cstdlib>

#include "core/error.h"
#include "core/threads.h"
#include "kernels/bench.h"
#include "kernels/mlstm/mlstm_cases.h"

namespace tessera::kernels {
namespace {

using testing::MlstmCase;
using testing::MlstmProblem;
using testing::published_mlstm_case;

void forward(MlstmProblem& p) { mlstm_forward(p.forward()); }
void backward(MlstmProblem& p) { mlstm_backward(p.backward()); }

// Multiply-adds of the plan, with triangles counted as halves.
double work(const MlstmShape& s, bool backward) {
  const double D = static_cast<double>(s.key_dim), T = static_cast<double>(s.tokens),
               L = static_cast<double>(s.chunk);
  const double chunks = T / L, passes = static_cast<double>(s.batch * s.heads);
  const double pairs = T * (L + 1) / 2, between = std::max(0.0, chunks - 1) / chunks * T;
  return passes * (backward ? 5 * pairs * D + 5 * between * D * D : 2 * pairs * D + 2 * between * D * D) * 2;
}

void report(const MlstmCase& c, const std::vector<Isa>& isas) {
  MlstmProblem p(c);
  const MlstmShape planned = p.shape();
  forward(p);
  std::vector<bench::Candidate> candidates;
  const Isa before = active_isa();
  for (Isa isa : isas) {
    if (isa > machine().best) continue;
    candidates.push_back({text(name_of(isa), " forward"), [&p, isa] { force_isa(isa), forward(p); }});
    candidates.push_back({text(name_of(isa), " backward"), [&p, isa] { force_isa(isa), backward(p); }});
  }
  const auto times = bench::measure(candidates, 0.7);
  force_isa(before);
  for (size_t i = 0; i < times.size(); ++i) {
    const double flops = work(planned, i % 2 == 1);
    std::printf("B%-4ld H%ld T%-6ld D%-3ld chunk %-4ld %-20s %9.3f ms (fastest %9.3f)  %6.1f GFLOP/s\n",
                static_cast<long>(c.batch), static_cast<long>(c.heads), static_cast<long>(c.tokens),
                static_cast<long>(c.key_dim), static_cast<long>(planned.chunk), candidates[i].name.c_str(),
                times[i].median * 1e3, times[i].fastest * 1e3, flops / times[i].median * 1e-9);
  }
}

double seconds_on(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Runs for 0.3 s; prints the median wall-clock time and the mean CPU time, in milliseconds.
void print_json(const char* name, const std::function<void()>& run, const char* behind) {
  const auto timing = bench::measure({{name, run}}, 0.3)[0];
  int64_t runs = 0;
  const double begin = seconds_on(CLOCK_MONOTONIC), cpu = seconds_on(CLOCK_PROCESS_CPUTIME_ID);
  for (; runs == 0 || seconds_on(CLOCK_MONOTONIC) - begin < 0.3; ++runs) run();
  std::printf("\"%s_ms\": %.4f, \"%s_cpu_ms\": %.4f%s", name, timing.median * 1e3, name,
              (seconds_on(CLOCK_PROCESS_CPUTIME_ID) - cpu) / static_cast<double>(runs) * 1e3, behind);
}

void report_json(const MlstmCase& c) {
  MlstmProblem p(c);
  forward(p);
  std::printf("{");
  print_json(
      "forward", [&p] { forward(p); }, ", ");
  print_json(
      "forward_backward", [&p] { forward(p), backward(p); }, "}\n");
}

void run(int argc, char** argv) {
  const auto given = [argv](int first, int64_t chunk) {
    return published_mlstm_case(std::atoll(argv[first]), std::atoll(argv[first + 1]),
                                std::atoll(argv[first + 2]), std::atoll(argv[first + 3]), chunk);
  };
  if (argc == 6 && std::string(argv[1]) == "--json") return report_json(given(2, 0));
  std::printf("%d threads, %s\n", num_threads(), name_of(active_isa()));
  const std::vector<Isa> all = {Isa::avx512, Isa::avx2, Isa::portable};
  if (argc > 6) {
    for (int i = 5; i < argc; ++i) report(given(1, std::atoll(argv[i])), {Isa::avx512});
  } else if (argc > 4) {
    report(given(1, argc > 5 ? std::atoll(argv[5]) : 0), all);
  } else {
    for (const MlstmCase& c : testing::mlstm_bench_cases()) report(c, all);
  }
}

}  // namespace
}  // namespace tessera::kernels

int main(int argc, char** argv) { tessera::kernels::run(argc, argv); }
