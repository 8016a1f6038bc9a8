// Arrays for other programs, written front to back, so that they are never in memory as a whole.
//
//   ArrayFile file("out.npz", {{"features", DType::f32, {1000, 384}}, {"labels", DType::i64, {1000}}});
//   file.write(bytes);   // all of the first array in row-major order, then all of the next
//   file.commit();
//
// The extension selects the format: .npy (NumPy, one array), .npz (an uncompressed zip archive of .npy),
// .safetensors.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace tessera {

struct ArraySpec {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
};

class ArrayFile {
 public:
  // True if a path has one of the extensions; true if its format can hold several arrays.
  static bool knows(const std::string& path);
  static bool holds_several(const std::string& path);

  // Throws if the path cannot be written. NumPy has no bfloat16.
  ArrayFile(const std::string& path, std::vector<ArraySpec> arrays);
  ~ArrayFile();  // removes the unfinished file unless committed
  ArrayFile(const ArrayFile&) = delete;

  // Accepts at most the remaining bytes of the arrays; one call may extend into the next array.
  void write(std::span<const std::byte> bytes);
  // Moves the file into place; all arrays must be complete.
  void commit();

 private:
  class Form;
  class Npy;
  class Npz;
  class Safetensors;
  void begin_arrays();

  std::vector<ArraySpec> arrays_;
  size_t current_ = 0;  // the array being written
  uint64_t left_ = 0;   // bytes that it still lacks
  std::unique_ptr<Form> form_;
};

}  // namespace tessera
