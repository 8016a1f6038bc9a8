// mLSTM backward in float. Built once per instruction set.
#include "kernels/mlstm/mlstm_backward_walk.h"

namespace tessera::kernels::TESSERA_ISA {
namespace {

class FloatForm {
 public:
  static constexpr bool kTakesFloats = true;

  FloatForm(const HeadGradients& head, const MlstmChunk& chunk, const ChunkInputs& in)
      : b_(head.b), s_(head.call.shape), chunk_(chunk), in_(in) {}

  void pairs() const {
    Triangle scores;
    scores.product = {in_.q.data, in_.q.row, 1, b_.keys_t, Lp_, s_.key_dim};
    scores.out = b_.scores;
    scores.out_row = Lp_;
    triangle(scores, 0, chunk_.length);
    Triangle dscores;
    dscores.product = {b_.u, Vp_, 1, b_.values_t, Lp_, s_.value_dim};
    dscores.init_row = b_.u_sum;
    dscores.init_vector = column();
    dscores.out = b_.dscores;
    dscores.out_row = Lp_;
    triangle(dscores, 0, chunk_.length);
    add_sums();
  }
  void add_queries(Mix& out) const {
    out.second = {b_.dscores, Lp_, 1, in_.k.data, in_.k.row, chunk_.length};
    out.part = Part::lower;
    mix(out, 0, chunk_.length);
  }
  void add_keys(Mix& out) const {
    out.second = {b_.dscores, 1, Lp_, in_.q.data, in_.q.row, chunk_.length};
    out.part = Part::upper;
    mix(out, 0, chunk_.length);
  }
  void add_values(Mix& out) const {
    out.second = {b_.scores, 1, Lp_, b_.u, Vp_, chunk_.length};
    out.part = Part::upper;
    mix(out, 0, chunk_.length);
  }

 private:
  const float* column() const { return b_.gates.column + chunk_.start; }
  void add_sums() const {
    const int64_t L = chunk_.length;
    for (int64_t s = 0; s < L; s += W) {
      const vf weight = get(column() + s, L - s);  // zeros after the chunk
      store(b_.inverse_column + s, weight > 0 ? 1.0f / weight : vf{});
      store(b_.pair_column + s, vf{});
    }
    for (int64_t t = 0; t < L; ++t) {
      const float *scores = b_.scores + t * Lp_, *dscores = b_.dscores + t * Lp_;
      vf row_sum = {};
      for (int64_t s = 0; s <= t; s += W) {
        const vf g = load(scores + s) * load(b_.inverse_column + s) * load(dscores + s);
        row_sum += g;
        store(b_.pair_column + s, load(b_.pair_column + s) + g);
      }
      b_.drow[chunk_.start + t] += sum(row_sum);
    }
    for (int64_t s = 0; s < L; ++s) b_.dcolumn[chunk_.start + s] += b_.pair_column[s];
  }

  const MlstmBackwardScratch& b_;
  const MlstmShape& s_;
  const MlstmChunk& chunk_;
  const ChunkInputs& in_;
  int64_t Lp_ = round_up16(s_.chunk), Vp_ = round_up16(s_.value_dim);
};

}  // namespace

void mlstm_backward(const MlstmBackward& call, int64_t begin, int64_t end, void* scratch) {
  run_heads_back<FloatForm>(call, begin, end, scratch);
}

}  // namespace tessera::kernels::TESSERA_ISA
