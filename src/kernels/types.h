// Plain descriptions of tensors owned by others, for kernels. C headers only: per-ISA files include it.
#pragma once

#include <stdint.h>

namespace tessera::kernels {

// The storage type of numbers; arithmetic is in float.
enum class Element : int32_t { f32, bf16 };

// A matrix (rows, columns) in memory, columns contiguous, stride in elements.
template <class Pointer>
struct RowsOf {
  Pointer data = nullptr;
  Element element = Element::f32;
  int64_t row = 0;
};
using Rows = RowsOf<const void*>;
using RowsOut = RowsOf<void*>;

// A tensor (batch, token, channel) of one number type: channels are contiguous, strides count numbers. Null
// data: none.
template <class Pointer>
struct TokenView {
  Pointer data;
  int64_t batch, token;
};
using FloatRows = TokenView<const float*>;
using FloatRowsOut = TokenView<float*>;

// The same, stored as `element`.
template <class Pointer>
struct TokenRowsOf {
  Pointer data = nullptr;
  Element element = Element::f32;
  int64_t batch = 0, token = 0;
};
using TokenRows = TokenRowsOf<const void*>;
using TokenRowsOut = TokenRowsOf<void*>;

// A tensor (batch, head, token, channel) in any layout: channels are contiguous, the other strides count
// elements and may be negative. A contiguous (batch, token, heads*dim) has head = dim, token = heads*dim.
template <class Pointer>
struct HeadView {
  Pointer data;
  Element element;
  int64_t batch, head, token;
};
using HeadRows = HeadView<const void*>;
using HeadRowsOut = HeadView<void*>;

// One float per (batch, head, token); strides as above.
template <class Pointer>
struct GateView {
  Pointer data;
  int64_t batch, head, token;
};
using Gates = GateView<const float*>;
using GatesOut = GateView<float*>;

}  // namespace tessera::kernels
