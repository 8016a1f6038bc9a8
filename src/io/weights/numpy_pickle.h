// numpy's arrays in a pickle, as detectron2's model zoo keeps its weights.
//
//   numpy.core.multiarray._reconstruct(numpy.ndarray, (0,), b"b"), then the state (1, shape, dtype, column major, bytes);
//   the dtype is numpy.dtype("f4", …) with the state (3, "<", …)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "io/weights/pickle.h"

namespace tessera {

struct NumpyArray {
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  bool column_major = false;         // the first index runs fastest
  std::span<const std::byte> bytes;  // of all elements; they lie in the pickle
};

bool is_numpy_array(const Pickle& pickle, uint32_t place);

// Throws Error with `where` (file and tensor) in front: an unknown or big-endian type, a shape whose size overflows or is not that
// of the bytes.
NumpyArray read_numpy_array(const Pickle& pickle, uint32_t place, const std::string& where);

}  // namespace tessera
