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
  int64_t vocabulary = 8192;                             // tokens in all: special ones, 256 bytes, merges
  int64_t least = 2;                                     // pairs that occur less often are not merged
  std::vector<std::string> special = {"<|endoftext|>"};  // the first ids, in this order
  std::string begin = {}, end = {};                      // of the special ones: put around each text, if any
  bool prefix_space = false;  // a text's first word is spelled as one that follows a space
};

class BpeTrainer {
 public:
  explicit BpeTrainer(const BpeTrainerOptions& options);
  // Counts the words of a text, UTF-8, as GPT-2's expression splits it. Throws Error for other bytes.
  void add(std::string_view text);
  // The tokeniser's definition (tokenizer.json) after merging the commonest pair again and again, of equally common
  // ones that with the smaller ids; the same texts in any order give the same. `progress` is told the tokens so far;
  // false stops with an Error of kind interrupted. Throws Error if there was no text.
  std::string learn(const std::function<bool(int64_t tokens)>& progress = {});

 private:
  BpeTrainerOptions options_;
  struct Counter;
  std::shared_ptr<Counter> counter_;
};

}  // namespace tessera
