// Pieces of the mixer's tensors as the floats that its parts work on.
#pragma once

#include <algorithm>

#include "kernels/fetch.h"
#include "kernels/mlstm_mixer/mlstm_mixer.h"
#include "kernels/mlstm_mixer/parts.h"

namespace tessera::kernels {

// Tokens first … first+count-1, in the order of memory.
struct Piece {
  int64_t first, count;
};

// Columns first … first+count-1 of a tensor.
struct Columns {
  int64_t first, count;
};

// Tokens [begin, end) of a piece of sample b, as floats in rows of `columns.count`. A few rows ahead are
// asked for.
inline void copy_floats(const MixerFunctions& parts, const StoredRows& from, int64_t b,
                        const Columns& columns, const Piece& piece, float* copy, int64_t begin, int64_t end) {
  const int64_t offset = b * from.batch + piece.first * from.token + columns.first;
  const int64_t size = from.element == Element::f32 ? 4 : 2, ahead = 4;
  for (int64_t t = begin; t < end; ++t) {
    const int64_t at = offset + t * from.token;
    if (t + ahead < end)
      fetch<FetchFor::soon>(static_cast<const char*>(from.data) + (at + ahead * from.token) * size,
                            columns.count * size);
    float* to = copy + t * columns.count;
    if (from.element == Element::f32)
      std::copy_n(static_cast<const float*>(from.data) + at, columns.count, to);
    else
      parts.widen(static_cast<const uint16_t*>(from.data) + at, to, columns.count);
  }
}

// All tokens of a piece as floats: in place, or copied where they are stored in another form.
inline FloatRows floats_of(const MixerFunctions& parts, const StoredRows& from, int64_t b,
                           const Columns& columns, const Piece& piece, float* copy) {
  if (from.element == Element::f32)
    return {static_cast<const float*>(from.data) + b * from.batch + piece.first * from.token + columns.first,
            0, from.token};
  copy_floats(parts, from, b, columns, piece, copy, 0, piece.count);
  return {copy, 0, columns.count};
}
inline FloatRowsOut floats_to(const StoredRowsOut& to, int64_t b, const Columns& columns, const Piece& piece,
                              float* copy) {
  if (to.element != Element::f32) return {copy, 0, columns.count};
  return {static_cast<float*>(to.data) + b * to.batch + piece.first * to.token + columns.first, 0, to.token};
}
inline void store_floats(const MixerFunctions& parts, const StoredRowsOut& to, int64_t b,
                         const Columns& columns, const Piece& piece, const float* copy, int64_t begin,
                         int64_t end) {
  if (to.element == Element::f32) return;
  const int64_t offset = b * to.batch + piece.first * to.token + columns.first;
  for (int64_t t = begin; t < end; ++t)
    parts.narrow(copy + t * columns.count, static_cast<uint16_t*>(to.data) + offset + t * to.token,
                 columns.count);
}

// The same columns where they lie in bfloat16.
template <class To, class Stored>
To half_of(const Stored& rows, int64_t b, const Columns& columns, const Piece& piece) {
  using Pointer = decltype(To::data);
  return {static_cast<Pointer>(rows.data) + b * rows.batch + piece.first * rows.token + columns.first, 0,
          rows.token};
}

}  // namespace tessera::kernels
