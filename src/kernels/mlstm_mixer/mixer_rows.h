// Pieces of the mixer's tensors as its parts take them: floats, or bfloat16 where they are stored so.
#pragma once

#include <algorithm>

#include "kernels/fetch.h"
#include "kernels/mlstm_mixer/mlstm_mixer.h"
#include "kernels/mlstm_mixer/mlstm_mixer_pack.h"
#include "kernels/mlstm_mixer/parts.h"

namespace tessera::kernels {

// Tokens first … first+count-1, in the order of memory.
struct Piece {
  int64_t first, count;
};

// Rows as the mixer's parts take them: floats, or bfloat16; the other ones have no data.
template <class Floats, class Halves>
struct MixerRowsOf {
  Floats floats{};
  Halves halves{};
  MixerRowsOf from(int64_t token, int64_t channel) const {
    MixerRowsOf rows = *this;
    if (floats.data) rows.floats.data += token * floats.token + channel;
    if (halves.data) rows.halves.data += token * halves.token + channel;
    return rows;
  }
};
using MixerRows = MixerRowsOf<FloatRows, HalfRows>;
using MixerRowsOut = MixerRowsOf<FloatRowsOut, HalfRowsOut>;

// Channels `channel` … of a piece of sample b, where they lie.
template <class To, class Stored>
To rows_of(const Stored& rows, int64_t b, int64_t channel, const Piece& piece) {
  const int64_t offset = b * rows.batch + piece.first * rows.token + channel;
  To to;
  if (rows.element == Element::f32)
    to.floats = {static_cast<decltype(to.floats.data)>(rows.data) + offset, 0, rows.token};
  else
    to.halves = {static_cast<decltype(to.halves.data)>(rows.data) + offset, 0, rows.token};
  return to;
}

// New memory for `count` rows of C numbers.
inline MixerRowsOut take_rows(Floats& floats, Element element, int64_t count, int64_t channels) {
  MixerRowsOut rows;
  if (element == Element::f32)
    rows.floats = {floats.take(count * channels), 0, channels};
  else
    rows.halves = {floats.take_halves(count * channels), 0, channels};
  return rows;
}
inline MixerRows to_read(const MixerRowsOut& rows) {
  return {{rows.floats.data, rows.floats.batch, rows.floats.token},
          {rows.halves.data, rows.halves.batch, rows.halves.token}};
}

// Rows [begin, end) of C numbers; a few rows ahead are asked for.
template <class Number>
void copy_rows(const TokenView<const Number*>& from, const TokenView<Number*>& to, int64_t channels,
               int64_t begin, int64_t end) {
  constexpr int64_t kAhead = 4;
  for (int64_t t = begin; t < end; ++t) {
    if (t + kAhead < end)
      fetch<FetchFor::soon>(from.data + (t + kAhead) * from.token,
                            channels * static_cast<int64_t>(sizeof(Number)));
    std::copy_n(from.data + t * from.token, channels, to.data + t * to.token);
  }
}

}  // namespace tessera::kernels
