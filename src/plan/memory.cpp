// Memory of a step (Korthikanti et al. 2022; Rajbhandari et al. 2020).
#include <algorithm>

#include "plan/cost.h"

namespace tessera::plan {
namespace {

// Memory that an allocator holds beyond the memory in use.
constexpr double kReserve = 1.05;
// Bytes per logit: 16 bits, a float copy, the float gradient and its 16-bit copy.
constexpr double kLogitBytes = 12;

// Bytes kept per layer and sample without recomputation.
double all_bytes(const Stack& stack, const Layout& layout) {
  const auto tokens = static_cast<double>(stack.tokens) / static_cast<double>(layout.context),
             tensor = static_cast<double>(layout.tensor);
  if (stack.kept_bytes > 0) return stack.kept_bytes / (tensor * static_cast<double>(layout.context));
  const auto width = static_cast<double>(stack.width), hidden = static_cast<double>(stack.hidden),
             keys = width * static_cast<double>(stack.kv_heads) / static_cast<double>(stack.heads);
  // Replicated without sequence parallelism: inputs of both norms, of attention and of the feed-forward layer.
  const double replicated = (stack.dropout ? 10 : 8) * width;
  const double split = 2 * width + 4 * keys + 2 * width + (stack.gated ? 6 : 4) * hidden;
  const double scores =
      layout.flash ? 0 : (stack.dropout ? 2.5 : 1) * stack.score_bytes / static_cast<double>(layout.context);
  return tokens * (replicated / (layout.sequence_parallel ? tensor : 1) + split / tensor) + scores / tensor;
}

}  // namespace

double kept_bytes(const Stack& stack, const Layout& layout) {
  const auto tokens = static_cast<double>(stack.tokens) / static_cast<double>(layout.context),
             width = static_cast<double>(stack.width), tensor = static_cast<double>(layout.tensor);
  const double input = 2 * tokens * width / (layout.sequence_parallel ? tensor : 1);
  switch (layout.recompute) {
    case Recompute::none:
      return all_bytes(stack, layout);
    case Recompute::attention: {
      Layout flash = layout;
      flash.flash = true;
      return all_bytes(stack, flash);
    }
    case Recompute::products: {
      const double keys = width * static_cast<double>(stack.kv_heads) / static_cast<double>(stack.heads);
      const double outputs = tokens * 2 * (2 * width + keys + static_cast<double>(stack.hidden)) / tensor;
      return std::min(all_bytes(stack, layout), 2 * input + outputs);
    }
    case Recompute::full:
      return input;
  }
  return 0;
}

double StepMemory::sum() const {
  return weights + gradients + optimiser + average + activations + logits + working + reserve;
}

std::vector<std::pair<const char*, double>> StepMemory::by_kind() const {
  return {{"weights", weights},        {"gradients", gradients},     {"optimiser", optimiser},
          {"moving average", average}, {"activations", activations}, {"logits", logits},
          {"working memory", working}, {"reserve", reserve}};
}

StepMemory step_memory(const Shape& shape, const Layout& layout, const Arithmetic& arithmetic,
                       const MeasuredBlock* measured) {
  const auto tensor = static_cast<double>(layout.tensor), pipeline = static_cast<double>(layout.pipeline),
             shards = static_cast<double>(layout.data * layout.context),
             samples = static_cast<double>(layout.microbatch),
             alive = layout.pipeline == 1
                         ? 1
                         : std::min(pipeline, static_cast<double>(layout.microbatches(arithmetic.batch)));
  double inner = 0, inner_trained = 0, kept = 0, largest = 0, largest_kept = 0;
  for (const Stack& stack : shape.stacks) {
    const double layers = static_cast<double>(stack.layers) / pipeline;
    inner += layers * stack.parameters, inner_trained += layers * stack.trained;
    kept += layers * kept_bytes(stack, layout);
    Layout plain = layout;
    plain.recompute = Recompute::none;
    if (layout.recompute == Recompute::attention) plain.flash = true;
    largest = std::max(largest, stack.parameters);
    largest_kept = std::max(largest_kept, kept_bytes(stack, plain) - kept_bytes(stack, layout));
  }
  // Interleaved stages keep more microbatches (Narayanan et al. 2021).
  if (layout.virtual_stages > 1)
    kept *= 1 + (pipeline - 1) / (pipeline * static_cast<double>(layout.virtual_stages));
  // Embeddings and the head are on the first and the last stage; with one weight for both, on each.
  const double parameters = (inner + shape.parameters) / tensor,
               trained = (inner_trained + shape.trained) / tensor;
  StepMemory memory;
  memory.weights = arithmetic.weight_bytes * parameters / (layout.zero >= 3 ? shards : 1);
  const bool one_pass = layout.pipeline == 1 && layout.microbatches(arithmetic.batch) == 1;
  const bool leave =
      layout.zero >= 2 || (layout.zero == 1 && one_pass);  // rows of others, once they are reduced
  memory.gradients = arithmetic.held_gradient_bytes * trained / (leave ? shards : 1);
  memory.optimiser = arithmetic.optimiser_bytes * trained / (layout.zero >= 1 ? shards : 1);
  memory.average = arithmetic.average_bytes * parameters / (layout.zero >= 1 ? shards : 1);
  memory.activations = samples * (kept * alive + shape.kept_bytes / tensor);
  // The rest takes the place of activations that the pass frees.
  if (leave && one_pass) memory.gradients = std::max(0.0, memory.gradients - memory.activations);
  memory.logits = kLogitBytes * samples * static_cast<double>(shape.outputs) *
                  static_cast<double>(shape.vocabulary) / (tensor * static_cast<double>(layout.context));
  memory.working = samples * largest_kept;
  // Two gathered layers, one layer's gradient, and everything outside the layers.
  if (layout.zero >= 3)
    memory.working += arithmetic.gathered_bytes * (2 * largest + shape.parameters) / tensor +
                      arithmetic.gradient_bytes * std::max(largest, shape.trained) / tensor;
  if (measured) memory.working += measured->program_bytes;
  memory.reserve = (kReserve - 1) * memory.sum();
  return memory;
}

}  // namespace tessera::plan
