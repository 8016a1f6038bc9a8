// mLSTM forward on pairs of bfloat16 (AMX, AVX512_BF16): q, k times its column's factor, v, the weights and
// the state's reads are rounded to bfloat16; sums, the normaliser and the state between chunks are floats.
// Built once for each, on top of AVX-512.
#include "kernels/mlstm/mlstm_walk.h"
#include "kernels/pair_tiles.h"

namespace tessera::kernels::TESSERA_ISA {
namespace {

TESSERA_INLINE bf16* bf16_row(float* rows, int64_t row, int64_t r) { return (bf16*)(rows + r * row); }

class PairForm {
 public:
  PairForm(const WalkedHead& head, const MlstmChunk& chunk)
      : head_(head),
        chunk_(chunk),
        s_(head.call.shape),
        f_(head.f),
        reads_state_(head.has_state && chunk.state_in != 0) {
    if (head.q.element == Element::f32)
      read<float>();
    else
      read<bf16>();
    transpose_words(f_.keys, Kp_, chunk.length, key_words_, f_.keys_t, Lp_);
    if (reads_state_)
      pair_up_rows(NumberRows<float>{f_.c, Vp_, s_.key_dim, s_.value_dim}, chunk.state_in, f_.state_words,
                   Vp_);
    for (int64_t t = 0; t < chunk.length; ++t) f_.row_sum[t] = reads_state_ ? chunk.state_in * read_n(t) : 0;
  }

  // Writes weights as bfloat16 at the start of their rows.
  void scores(int64_t begin, int64_t end) {
    static_assert(kRowBlock == W);
    const int64_t width = begin + W;
    pair_product({queries_ + begin * queries_row_, queries_row_, f_.keys_t, Lp_, key_words_, f_.scores, Lp_},
                 end - begin, width);
    // Rows begin at whole vectors, so the diagonal passes only through the last one.
    for (int64_t t = begin; t < end; ++t) {
      float* row = f_.scores + (t - begin) * Lp_;
      vf total = {};
      for (int64_t c = 0; c < begin; c += W) {
        const vf weight = to_bf16(load(row + c));
        total += weight;
        store((bf16*)row + c, weight);
      }
      const vf weight = to_bf16(load(row + begin));
      const vf kept = lanes() + (int32_t)begin <= (int32_t)t ? weight : vf{};
      store((bf16*)row + begin, kept);
      f_.row_sum[t] += sum(total + kept);
    }
  }
  void output(int64_t begin, int64_t end) {
    const int64_t rows = end - begin;
    if (reads_state_)
      pair_product(
          {queries_ + begin * queries_row_, queries_row_, f_.state_words, Vp_, key_words_, f_.h, Vp_}, rows,
          Vp_);
    pair_product({f_.scores, Lp_, f_.values, Vp_, (end + 1) / 2, f_.h, Vp_, reads_state_ ? 1.0f : 0.0f}, rows,
                 Vp_);
    for (int64_t t = begin; t < end; ++t) {
      void* to = advance(head_.h.data, head_.h.element, (chunk_.start + t) * head_.h.stride);
      const float* from = f_.h + (t - begin) * Vp_;
      if (head_.h.element == Element::f32)
        put_row(from, f_.row_scale[t], (float*)to);
      else
        put_row(from, f_.row_scale[t], (bf16*)to);
    }
  }
  void finish() {}
  void update(float keep) {
    transpose_pairs();
    pair_product(
        {f_.keys_rows, Lp_ / 2, f_.values, Vp_, (chunk_.length + 1) / 2, f_.c, Vp_, keep, chunk_.state_out},
        s_.key_dim, Vp_);
    for (int64_t d = 0; d < Kp_; d += W) {
      vf total = {};
      for (int64_t t = 0; t < chunk_.length; ++t) total += load(bf16_row(f_.keys, Kp_, t) + d);
      total *= chunk_.state_out;
      if (keep != 0) total += keep * load(f_.n + d);
      store(f_.n + d, total);
    }
  }

 private:
  // Reads q, k and v of the chunk. q is used in place if whole vectors of words can be read there.
  template <class T>
  void read() {
    const int64_t K = s_.key_dim, V = s_.value_dim, L = chunk_.length;
    const auto q = rows_of<T>(head_.q, chunk_.start, L, K);
    if (head_.q.element == Element::bf16 && K == Kp_ && q.row % 2 == 0)
      queries_ = (const float*)q.data, queries_row_ = q.row / 2;
    else
      narrow_rows(q, nullptr, f_.queries, Kp_);
    narrow_rows(rows_of<T>(head_.k, chunk_.start, L, K), f_.gates.column + chunk_.start, f_.keys, Kp_);
    pair_up_rows(rows_of<T>(head_.v, chunk_.start, L, V), 1, f_.values, Vp_);
  }
  float read_n(int64_t t) const {
    const bf16* q = (const bf16*)(queries_ + t * queries_row_);
    vf total = {};
    for (int64_t d = 0; d < Kp_; d += W) total += load(q + d) * load(f_.n + d);
    return sum(total);
  }
  template <class T>
  void put_row(const float* from, float factor, T* to) const {
    for (int64_t c = 0; c < s_.value_dim; c += W) put(to + c, load(from + c) * factor, s_.value_dim - c);
  }
  // Converts words of two channels, token by token, into rows per channel: bfloat16 by token, padded with
  // zeros.
  void transpose_pairs() {
    for (int64_t w = 0; w < key_words_; ++w)
      for (int64_t t = 0; t < chunk_.length; t += W) {
        const vi all = load_words(f_.keys_t + w * Lp_ + t);
        const vi words = lanes() + (int32_t)t < (int32_t)chunk_.length ? all : vi{};
        const auto lower = (vh)_mm512_maskz_cvtepi32_epi16((__mmask16)-1, (__m512i)words);
        const auto upper = (vh)_mm512_maskz_cvtepi32_epi16((__mmask16)-1, (__m512i)((vu)words >> 16));
        memcpy(bf16_row(f_.keys_rows, Lp_ / 2, 2 * w) + t, &lower, sizeof lower);
        memcpy(bf16_row(f_.keys_rows, Lp_ / 2, 2 * w + 1) + t, &upper, sizeof upper);
      }
  }

  const WalkedHead& head_;
  const MlstmChunk& chunk_;
  const MlstmShape& s_;
  const MlstmForwardScratch& f_;
  bool reads_state_;
  int64_t Kp_ = round_up16(s_.key_dim), Vp_ = round_up16(s_.value_dim), Lp_ = round_up16(s_.chunk);
  int64_t key_words_ = (s_.key_dim + 1) / 2;
  const float* queries_ = f_.queries;
  int64_t queries_row_ = Kp_;
};

void mlstm_forward(const MlstmForward& call, int64_t begin, int64_t end, void* scratch) {
  begin_pair_products();
  run_heads<PairForm>(call, begin, end, scratch);
  end_pair_products();
}

}  // namespace

extern const MlstmFunctions mlstm_pairs;
const MlstmFunctions mlstm_pairs = {mlstm_forward, mlstm_backward};

}  // namespace tessera::kernels::TESSERA_ISA
