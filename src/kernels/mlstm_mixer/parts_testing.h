// Shared by the tests of the mixer's parts: tensors in float or bfloat16 for the kernels and in double for
// the definition.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "kernels/mlstm_mixer/parts.h"
#include "kernels/reference.h"
#include "kernels/testing.h"

namespace tessera::kernels::testing {

// A tensor of floats, or of bfloat16, with guards for the fast kernels, and the same numbers in double for
// the definition. `gap` numbers separate rows.
class Tensor {
 public:
  Tensor(int64_t rows, int64_t width, uint64_t seed, int64_t gap = 0, double mean = 0, double deviation = 1)
      : rows_(rows),
        width_(width),
        stride_(width + gap),
        single_(Element::f32, rows * stride_, 1),
        double_(rows * stride_) {
    const auto values = normal(rows * stride_, seed, mean, deviation);
    for (int64_t i = 0; i < rows * stride_; ++i) single_.set(i, values[i]), double_[i] = values[i];
    start_ = double_;
  }
  void reset() {
    for (size_t i = 0; i < start_.size(); ++i) stored().set(static_cast<int64_t>(i), start_[i]);
    double_ = start_;
  }
  void set(int64_t row, int64_t column, double value) {
    start_[static_cast<size_t>(row * stride_ + column)] = value;
    reset();
  }
  // Rounds to numbers that bfloat16 can store, still floats for the kernels.
  void round() {
    for (double& value : start_) {
      uint16_t bits;
      write_element(&bits, Element::bf16, 0, value);
      value = read_element(&bits, Element::bf16, 0);
    }
    reset();
  }
  // Switches the kernels' copy to bfloat16.
  void store_halves() {
    half_.emplace(Element::bf16, single_.count(), 1);
    round();
  }
  float* single() { return half_ ? nullptr : static_cast<float*>(single_.data()); }
  TokenRowsOut rows(int64_t tokens) {
    return {stored().data(), half_ ? Element::bf16 : Element::f32, tokens * stride_, stride_};
  }
  double* exact() { return double_.data(); }
  int64_t stride() const { return stride_; }
  int64_t width() const { return width_; }
  std::vector<double> got() const {
    std::vector<double> values;
    for (int64_t r = 0; r < rows_; ++r)
      for (int64_t c = 0; c < width_; ++c) values.push_back(stored().get(r * stride_ + c));
    return values;
  }
  std::vector<double> want() const {
    std::vector<double> values;
    for (int64_t r = 0; r < rows_; ++r)
      for (int64_t c = 0; c < width_; ++c) values.push_back(double_[r * stride_ + c]);
    return values;
  }
  // True if the gaps between rows are unchanged.
  bool gaps_intact() const {
    for (int64_t i = 0; i < rows_ * stride_; ++i)
      if (i % stride_ >= width_ && static_cast<float>(stored().get(i)) != static_cast<float>(start_[i]))
        return false;
    return true;
  }

 private:
  Guarded& stored() { return half_ ? *half_ : single_; }
  const Guarded& stored() const { return half_ ? *half_ : single_; }
  int64_t rows_, width_, stride_;
  Guarded single_;
  std::optional<Guarded> half_;
  std::vector<double> double_, start_;
};

template <class Real>
auto rows_in(Tensor& t, int64_t tokens) {
  if constexpr (std::is_same_v<Real, float>)
    return TokenView<const float*>{t.single(), tokens * t.stride(), t.stride()};
  else
    return TokenView<const double*>{t.exact(), tokens * t.stride(), t.stride()};
}
template <class Real>
auto rows_out(Tensor& t, int64_t tokens) {
  if constexpr (std::is_same_v<Real, float>)
    return TokenView<float*>{t.single(), tokens * t.stride(), t.stride()};
  else
    return TokenView<double*>{t.exact(), tokens * t.stride(), t.stride()};
}
// The same for fields that may be bfloat16.
template <class Real>
StoredRowsOut<Real> stored_out(Tensor& t, int64_t tokens) {
  if constexpr (std::is_same_v<Real, float>)
    return t.rows(tokens);
  else
    return rows_out<double>(t, tokens);
}
template <class Real>
StoredRows<Real> stored_in(Tensor& t, int64_t tokens) {
  if constexpr (std::is_same_v<Real, float>)
    return {t.rows(tokens).data, t.rows(tokens).element, tokens * t.stride(), t.stride()};
  else
    return rows_in<double>(t, tokens);
}
// Tolerances, in float roundings, of a SiLU or its slope between bfloat16 tensors, and with one bfloat16
// rounding of the largest number in addition.
constexpr double kRoundingsOfCoarse = 2e-4 / 6e-8, kRoundingsOfHalf = 0x1p16 + kRoundingsOfCoarse;

template <class Real>
Real* data(Tensor& t) {
  if constexpr (std::is_same_v<Real, float>)
    return t.single();
  else
    return t.exact();
}

struct Checked {
  const char* name;
  Tensor* tensor;
  double roundings;  // roundings of the largest number that enters a sum
};

// Runs the definition in double once, then every implementation from the same start, whole and in two pieces.
// Results may be off by `roundings` (2^-24) of the largest result.
inline void compare(const std::string& what, int64_t tokens, const std::vector<Checked>& outputs,
                    const std::function<void(int64_t, int64_t)>& definition,
                    const std::function<void(const MixerFunctions&, int64_t, int64_t)>& fast) {
  for (const Checked& out : outputs) out.tensor->reset();
  definition(0, tokens);
  std::vector<std::vector<double>> want;
  for (const Checked& out : outputs) want.push_back(out.tensor->want());
  for_each_implementation(mixer_table(), [&](const std::string& isa, const MixerFunctions& functions) {
    for (int64_t cut : {tokens, tokens / 3}) {
      for (const Checked& out : outputs) out.tensor->reset();
      fast(functions, 0, cut);
      fast(functions, cut, tokens);
      for (size_t i = 0; i < outputs.size(); ++i) {
        expect_within(outputs[i].tensor->got(), want[i],
                      outputs[i].roundings * 6e-8 * largest(want[i]) + 1e-12,
                      text(isa, " ", what, " cut ", cut, " ", outputs[i].name), outputs[i].tensor->width());
        EXPECT_TRUE(outputs[i].tensor->gaps_intact()) << isa << " " << what << " " << outputs[i].name;
      }
    }
  });
}

// Sizes of block-diagonal maps and gates: published, odd, and around the vector widths.
struct HeadwiseCase {
  int64_t batch, tokens, channels, gates;
};
inline const HeadwiseCase kHeadwise[] = {{2, 7, 8, 2},    {1, 1, 4, 2},    {1, 64, 192, 8}, {2, 19, 20, 6},
                                         {1, 33, 48, 16}, {1, 17, 36, 12}, {1, 70, 768, 8}};

// Central differences of the double definitions, for every number of every input. `loss` runs the forward and
// weights its outputs; `inputs` pairs an input with its gradient.
inline void expect_gradients(const std::string& what, const std::function<double()>& loss,
                             const std::vector<std::pair<Tensor*, Tensor*>>& inputs,
                             const std::vector<std::string>& names) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    auto& [x, dx] = inputs[i];
    const std::vector<double> gradient = dx->want();
    for (size_t n = 0; n < gradient.size(); ++n) {
      const int64_t width = x->width(),
                    at = static_cast<int64_t>(n) / width * x->stride() + static_cast<int64_t>(n) % width;
      const double was = x->exact()[at], step = 1e-5;
      x->exact()[at] = was + step;
      const double up = loss();
      x->exact()[at] = was - step;
      const double down = loss();
      x->exact()[at] = was;
      ASSERT_NEAR(gradient[n], (up - down) / (2 * step), 1e-8 + 1e-6 * std::abs(gradient[n]))
          << what << " d" << names[i] << "[" << n << "]";
    }
  }
}

inline double dot(Tensor& a, Tensor& b) {
  const auto x = a.want(), y = b.want();
  double total = 0;
  for (size_t i = 0; i < x.size(); ++i) total += x[i] * y[i];
  return total;
}

inline void zero(std::initializer_list<Tensor*> tensors) {
  for (Tensor* t : tensors)
    for (size_t i = 0; i < t->want().size() / static_cast<size_t>(t->width()); ++i)
      std::fill_n(t->exact() + static_cast<int64_t>(i) * t->stride(), t->width(), 0.0);
}

}  // namespace tessera::kernels::testing
