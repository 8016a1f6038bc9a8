// A trie of words: finds the word that a text begins with, in time that depends only on that word.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tessera::tokens {

class CharacterTrie {
 public:
  static constexpr uint32_t kRoot = 0, kNone = ~uint32_t{0};

  // Adds a word with a value of at least 0. Ignores empty words and words that were already added.
  void insert(std::u32string_view word, int32_t value) {
    uint32_t node = kRoot;
    for (const char32_t c : word) {
      const auto [at, fresh] = children_.emplace(key(node, c), static_cast<uint32_t>(values_.size()));
      if (fresh) values_.push_back(-1);
      node = at->second;
    }
    if (node != kRoot && values_[node] < 0) values_[node] = value;
  }

  // Returns the child of `node` for a character, or kNone.
  uint32_t child(uint32_t node, char32_t c) const {
    const auto found = children_.find(key(node, c));
    return found == children_.end() ? kNone : found->second;
  }
  // Returns the value of the word that ends at a node, or -1.
  int32_t value(uint32_t node) const { return values_[node]; }

  struct Hit {
    size_t length = 0;  // in characters; 0: no hit
    int32_t value = -1;
  };
  // Returns the longest word that `text` begins with.
  Hit longest(std::u32string_view text) const {
    Hit hit;
    uint32_t node = kRoot;
    for (size_t i = 0; i < text.size() && (node = child(node, text[i])) != kNone; ++i)
      if (values_[node] >= 0) hit = {i + 1, values_[node]};
    return hit;
  }

 private:
  static uint64_t key(uint32_t node, char32_t c) { return uint64_t{node} << 21 | c; }
  struct Hash {
    size_t operator()(uint64_t value) const {
      return static_cast<size_t>((value ^ value >> 31) * 0x9E3779B97F4A7C15u >> 7);
    }
  };
  std::unordered_map<uint64_t, uint32_t, Hash> children_;
  std::vector<int32_t> values_ = {-1};
};

}  // namespace tessera::tokens
