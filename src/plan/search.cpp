#include "plan/search.h"

#include <algorithm>
#include <functional>

namespace tessera::plan {
namespace {

std::vector<int64_t> divisors(int64_t number) {
  std::vector<int64_t> found;
  for (int64_t i = 1; i * i <= number; ++i)
    if (number % i == 0) {
      found.push_back(i);
      if (i * i != number) found.push_back(number / i);
    }
  std::sort(found.begin(), found.end());
  return found;
}

bool has_attention(const Shape& shape) {
  return std::any_of(shape.stacks.begin(), shape.stacks.end(),
                     [](const Stack& stack) { return stack.score_bytes > 0; });
}

// Calls `use` with every possible layout of fixed degrees.
void vary(Layout layout, const Shape& shape, const Cluster& cluster, int64_t batch,
          const std::function<void(const Layout&)>& use) {
  const int64_t layers = shape.stacks.empty() ? 1 : shape.stacks[0].layers;
  for (const int64_t microbatch : divisors(batch / layout.data))
    for (const int64_t parts :
         layout.pipeline > 1 ? divisors(layers / layout.pipeline) : std::vector<int64_t>{1})
      for (int64_t zero = 0; zero <= 3; ++zero) {
        layout.microbatch = microbatch, layout.virtual_stages = parts, layout.zero = zero;
        if (!why_impossible(layout, shape, cluster, batch).empty()) continue;
        for (const Recompute recompute :
             {Recompute::none, Recompute::attention, Recompute::products, Recompute::full}) {
          // Flash attention keeps no scores, so there is nothing to recompute.
          if (recompute == Recompute::attention && (layout.flash || !has_attention(shape))) continue;
          layout.recompute = recompute;
          use(layout);
        }
      }
}

void for_each_layout(const Shape& shape, const Cluster& cluster, int64_t batch, const SearchOptions& options,
                     const std::function<void(const Layout&)>& use) {
  for (const int64_t tensor : divisors(cluster.per_machine)) {
    if (cluster.chips % tensor != 0) continue;
    for (const int64_t pipeline : divisors(cluster.chips / tensor)) {
      const int64_t data = cluster.chips / tensor / pipeline;
      if (batch % data != 0) continue;
      if (pipeline > 1 && (shape.stacks.size() != 1 || shape.stacks[0].layers % pipeline != 0)) continue;
      vary({.data = data,
            .tensor = tensor,
            .pipeline = pipeline,
            .sequence_parallel = !options.only_runnable,
            .flash = options.flash},
           shape, cluster, batch, [&](const Layout& layout) {
             if (!options.only_runnable || why_not_yet(layout).empty()) use(layout);
           });
    }
  }
}

bool same_degrees(const Layout& a, const Layout& b) {
  return a.data == b.data && a.tensor == b.tensor && a.pipeline == b.pipeline;
}

// Returns how many bytes the best layout lacks, at most 0 if it fits; sets `any` if a layout exists.
double missing(const Shape& shape, const Cluster& cluster, const Arithmetic& arithmetic,
               const SearchOptions& options, bool& any) {
  double least = 1e300;
  any = false;
  for_each_layout(shape, cluster, arithmetic.batch, options, [&](const Layout& layout) {
    any = true;
    least = std::min(least, step_memory(shape, layout, arithmetic, options.measured).sum());
  });
  return least - usable_bytes(cluster.chip);
}

}  // namespace

double usable_bytes(const Chip& chip) {
  return chip.generation == Generation::cpu ? chip.memory_bytes : chip.memory_bytes - 1e9;
}

std::vector<Layout> possible_layouts(const Shape& shape, const Cluster& cluster, int64_t batch) {
  std::vector<Layout> layouts;
  for_each_layout(shape, cluster, batch, {}, [&](const Layout& layout) { layouts.push_back(layout); });
  return layouts;
}

std::vector<Plan> search(const Shape& shape, const Cluster& cluster, const Arithmetic& arithmetic,
                         const Constants& constants, const SearchOptions& options) {
  std::vector<Plan> best;  // one for each combination of data, tensor and pipeline degrees
  const double usable = usable_bytes(cluster.chip);
  for_each_layout(shape, cluster, arithmetic.batch, options, [&](const Layout& layout) {
    if (step_memory(shape, layout, arithmetic, options.measured).sum() > usable) return;
    Plan plan{layout, step_cost(shape, cluster, layout, arithmetic, constants, options.measured)};
    if (best.empty() || !same_degrees(best.back().layout, layout))
      best.push_back(std::move(plan));
    else if (plan.cost.time.sum() < best.back().cost.time.sum())
      best.back() = std::move(plan);
  });
  std::stable_sort(best.begin(), best.end(),
                   [](const Plan& a, const Plan& b) { return a.cost.time.sum() < b.cost.time.sum(); });
  if (best.size() > options.keep) best.resize(options.keep);
  return best;
}

Shortfall shortfall(const Shape& shape, const Cluster& cluster, const Arithmetic& arithmetic,
                    const SearchOptions& options) {
  Shortfall out;
  out.missing_bytes = missing(shape, cluster, arithmetic, options, out.batch_divides);
  if (!out.batch_divides) return out;
  Cluster larger = cluster;
  while (larger.chips < (int64_t{1} << 17)) {
    larger.chips *= 2;
    larger.per_machine = std::min<int64_t>(std::max<int64_t>(8, cluster.per_machine), larger.chips);
    bool any = false;
    if (missing(shape, larger, arithmetic, options, any) <= 0 && any) {
      out.smallest_chips = larger.chips;
      break;
    }
  }
  return out;
}

}  // namespace tessera::plan
