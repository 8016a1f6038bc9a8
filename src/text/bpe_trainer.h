// Learns a byte-level BPE from texts (Sennrich et al. 2016; on bytes: Radford et al. 2019).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct BpeTrainerOptions {
  int64_t vocabulary = 8192;                             // total size: special tokens, 256 bytes, merges
  int64_t least = 2;                                     // pairs that occur less often are not merged
  std::vector<std::string> special = {"<|endoftext|>"};  // special tokens, which get the first ids, in order
  std::string begin = {}, end = {};                      // special tokens to put around each text, if any
  bool prefix_space = false;  // treat the first word of a text as if a space preceded it
};

class BpeTrainer {
 public:
  explicit BpeTrainer(const BpeTrainerOptions& options);
  // Counts the words of a UTF-8 text, split by GPT-2's expression. Throws Error if it is not UTF-8.
  void add(std::string_view text);
  // Returns the tokeniser's definition (tokenizer.json) after repeatedly merging the most frequent pair. Ties
  // go to the smaller ids; the order of the texts does not matter. `progress` gets the number of tokens so
  // far; if it returns false, throws an Error of kind interrupted. Throws Error if there was no text.
  std::string learn(const std::function<bool(int64_t tokens)>& progress = {});

 private:
  BpeTrainerOptions options_;
  struct Counter;
  std::shared_ptr<Counter> counter_;
};

}  // namespace tessera
