// Arrays for other programs, written front to back so that they never stand in memory as a whole.
//
//   ArrayFile file("out.npz", {{"features", DType::f32, {1000, 384}}, {"labels", DType::i64, {1000}}});
//   file.write(bytes);   // all of the first array in row-major order, then all of the next
//   file.commit();
//
// The ending of the path says the form: .npy (NumPy's, one array), .npz (a zip archive of .npy, not
// compressed), .safetensors.
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
  // Whether a path has one of the endings, and whether its form holds several arrays.
  static bool knows(const std::string& path);
  static bool holds_several(const std::string& path);

  // Fails where the path cannot be written. NumPy has no bfloat16.
  ArrayFile(const std::string& path, std::vector<ArraySpec> arrays);
  ~ArrayFile();  // without commit(): nothing is left
  ArrayFile(const ArrayFile&) = delete;

  // Never more bytes than the arrays that are left have; a call may reach into the next array.
  void write(std::span<const std::byte> bytes);
  // Puts the file in place; all arrays must be whole.
  void commit();

 private:
  class Form;
  class Npy;
  class Npz;
  class Safetensors;
  void begin_arrays();

  std::vector<ArraySpec> arrays_;
  size_t current_ = 0;  // the array that is being written
  uint64_t left_ = 0;   // bytes that it still lacks
  std::unique_ptr<Form> form_;
};

}  // namespace tessera
