// Ranges of the mixer's tensors in the form that its parts use.
#pragma once

#include <algorithm>
#include <cstring>

#include "kernels/memory.h"
#include "kernels/mlstm_mixer/mlstm_mixer.h"
#include "kernels/mlstm_mixer/mlstm_mixer_pack.h"
#include "kernels/mlstm_mixer/parts.h"

namespace tessera::kernels {

// Tokens first … first+count-1, in memory order.
struct TokenRange {
  int64_t first, count;
};

inline const void* advance(const void* data, Element element, int64_t by) {
  return static_cast<const char*>(data) + by * (element == Element::f32 ? 4 : 2);
}
inline void* advance(void* data, Element element, int64_t by) {
  return static_cast<char*>(data) + by * (element == Element::f32 ? 4 : 2);
}

// Returns the same rows from a token and a channel on.
template <class Pointer>
TokenRowsOf<Pointer> rows_from(const TokenRowsOf<Pointer>& rows, int64_t token, int64_t channel) {
  return {advance(rows.data, rows.element, token * rows.token + channel), rows.element, rows.batch,
          rows.token};
}
// Returns channels `channel` … of a range of sample b, in place.
template <class Pointer>
TokenRowsOf<Pointer> rows_of(const TokenRowsOf<Pointer>& rows, int64_t b, int64_t channel,
                             const TokenRange& range) {
  const int64_t offset = b * rows.batch + range.first * rows.token + channel;
  return {advance(rows.data, rows.element, offset), rows.element, 0, rows.token};
}
inline TokenRows to_read(const TokenRowsOut& rows) {
  return {rows.data, rows.element, rows.batch, rows.token};
}

// Allocates `count` rows of C numbers.
inline TokenRowsOut take_rows(Floats& floats, Element element, int64_t count, int64_t channels) {
  const int64_t numbers = count * channels;
  return {floats.take(element == Element::f32 ? numbers : (numbers + 1) / 2), element, 0, channels};
}

// Copies rows [begin, end) of C numbers of the same type; prefetches a few rows ahead.
inline void copy_rows(const TokenRows& from, const TokenRowsOut& to, int64_t channels, int64_t begin,
                      int64_t end) {
  constexpr int64_t kAhead = 4;
  const int64_t bytes = channels * (from.element == Element::f32 ? 4 : 2);
  for (int64_t t = begin; t < end; ++t) {
    if (t + kAhead < end)
      fetch<FetchFor::soon>(advance(from.data, from.element, (t + kAhead) * from.token), bytes);
    std::memcpy(advance(to.data, to.element, t * to.token), advance(from.data, from.element, t * from.token),
                static_cast<size_t>(bytes));
  }
}

}  // namespace tessera::kernels
