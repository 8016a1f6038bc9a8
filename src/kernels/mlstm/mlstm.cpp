// mLSTM forward in float. Built once per instruction set.
#include "kernels/mlstm/mlstm_walk.h"

namespace tessera::kernels::TESSERA_ISA {
namespace {

class FloatForm {
 public:
  FloatForm(const WalkedHead& head, const MlstmChunk& chunk)
      : head_(head),
        chunk_(chunk),
        s_(head.call.shape),
        f_(head.f),
        q_(rows_as_floats(head.q, chunk.start, chunk.length, s_.key_dim, f_.queries)),
        k_(rows_as_floats(head.k, chunk.start, chunk.length, s_.key_dim, f_.keys)),
        v_(rows_as_floats(head.v, chunk.start, chunk.length, s_.value_dim, f_.values)),
        h_(rows_to_write(head.h, chunk.start, s_.value_dim, f_.h)),
        reads_state_(head.has_state && chunk.state_in != 0) {
    const int64_t K = s_.key_dim, L = chunk.length, Lp = round_up16(s_.chunk);
    transpose_scaled(k_.data, k_.row, L, K, column(), f_.keys_t, Lp);
    scores_.product = {q_.data, q_.row, 1, f_.keys_t, Lp, K};
    scores_.out = f_.scores;
    scores_.out_row = Lp;
    scores_.row_sum = f_.row_sum;
    if (reads_state_) {
      output_.first = {q_.data, q_.row, 1, f_.c, round_up16(s_.value_dim), K};
      output_.gain = chunk.state_in;
    }
    output_.second = {f_.scores, Lp, 1, v_.data, v_.row, L};
    output_.part = Part::lower;
    output_.row_scale = f_.row_scale;
    output_.out = h_.data;
    output_.out_row = h_.row;
    output_.width = s_.value_dim;
    for (int64_t t = 0; t < L; ++t)
      f_.row_sum[t] = reads_state_ ? chunk.state_in * dot(q_.data + t * q_.row, f_.n, K) : 0;
  }
  void scores(int64_t begin, int64_t end) { triangle(scores_, begin, end); }
  void output(int64_t begin, int64_t end) { mix(output_, begin, end); }
  void finish() { write_rows(head_.h, chunk_.start, chunk_.length, s_.value_dim, h_); }
  void update(float keep) {
    const int64_t K = s_.key_dim, V = s_.value_dim, L = chunk_.length;
    Mix update;
    update.first = {f_.keys_t, round_up16(s_.chunk), 1, v_.data, v_.row, L};
    update.gain = chunk_.state_out;
    update.keep = keep;
    update.out = f_.c;
    update.out_row = round_up16(V);
    update.width = V;
    mix(update, 0, K);
    weighted_sum(k_, L, K, column(), keep, chunk_.state_out, f_.n);
  }

 private:
  const float* column() const { return f_.gates.column + chunk_.start; }

  const WalkedHead& head_;
  const MlstmChunk& chunk_;
  const MlstmShape& s_;
  const MlstmForwardScratch& f_;
  Matrix q_, k_, v_;
  MatrixOut h_;
  bool reads_state_;
  Triangle scores_;
  Mix output_;
};

void mlstm_forward(const MlstmForward& call, int64_t begin, int64_t end, void* scratch) {
  run_heads<FloatForm>(call, begin, end, scratch);
}

}  // namespace

extern const MlstmFunctions mlstm;
const MlstmFunctions mlstm = {mlstm_forward, mlstm_backward};

}  // namespace tessera::kernels::TESSERA_ISA
