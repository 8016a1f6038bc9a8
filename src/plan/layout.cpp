#include "plan/layout.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"

namespace tessera::plan {

const char* name_of(Recompute recompute) {
  constexpr const char* names[] = {"none", "attention", "products", "full"};
  return names[static_cast<size_t>(recompute)];
}

Recompute parse_recompute(const std::string& name) {
  for (const Recompute recompute :
       {Recompute::none, Recompute::attention, Recompute::products, Recompute::full})
    if (name == name_of(recompute)) return recompute;
  fail_usage("recomputation '", printable(name, 40), "' must be none, attention, products or full");
}

std::string Layout::text() const {
  std::string line = tessera::text("data ", data);
  if (tensor > 1) line += tessera::text(", tensor ", tensor);
  if (pipeline > 1) line += tessera::text(", pipeline ", pipeline);
  if (virtual_stages > 1) line += tessera::text(" x ", virtual_stages);
  if (context > 1) line += tessera::text(", context ", context);
  if (zero > 0) line += tessera::text(", ZeRO ", zero);
  line += tessera::text(", microbatch ", microbatch);
  if (recompute != Recompute::none) line += tessera::text(", recompute ", name_of(recompute));
  return line;
}

std::string why_impossible(const Layout& layout, const Shape& shape, const Cluster& cluster, int64_t batch) {
  if (layout.chips() != cluster.chips)
    return text("the layout has ", layout.chips(), " chips, the cluster ", cluster.chips);
  if (batch % (layout.data * layout.microbatch) != 0)
    return text("the batch of ", batch, " is no multiple of data x microbatch");
  // Its exchanges happen in every layer, so the group must stay inside one machine.
  if (cluster.per_machine % layout.tensor != 0)
    return text("tensor ", layout.tensor, " does not divide the ", cluster.per_machine,
                " chips of a machine");
  int64_t layers = 0;
  for (const Stack& stack : shape.stacks) {
    layers += stack.layers;
    if (stack.heads % layout.tensor != 0 || stack.hidden % layout.tensor != 0)
      return text("tensor ", layout.tensor, " does not divide the heads or the feed-forward width of '",
                  stack.name, "'");
    if (layout.context > 1 && stack.tokens % (2 * layout.context) != 0)
      return text("context ", layout.context, " does not divide the tokens of '", stack.name, "'");
  }
  const int64_t parts = layout.pipeline * layout.virtual_stages;
  if (layout.pipeline > 1 && (shape.stacks.size() != 1 || layers % parts != 0))
    return text(parts, " pipeline parts do not divide ", layers, " equal layers");
  if (layout.pipeline == 1 && layout.virtual_stages > 1) return "virtual stages without a pipeline";
  if (layout.pipeline > 1 && layout.microbatches(batch) < layout.pipeline)
    return text("the pipeline of ", layout.pipeline, " has ", layout.microbatches(batch), " microbatches");
  if (layout.pipeline > 1 && layout.zero > 1)
    return "a pipeline gathers weights and gradients once for all microbatches: ZeRO 1 at most";
  if (layout.zero > 0 && layout.data * layout.context == 1) return "ZeRO without data parallelism";
  return "";
}

std::string why_not_yet(const Layout& layout) {
  if (layout.tensor > 1 && layout.sequence_parallel) return "sequence parallelism";
  if (layout.pipeline > 1 && layout.tensor > 1) return "tensor parallelism in a pipeline";
  if (layout.pipeline > 1 && layout.zero > 0) return "ZeRO in a pipeline";
  if (layout.virtual_stages > 1) return "virtual stages";
  if (layout.context > 1) return "context parallelism";
  if (layout.recompute == Recompute::attention || layout.recompute == Recompute::products)
    return "recomputation of parts of a layer";
  return "";
}

}  // namespace tessera::plan
