// NumPy arrays in a pickle, as in detectron2's model zoo.
//
// numpy.core.multiarray._reconstruct(numpy.ndarray, (0,), b"b"), then the state (1, shape, dtype, column
// major, bytes); the dtype is numpy.dtype("f4", …) with the state (3, "<", …)
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
  bool column_major = false;         // the first index varies fastest
  std::span<const std::byte> bytes;  // all elements; the memory is the pickle's
};

bool is_numpy_array(const Pickle& pickle, uint32_t place);

// Throws Error that starts with `where` (file and tensor): an unknown or big-endian type, a shape that
// overflows or does not match the bytes.
NumpyArray read_numpy_array(const Pickle& pickle, uint32_t place, const std::string& where);

}  // namespace tessera
