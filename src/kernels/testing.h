// Shared by the tests of kernels: random tensors in any layout, guarded memory, comparison that reports the
// place, and a loop over the implementations that this machine can run.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "core/random.h"
#include "kernels/reference.h"
#include "kernels/table.h"
#include "kernels/types.h"

namespace tessera::kernels::testing {

inline std::vector<float> normal(int64_t count, uint64_t seed, double mean = 0, double deviation = 1) {
  RandomStream stream(seed, "kernels test");
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(mean + deviation * stream.normal());
  return values;
}

inline std::vector<float> uniform(int64_t count, uint64_t seed, double low, double high) {
  RandomStream stream(seed, "kernels test");
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(stream.uniform(low, high));
  return values;
}

// Elements with guards before and after, shifted off alignment. The destructor fails the test if a kernel
// wrote outside.
class Guarded {
 public:
  Guarded(Element element, int64_t count, int64_t shift = 0)
      : element_(element), count_(count), size_(element == Element::f32 ? 4 : 2), shift_(shift) {
    bytes_.assign((2 * kGuard + shift + count) * size_, kFill);
  }
  ~Guarded() {
    for (size_t i = 0; i < bytes_.size(); ++i) {
      const auto at = static_cast<int64_t>(i / size_) - kGuard - shift_;
      if ((at < 0 || at >= count_) && bytes_[i] != kFill) {
        ADD_FAILURE() << "a kernel wrote at element " << at << " of a tensor of " << count_;
        return;
      }
    }
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  void* data() { return bytes_.data() + (kGuard + shift_) * size_; }
  double get(int64_t i) const { return read_element(bytes_.data() + (kGuard + shift_) * size_, element_, i); }
  void set(int64_t i, double value) { write_element(data(), element_, i, value); }
  int64_t count() const { return count_; }
  Element element() const { return element_; }

 private:
  static constexpr int64_t kGuard = 64;
  static constexpr unsigned char kFill = 0xA5;  // as a float a tiny negative number
  Element element_;
  int64_t count_, size_, shift_;
  std::vector<unsigned char> bytes_;
};

// The memory layout of a (batch, head, token, dim) tensor.
enum class Layout { heads_first, tokens_first, tokens_first_wide };

// A guarded (batch, head, token, dim) tensor in one of those layouts.
class HeadTensor {
 public:
  HeadTensor(int64_t batch, int64_t heads, int64_t tokens, int64_t width, Layout layout,
             Element element = Element::f32, int64_t shift = 0)
      : heads_(heads),
        tokens_(tokens),
        width_(width),
        memory_(element, extent(batch, heads, tokens, width, layout), shift) {
    if (layout == Layout::heads_first) {
      token_ = width, head_ = tokens * width, batch_ = heads * head_;
    } else {
      head_ = width, token_ = heads * width + (layout == Layout::tokens_first_wide ? 7 : 0),
      batch_ = tokens * token_;
    }
  }
  HeadRows in() { return {memory_.data(), memory_.element(), batch_, head_, token_}; }
  HeadRowsOut out() { return {memory_.data(), memory_.element(), batch_, head_, token_}; }
  // Returns the index in memory of element (item, token, channel).
  int64_t at(int64_t item, int64_t token, int64_t channel) const {
    return item / heads_ * batch_ + item % heads_ * head_ + token * token_ + channel;
  }
  double get(int64_t item, int64_t token, int64_t channel) const {
    return memory_.get(at(item, token, channel));
  }
  void set(int64_t item, int64_t token, int64_t channel, double value) {
    memory_.set(at(item, token, channel), value);
  }
  void fill(const std::vector<float>& values) {  // in (batch, head, token, dim) order
    for (size_t i = 0; i < values.size(); ++i) {
      const auto row = static_cast<int64_t>(i) / width_;
      set(row / tokens_, row % tokens_, static_cast<int64_t>(i) % width_, values[i]);
    }
  }
  int64_t width() const { return width_; }
  std::vector<double> item(int64_t item) const {  // (tokens, width)
    std::vector<double> values;
    for (int64_t t = 0; t < tokens_; ++t)
      for (int64_t c = 0; c < width_; ++c) values.push_back(get(item, t, c));
    return values;
  }

 private:
  static int64_t extent(int64_t batch, int64_t heads, int64_t tokens, int64_t width, Layout layout) {
    return batch * tokens * (heads * width + (layout == Layout::tokens_first_wide ? 7 : 0));
  }
  int64_t heads_, tokens_, width_, batch_, head_, token_;
  Guarded memory_;
};

inline double largest(const std::vector<double>& values) {
  double most = 0;
  for (double value : values) most = std::max(most, std::abs(value));
  return most;
}

inline double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

// Fails at the first place with an error above `tolerance`, or with NaN.
inline void expect_within(const std::vector<double>& got, const std::vector<double>& want, double tolerance,
                          const std::string& what, int64_t width) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < want.size(); ++i)
    if (!(std::abs(got[i] - want[i]) <= tolerance)) {
      ADD_FAILURE() << what << ": row " << i / width << ", column " << i % width << ": got " << got[i]
                    << ", want " << want[i] << ", tolerance " << tolerance;
      return;
    }
}

// Calls body(name, functions) for every implementation in the table that this machine can run.
template <class Functions, class Body>
void for_each_implementation(const Table<Functions>& table, Body body) {
  for (const Implementation<Functions>& entry : table)
    if (entry.isa <= machine().best) body(std::string(name_of(entry.isa)), *entry.functions);
}

}  // namespace tessera::kernels::testing
