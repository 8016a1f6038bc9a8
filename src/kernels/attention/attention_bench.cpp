// attention_bench [batch heads tokens dim]: milliseconds and GFLOP/s of each implementation and form.
#include <cstdlib>

#include "core/error.h"
#include "core/threads.h"
#include "kernels/attention/attention_cases.h"
#include "kernels/bench.h"

namespace tessera::kernels {
namespace {

using testing::AttentionCase;
using testing::AttentionProblem;

void report(const AttentionCase& c) {
  AttentionProblem p(c);
  attention_forward(p.forward());
  std::vector<bench::Candidate> candidates;
  const Isa before = active_isa();
  for (const Isa isa : {Isa::avx512, Isa::avx2, Isa::portable}) {
    if (isa > machine().best) continue;
    candidates.push_back(
        {text(name_of(isa), " forward"), [&p, isa] { force_isa(isa), attention_forward(p.forward()); }});
    candidates.push_back(
        {text(name_of(isa), " backward"), [&p, isa] { force_isa(isa), attention_backward(p.backward()); }});
  }
  if (attention_fixed_point())
    candidates.push_back({"whole numbers", [&p] {
                            force_isa(Isa::avx512_vnni);
                            AttentionForward call = p.forward();
                            call.fixed_point = true;
                            attention_forward(call);
                          }});
  if (c.element == Element::bf16 && attention_byte_scores())
    candidates.push_back({"scores of bytes", [&p] {
                            force_isa(Isa::avx512_bf16);
                            AttentionForward call = p.forward();
                            call.fixed_point = true;
                            attention_forward(call);
                          }});
  if (c.element == Element::bf16 && attention_bf16_pairs() && bf16_pairs_are_faster(active_isa()))
    candidates.push_back(
        {"bfloat16 pairs", [&p] { force_isa(machine().best), attention_forward(p.forward()); }});
  const auto times = bench::measure(candidates, 0.7);
  force_isa(before);
  // Counts multiply-adds of all pairs; a causal mask halves them.
  const double pairs =
      static_cast<double>(c.batch * c.heads * c.queries * c.keys) * (c.mask.causal ? 0.5 : 1);
  for (size_t i = 0; i < times.size(); ++i) {
    const double flops =
        pairs * static_cast<double>(c.dim) * (candidates[i].name.ends_with("backward") ? 10 : 4);
    std::printf("%-70s %-18s %9.3f ms (fastest %9.3f)  %6.1f GFLOP/s\n", text(c).c_str(),
                candidates[i].name.c_str(), times[i].median * 1e3, times[i].fastest * 1e3,
                flops / times[i].median * 1e-9);
  }
}

void run(int argc, char** argv) {
  using testing::Added;
  using testing::Layout;
  using testing::Rotated;
  std::printf("%d threads, %s\n", tessera::num_threads(), name_of(active_isa()));
  if (argc == 5) {
    const int64_t tokens = std::atoll(argv[3]);
    for (const Element element : {Element::f32, Element::bf16})
      report({std::atoll(argv[1]),
              std::atoll(argv[2]),
              tokens,
              tokens,
              std::atoll(argv[4]),
              {},
              Rotated::no,
              Added::none,
              Layout::tokens_first,
              element});
    return;
  }
  for (const Element element : {Element::f32, Element::bf16}) {
    const auto form = [element](AttentionMask mask, Rotated rotated) {
      return AttentionCase{8, 6, 197, 197, 64, mask, rotated, Added::none, Layout::tokens_first, element};
    };
    report(form({}, Rotated::no));
    report(form({}, Rotated::shared));
    report(form({.future_weight = 0}, Rotated::shared));
    report(form({.causal = true}, Rotated::shared));
    report({1, 6, 3137, 3137, 64, {}, Rotated::no, Added::none, Layout::tokens_first, element});
    report({256, 3, 49, 49, 32, {}, Rotated::no, Added::windows, Layout::tokens_first, element});
  }
}

}  // namespace
}  // namespace tessera::kernels

int main(int argc, char** argv) { tessera::kernels::run(argc, argv); }
