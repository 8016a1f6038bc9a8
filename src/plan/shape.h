// The shape of a model for the planner: stacks of equal layers, and everything outside them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::plan {

// Equal layers. Counts are per layer; products and pairs are the multiply-adds of one sample, forward pass.
struct Stack {
  std::string name = "blocks";
  int64_t layers = 0, tokens = 0, width = 0;
  int64_t heads = 1;       // heads of queries: tensor parallelism divides them
  int64_t kv_heads = 1;    // of keys and values
  int64_t hidden = 0;      // width of the feed-forward layer
  bool gated = false;      // two projections at the input of the feed-forward layer
  bool dropout = false;    // keeps masks for the gradient
  bool causal = false;     // flash kernels skip half of the pairs
  double parameters = 0;   // all of a layer
  double trained = 0;      // the part that has gradients and optimiser state
  double products = 0;     // with weights
  double pairs = 0;        // between tokens: attention scores and values, full squares
  double score_bytes = 0;  // attention matrices in 16 bits, unless a flash kernel avoids them
  double kept_bytes = 0;   // activations kept for the gradient, in 16 bits; 0: by the Transformer formula
};

struct Shape {
  std::string name{};
  std::vector<Stack> stacks{};
  // Embeddings, heads and decoders outside the stacks.
  double parameters = 0, trained = 0, products = 0, kept_bytes = 0;
  int64_t vocabulary = 0;  // outputs of a language model's head, whose logits need memory
  int64_t outputs = 0;     // positions with logits, per sample

  double all_parameters() const;
  double all_trained() const;
  // Multiply-adds per sample, forward and backward, with full attention squares. A frozen layer computes no
  // weight gradients.
  double training_macs() const;
};

// A decoder-only language model: a Transformer like GPT or LLaMA.
struct Transformer {
  std::string kind = "gpt";  // gpt or llama
  int64_t width = 0, heads = 0, kv_heads = 0, layers = 0, hidden = 0, vocabulary = 0, sequence = 0;
  bool tied = true;
};
Shape shape_of(const Transformer& model);

// Returns the number of attention scores of one head and layer for a grid of tokens: all pairs, or pairs
// inside windows of `window` x `window` tokens.
double score_entries(int64_t rows, int64_t columns, int64_t window = 0);

}  // namespace tessera::plan
