// Rows of the mLSTM's tensors for products of bfloat16 pairs. Per-ISA, AMX and AVX512_BF16.
#pragma once

#include "kernels/mlstm/mlstm_parts.h"
#include "kernels/pair_tiles.h"

namespace tessera::kernels::TESSERA_ISA {

// Returns rows start … of a head, in walking order.
template <class T>
TESSERA_INLINE NumberRows<T> rows_of(const HeadWalk<const void*>& from, int64_t start, int64_t count,
                                     int64_t width) {
  return {(const T*)from.data + start * from.stride, from.stride, count, width};
}

}  // namespace tessera::kernels::TESSERA_ISA
