#include "plan/shape.h"

namespace tessera::plan {

double Shape::all_parameters() const {
  double sum = parameters;
  for (const Stack& stack : stacks) sum += static_cast<double>(stack.layers) * stack.parameters;
  return sum;
}

double Shape::all_trained() const {
  double sum = trained;
  for (const Stack& stack : stacks) sum += static_cast<double>(stack.layers) * stack.trained;
  return sum;
}

double Shape::training_macs() const {
  const auto factor = [](double own, double all) { return all > 0 ? 2 + own / all : 3; };
  double sum = factor(trained, parameters) * products;
  for (const Stack& stack : stacks)
    sum += static_cast<double>(stack.layers) *
           (factor(stack.trained, stack.parameters) * stack.products + 3 * stack.pairs);
  return sum;
}

Shape shape_of(const Transformer& model) {
  const auto width = static_cast<double>(model.width), hidden = static_cast<double>(model.hidden),
             tokens = static_cast<double>(model.sequence),
             keys = width * static_cast<double>(model.kv_heads) / static_cast<double>(model.heads),
             vocabulary = static_cast<double>(model.vocabulary);
  const bool gated = model.kind == "llama";
  Stack stack{.layers = model.layers,
              .tokens = model.sequence,
              .width = model.width,
              .heads = model.heads,
              .kv_heads = model.kv_heads,
              .hidden = model.hidden,
              .gated = gated,
              .causal = true};
  const double weights = 2 * width * width + 2 * width * keys + (gated ? 3 : 2) * width * hidden;
  // GPT has biases and two norms with a bias; LLaMA has two norms without.
  stack.parameters = weights + (gated ? 2 * width : 9 * width + hidden);
  stack.trained = stack.parameters;
  stack.products = tokens * weights;
  stack.pairs = 2 * tokens * tokens * width;
  stack.score_bytes = 2 * static_cast<double>(model.heads) * tokens * tokens;
  Shape shape{
      .name = model.kind, .stacks = {stack}, .vocabulary = model.vocabulary, .outputs = model.sequence};
  shape.parameters = (model.tied ? 1 : 2) * vocabulary * width + (gated ? width : (tokens + 2) * width);
  shape.trained = shape.parameters;
  shape.products = tokens * vocabulary * width;
  return shape;
}

double score_entries(int64_t rows, int64_t columns, int64_t window) {
  const double tokens = static_cast<double>(rows) * static_cast<double>(columns);
  return tokens * (window > 0 ? static_cast<double>(window) * static_cast<double>(window) : tokens);
}

}  // namespace tessera::plan
