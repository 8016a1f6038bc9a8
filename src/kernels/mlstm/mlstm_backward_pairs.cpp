// mLSTM backward on pairs of bfloat16 (AMX, AVX512_BF16). Within a chunk q, k times its column's factor, v
// and the weights are rounded to bfloat16 as in forward, and so are u, k and dS. Sums, gates and everything
// through the state are floats. Built once for each, on top of AVX-512.
//
// The gates' gradient is a small difference of large sums: if a row's |r| is above its floor, its exact G is
// only due to eps. That holds here because d_t uses the rounded u, and because the weights and v are those
// that produced h. The exception is a row's input from the state, which only forward rounds, with a relative
// error of 2^-9.
#include "kernels/mlstm/mlstm_backward_walk.h"
#include "kernels/pair_tiles.h"

namespace tessera::kernels::TESSERA_ISA {
namespace {

constexpr int64_t kRows = 16;  // rows of the triangles per step

// W weights of a row, and their dS.
struct Weighed {
  vf weight, gradient;
};
// Computes both from their products, zeros where not `kept`; adds their parts of G to the row and column
// sums.
TESSERA_INLINE Weighed weigh(const float* scores, const float* dscores, float d, vf column, vi kept,
                             vf& row_sum, vf& column_sum) {
  const vf weight = kept ? to_bf16(load(scores)) : vf{}, slope = load(dscores) + d;
  const vf g = kept ? weight * slope : vf{};
  row_sum += g, column_sum += g;
  return {weight, kept ? to_bf16(column * slope) : vf{}};
}

class PairForm {
 public:
  static constexpr bool kTakesFloats = false;

  PairForm(const HeadGradients& head, const MlstmChunk& chunk, const ChunkInputs& in)
      : head_(head), b_(head.b), s_(head.call.shape), chunk_(chunk) {
    if (head.q.element == Element::f32)
      read<float>();
    else
      read<bf16>();
    transpose_words(b_.key_rows, Kp_ / 2, L_, key_words_, b_.key_words, Lp_);
    transpose_words(b_.value_rows, Vp_ / 2, L_, value_words_, b_.value_words, Lp_);
    round_u(in.h);
  }

  void pairs() const {
    for (int64_t c = 0; c < Lp_; c += W) store(b_.pair_column + c, vf{});
    for (int64_t t = 0; t < L_; t += kRows) {
      const int64_t rows = L_ - t < kRows ? L_ - t : kRows, width = round_up16(t + rows);
      pair_product(
          {b_.query_rows + t * Kp_ / 2, Kp_ / 2, b_.key_words, Lp_, key_words_, b_.scores + t * Lp_, Lp_},
          rows, width);
      pair_product(
          {b_.u_rows + t * Vp_ / 2, Vp_ / 2, b_.value_words, Lp_, value_words_, b_.dscores + t * Lp_, Lp_},
          rows, width);
      for (int64_t r = t; r < t + rows; r += 2) weigh_rows(r, width);
    }
    for (int64_t s = 0; s < L_; ++s) b_.dcolumn[chunk_.start + s] += b_.pair_column[s];
  }
  void add_queries(Mix& out) const {
    for (int64_t t = 0; t < L_; t += kRows) {
      const int64_t rows = L_ - t < kRows ? L_ - t : kRows;
      pair_product({b_.dscores + t * Lp_, Lp_, b_.key_pairs, Kp_, (t + rows + 1) / 2,
                    out.out + t * out.out_row, out.out_row, out.keep},
                   rows, Kp_);
    }
  }
  void add_keys(Mix& out) const { add_later(b_.dscore_pairs, b_.query_pairs, Kp_, out); }
  void add_values(Mix& out) const {
    if (out.first.k) mix(out, 0, L_), out.keep = 1;
    add_later(b_.score_pairs, b_.u_pairs, Vp_, out);
  }

 private:
  template <class T>
  void read() {
    const auto q = rows_of<T>(head_.q, chunk_.start, L_, s_.key_dim),
               k = rows_of<T>(head_.k, chunk_.start, L_, s_.key_dim),
               v = rows_of<T>(head_.v, chunk_.start, L_, s_.value_dim);
    narrow_rows(q, nullptr, b_.query_rows, Kp_ / 2);
    narrow_rows(k, b_.gates.column + chunk_.start, b_.key_rows, Kp_ / 2);
    narrow_rows(v, nullptr, b_.value_rows, Vp_ / 2);
    pair_up_rows(q, 1, b_.query_pairs, Kp_);
    pair_up_rows(k, 1, b_.key_pairs, Kp_);
  }
  void round_u(const Matrix& h) const {
    for (int64_t t = 0; t < L_; ++t) {
      float* u = b_.u + t * Vp_;
      for (int64_t e = 0; e < Vp_; e += W) store(u + e, to_bf16(load(u + e)));
      b_.u_sum[t] = -b_.row_sign[t] * dot(u, h.data + t * h.row, s_.value_dim);
    }
    const NumberRows<float> u = {b_.u, Vp_, L_, Vp_};
    narrow_rows(u, nullptr, b_.u_rows, Vp_ / 2);
    pair_up_rows(u, 1, b_.u_pairs, Vp_);
  }

  // Weighs rows t and t + 1: words of both, and dS of each as bfloat16 at the start of its row.
  void weigh_rows(int64_t t, int64_t width) const {
    const bool two = t + 1 < L_;
    const float *scores = b_.scores + t * Lp_, *factors = b_.gates.column + chunk_.start;
    float* dscores = b_.dscores + t * Lp_;
    vf first_sum = {}, second_sum = {};
    for (int64_t c = 0; c < width; c += W) {
      const vf factor = load(factors + c);
      const vi column = lanes() + (int32_t)c;
      vf column_sum = load(b_.pair_column + c);
      const Weighed first =
          weigh(scores + c, dscores + c, b_.u_sum[t], factor, column <= (int32_t)t, first_sum, column_sum);
      Weighed second = {};
      if (two)
        second = weigh(scores + Lp_ + c, dscores + Lp_ + c, b_.u_sum[t + 1], factor, column <= (int32_t)t + 1,
                       second_sum, column_sum);
      store(b_.pair_column + c, column_sum);
      store(b_.score_pairs + t / 2 * Lp_ + c, pair_up(first.weight, second.weight));
      store(b_.dscore_pairs + t / 2 * Lp_ + c, pair_up(first.gradient, second.gradient));
      store((bf16*)dscores + c, first.gradient);
      if (two) store((bf16*)(dscores + Lp_) + c, second.gradient);
    }
    b_.drow[chunk_.start + t] += sum(first_sum);
    if (two) b_.drow[chunk_.start + t + 1] += sum(second_sum);
  }

  // out_s += sum over t >= s of pairs[t][s] rows_t
  void add_later(const float* pairs, const float* rows, int64_t width, const Mix& out) const {
    for (int64_t s = 0; s < L_; s += kRows) {
      PairProduct p = {};
      p.a = pairs + s / 2 * Lp_ + s, p.a_row = 1;
      p.b = rows + s / 2 * width, p.b_k = width, p.k = (L_ + 1) / 2 - s / 2;
      p.out = out.out + s * out.out_row, p.out_row = out.out_row, p.keep = out.keep;
      p.a_k = Lp_;
      pair_product(p, L_ - s < kRows ? L_ - s : kRows, width);
    }
  }

  const HeadGradients& head_;
  const MlstmBackwardScratch& b_;
  const MlstmShape& s_;
  const MlstmChunk& chunk_;
  int64_t L_ = chunk_.length, Lp_ = round_up16(s_.chunk), Kp_ = round_up16(s_.key_dim),
          Vp_ = round_up16(s_.value_dim);
  int64_t key_words_ = (s_.key_dim + 1) / 2, value_words_ = (s_.value_dim + 1) / 2;
};

}  // namespace

void mlstm_backward(const MlstmBackward& call, int64_t begin, int64_t end, void* scratch) {
  begin_pair_products();
  run_heads_back<PairForm>(call, begin, end, scratch);
  end_pair_products();
}

}  // namespace tessera::kernels::TESSERA_ISA
