// The implementations; checks the arguments and divides the rows among threads.
#include <algorithm>
#include <vector>

#include "core/error.h"
#include "core/threads.h"
#include "kernels/linear/linear_backward.h"
#include "kernels/table.h"

namespace tessera::kernels {

TESSERA_IMPLEMENTATIONS(LinearBackwardFunctions, linear_backward);

namespace {

constexpr Table<LinearBackwardFunctions> kTable{kImplementations, std::size(kImplementations)};
constexpr int64_t kWorthSharing = 1 << 15;  // numbers

template <class R>
void check_rows(const char* what, const R& rows, int64_t count, int64_t columns) {
  check(count == 0 || rows.data != nullptr, what, ": a matrix is missing");
  check(count <= 1 || rows.row >= columns, what, ": rows are ", rows.row, " apart, must be at least ",
        columns);
}

int64_t grain(int64_t columns) { return std::max<int64_t>(1, kWorthSharing / columns); }

// Calls `body`(sample, first row, end row) for all samples of `sample_rows` rows, divided among threads.
template <class Body>
void for_samples(const char* what, int64_t rows, int64_t columns, int64_t sample_rows, const Body& body) {
  check(sample_rows > 0 && rows % sample_rows == 0, what, ": ", rows, " rows do not divide into samples of ",
        sample_rows, " rows");
  parallel_for(rows / sample_rows, std::max<int64_t>(1, grain(columns) / sample_rows),
               [&](int64_t begin, int64_t end) {
                 for (int64_t s = begin; s < end; ++s) body(s, s * sample_rows, (s + 1) * sample_rows);
               });
}

void copy_to(float* out, int64_t sample, const float* sums, int64_t columns) {
  if (out) std::copy_n(sums, columns, out + sample * columns);
}

void norm_backward_of_samples(const NormBackward& call, const LinearBackwardFunctions& functions) {
  for_samples("norm_backward", call.rows, call.columns, call.sample_rows,
              [&](int64_t sample, int64_t begin, int64_t end) {
                std::vector<float> sums(2 * static_cast<size_t>(call.columns));
                NormBackward own = call;
                if (call.weight) own.weight = call.weight + sample * call.columns;
                functions.norm(own, begin, end, sums.data());
                copy_to(call.dweight, sample, sums.data(), call.columns);
                copy_to(call.dbias, sample, sums.data() + call.columns, call.columns);
              });
}

}  // namespace

void activation_backward(const ActivationBackward& call) {
  constexpr const char* kWhat = "activation_backward";
  check(call.rows >= 0 && call.columns >= 1, kWhat, ": ", call.rows, " rows of ", call.columns);
  for (const Rows& rows : {call.before, call.dy}) check_rows(kWhat, rows, call.rows, call.columns);
  check_rows(kWhat, call.dbefore, call.rows, call.columns);
  if (call.gated) {
    check_rows(kWhat, call.gate_before, call.rows, call.columns);
    check_rows(kWhat, call.dgate, call.rows, call.columns);
  }
  const LinearBackwardFunctions& functions = choose(kTable);
  parallel_for(call.rows, grain(call.columns),
               [&](int64_t begin, int64_t end) { functions.activation(call, begin, end); });
}

void norm_backward(const NormBackward& call) {
  constexpr const char* kWhat = "norm_backward";
  check(call.rows >= 0 && call.columns >= 1, kWhat, ": ", call.rows, " rows of ", call.columns);
  for (const Rows& rows : {call.x, call.dy}) check_rows(kWhat, rows, call.rows, call.columns);
  check_rows(kWhat, call.dx, call.rows, call.columns);
  const LinearBackwardFunctions& functions = choose(kTable);
  if (call.sample_rows != 0) return norm_backward_of_samples(call, functions);
  // A share of rows for each thread, each with its own sums.
  const int64_t shares =
      std::clamp<int64_t>(call.rows / grain(call.columns), 1, static_cast<int64_t>(num_threads()));
  const auto width = static_cast<size_t>(call.columns);
  std::vector<float> sums(static_cast<size_t>(shares) * 2 * width);
  parallel_for(shares, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
      functions.norm(call, call.rows * i / shares, call.rows * (i + 1) / shares,
                     sums.data() + static_cast<size_t>(i) * 2 * width);
  });
  const auto total = [&](float* out, size_t from) {
    for (size_t c = 0; out && c < width; ++c) {
      out[c] = 0;
      for (size_t i = 0; i < static_cast<size_t>(shares); ++i) out[c] += sums[i * 2 * width + from + c];
    }
  };
  total(call.dweight, 0);
  total(call.dbias, width);
}

void sample_scale_backward(const SampleScaleBackward& call) {
  constexpr const char* kWhat = "sample_scale_backward";
  check(call.rows >= 0 && call.columns >= 1, kWhat, ": ", call.rows, " rows of ", call.columns);
  for (const Rows& rows : {call.before, call.dy}) check_rows(kWhat, rows, call.rows, call.columns);
  check_rows(kWhat, call.dbefore, call.rows, call.columns);
  check(call.scale != nullptr, kWhat, ": the scale is missing");
  const LinearBackwardFunctions& functions = choose(kTable);
  for_samples(kWhat, call.rows, call.columns, call.sample_rows,
              [&](int64_t sample, int64_t begin, int64_t end) {
                std::vector<float> sums(static_cast<size_t>(call.columns));
                SampleScaleBackward own = call;
                own.scale = call.scale + sample * call.columns;
                functions.scale(own, begin, end, sums.data());
                copy_to(call.dscale, sample, sums.data(), call.columns);
              });
}

}  // namespace tessera::kernels
