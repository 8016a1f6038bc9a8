// Arrays that NumPy wrote (.npz: a zip archive of .npy entries, stored or deflated): batches of generated images and
// statistics of features, as other programs exchange them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "io/files/file.h"
#include "io/files/zip.h"

namespace tessera {

// The dictionary in front of an array's numbers.
struct NpyHeader {
  DType dtype = DType::f32;
  bool fortran_order = false;
  std::vector<int64_t> shape;
  size_t bytes = 0;  // of the header with all that stands before the numbers
};
// Versions 1.0 to 3.0. Refused with `where` in front: no magic, truncated, another byte order, structured or
// object types, more than 8 dimensions, sizes that overflow, a length that is not that of the numbers behind it.
NpyHeader parse_npy_header(std::span<const std::byte> bytes, const std::string& where);

// One array, row-major. The numbers lie in the file itself, or unpacked in memory that this object keeps.
struct NpzArray {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> memory;

  int64_t numel() const { return static_cast<int64_t>(bytes.size() / size_of(dtype)); }
};

class NpzFile {
 public:
  // Reads the directory alone. Errors as index_zip.
  explicit NpzFile(const std::string& path);

  const std::string& path() const { return path_; }
  std::vector<std::string> names() const;  // without ".npy", in the file's order
  bool holds(const std::string& name) const;
  // Fails where there is no such array (naming those that there are), where its check sum or length is wrong, or
  // where a deflated one unpacks to other than the directory says. Deflated arrays are unpacked into a file
  // without a name, not into memory.
  NpzArray read(const std::string& name) const;
  // The same with every number converted to double; for arrays of at most `most` numbers.
  std::vector<double> read_doubles(const std::string& name, std::vector<int64_t>& shape,
                                   int64_t most = int64_t{1} << 27) const;

 private:
  std::string path_;
  std::shared_ptr<const MappedFile> file_;
  std::vector<ZipEntry> entries_;
};

}  // namespace tessera
