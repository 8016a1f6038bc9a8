// A sample's buffers between the mixer's steps, and the division of steps among threads. Internal to the
// mixer.
#pragma once

#include <algorithm>

#include "core/threads.h"
#include "kernels/mlstm/mlstm.h"
#include "kernels/mlstm_mixer/mixer_rows.h"
#include "kernels/mlstm_mixer/mlstm_mixer.h"
#include "kernels/mlstm_mixer/mlstm_mixer_pack.h"

namespace tessera::kernels {

inline int64_t tokens_of(const MlstmMixerShape& s) { return s.rows * s.columns; }

// Heads that are processed together after the gates: one, or all if a block of four channels may belong to
// two heads.
struct HeadGroups {
  int64_t count, heads, dim;  // groups, heads of each, channels of a head
  explicit HeadGroups(const MlstmMixerShape& s) : dim(s.channels / s.heads) {
    count = dim % 4 == 0 ? s.heads : 1;
    heads = s.heads / count;
  }
  int64_t width() const { return heads * dim; }
};

// The numbers of tokens before and after each token that the convolution reads.
struct ConvolutionReach {
  int64_t before, after;
  explicit ConvolutionReach(const MlstmMixerShape& s) {
    const int64_t around = s.causal ? s.kernel - 1 : s.kernel / 2 * (s.columns + 1);
    before = s.causal && s.reverse ? 0 : around, after = s.causal && !s.reverse ? 0 : around;
  }
};

inline TokenRange with_neighbours(const MlstmMixerShape& s, const TokenRange& piece) {
  const ConvolutionReach reach(s);
  const int64_t first = std::max<int64_t>(0, piece.first - reach.before);
  return {first, std::min(tokens_of(s), piece.first + piece.count + reach.after) - first};
}

// The buffers of a group of heads between its steps; (tokens,width).
struct GroupWorkspace {
  float *q, *k, *v, *h;
  float *dh, *dq, *dk, *dv;
};

// The buffers of one sample, or of its current range, between the steps; (tokens,C) unless noted.
struct MixerWorkspace {
  TokenRowsOut x, a;             // stored like u; x including its neighbours
  float *pre, *gates;            // gates (tokens,G')
  float *normaliser, *row_sign;  // (H,tokens)
  MlstmStateOut state;           // between pieces
  float *da, *dx, *dgates;       // dx only for bfloat16
  Floats group_floats;           // start of the first group's workspace, and the size of each
  int64_t group_tokens, group_width;
  bool backward;
  MixerWorkspace(Floats& floats, const MlstmMixerShape& s, int64_t tokens, int64_t groups, Element element,
                 bool backward_in)
      : group_floats{nullptr},
        group_tokens(tokens),
        group_width(HeadGroups(s).width()),
        backward(backward_in) {
    const int64_t rows = tokens * s.channels, gate_rows = tokens * gate_row(s);
    x = take_rows(floats, element, tokens + ConvolutionReach(s).before + ConvolutionReach(s).after,
                  s.channels);
    a = take_rows(floats, element, tokens, s.channels);
    state.c = floats.take(tokens < tokens_of(s) ? s.channels * (s.channels / s.heads) : 0);
    state.n = floats.take(s.channels), state.m = floats.take(s.heads);
    pre = backward ? floats.take(rows) : nullptr;
    da = floats.take(backward ? rows : 0), dx = floats.take(element != Element::f32 && backward ? rows : 0);
    gates = floats.take(gate_rows), dgates = floats.take(backward ? gate_rows : 0);
    normaliser = floats.take(tokens * s.heads), row_sign = floats.take(tokens * s.heads);
    lay_out(group_floats);
    group_floats.base = floats.take(groups * group_floats.used);
  }
  // Returns the workspace at `slot`; groups that run in sequence may share one.
  GroupWorkspace group(int64_t slot) const {
    Floats floats{group_floats.base + slot * group_floats.used};
    return lay_out(floats);
  }

 private:
  GroupWorkspace lay_out(Floats& floats) const {
    const auto take = [&](bool wanted) { return floats.take(wanted ? group_tokens * group_width : 0); };
    GroupWorkspace g;
    g.q = take(true), g.k = take(true), g.v = take(true), g.h = take(true);
    g.dh = take(backward), g.dq = take(backward), g.dk = take(backward), g.dv = take(backward);
    return g;
  }
};

// Divides the steps of one sample among all threads, each with a number; or among none if each thread has its
// own samples.
struct MixerTeam {
  int members;
  bool shared;  // true if the members work on the same sample
  // Calls body(begin, end, member) over pieces of [0, count).
  template <class Body>
  void over(int64_t count, int member, Body body) const {
    if (!shared) return body(int64_t{0}, count, member);
    parallel_for(members, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i)
        body(count * i / members, count * (i + 1) / members, static_cast<int>(i));
    });
  }
  // Calls body(group, slot, member) for each of `count` groups; groups that may run at once have different
  // slots.
  template <class Body>
  void each(int64_t count, int member, Body body) const {
    over(count, member, [&](int64_t begin, int64_t end, int who) {
      for (int64_t g = begin; g < end; ++g) body(g, shared ? who : 0, who);
    });
  }
};

// Sharing a sample pays off if its steps take longer than the threads' synchronisation.
inline MixerTeam team_for(const MlstmMixerShape& s) {
  constexpr int64_t kWorthSharing = 1 << 14;  // numbers in a (T,C) tensor
  const int threads = num_threads();
  return {threads, threads > 1 && s.batch < threads && tokens_of(s) * s.channels >= kWorthSharing};
}

// Calls body(sample, member) for all samples, divided among the team.
template <class Body>
void over_samples(const MixerTeam& team, int64_t batch, Body body) {
  if (team.shared) {
    for (int64_t b = 0; b < batch; ++b) body(b, 0);
    return;
  }
  parallel_for(team.members, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
      for (int64_t b = batch * i / team.members; b < batch * (i + 1) / team.members; ++b)
        body(b, static_cast<int>(i));
  });
}

}  // namespace tessera::kernels
