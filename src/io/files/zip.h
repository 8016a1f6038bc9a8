// The directory of a zip archive. Entries are not unpacked: PyTorch stores them uncompressed, and readers of
// other archives unpack them (NpzFile).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "io/files/file.h"

namespace tessera {

struct ZipEntry {
  std::string name;
  std::span<const std::byte> bytes;  // as in the archive
  bool stored = true;                // false: compressed
  int method = 0;                    // 8: deflated
  uint64_t unpacked = 0;             // bytes, from the directory
  uint32_t sum = 0;                  // CRC-32 of the unpacked bytes, from the directory
};

// Returns the entries of an archive in directory order (zip64 too). Throws an error with the file and the
// entry: truncated, no directory, encrypted entries, several volumes, entries that are out of range or
// overlap, a repeated name, or a name that differs from the entry's own header.
std::vector<ZipEntry> index_zip(std::span<const std::byte> archive, const std::string& path);

// NumPy arrays (.npz: a zip archive of .npy entries, stored or deflated): batches of generated images and
// feature statistics, as programs exchange them.

// The elements of an array: numbers of its dtype; numbers without a sign, of 2, 4 or 8 bytes (dtype i16, i32 or i64); or
// texts of a fixed length, of bytes or of characters of 4 bytes (dtype u8).
enum class NpyKind : uint8_t { numbers, without_sign, bytes, characters };

// The header dictionary before an array's numbers.
struct NpyHeader {
  DType dtype = DType::f32;
  NpyKind kind = NpyKind::numbers;
  size_t element = 4;  // bytes of an element in the file
  bool fortran_order = false;
  std::vector<int64_t> shape;
  size_t bytes = 0;  // size of the whole header, up to the first number
};
// Parses versions 1.0 to 3.0. Throws with `where` first: no magic, truncated, another byte order, structured
// or object types, more than 8 dimensions, sizes that overflow, a wrong length of the numbers.
NpyHeader parse_npy_header(std::span<const std::byte> bytes, const std::string& where);

// One array, row-major. The numbers are in the file itself, or unpacked in memory that this object owns.
struct NpzArray {
  std::string name;
  DType dtype = DType::f32;
  NpyKind kind = NpyKind::numbers;
  size_t element = 4;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> memory;

  int64_t numel() const { return static_cast<int64_t>(bytes.size() / element); }
  bool is_text() const { return kind == NpyKind::bytes || kind == NpyKind::characters; }
};

class NpzFile {
 public:
  // Reads only the directory. Errors as in index_zip.
  explicit NpzFile(const std::string& path);

  const std::string& path() const { return path_; }
  std::vector<std::string> names() const;  // without ".npy", in the file's order
  bool holds(const std::string& name) const;
  // Throws if the array is missing (listing the existing ones), if its checksum or length is wrong, or if it
  // unpacks to another size than the directory records. Unpacks deflated arrays into a temporary file, not
  // into memory.
  NpzArray read(const std::string& name) const;
  // The same with all numbers converted to double; for arrays of at most `most` numbers.
  std::vector<double> read_doubles(const std::string& name, std::vector<int64_t>& shape,
                                   int64_t most = int64_t{1} << 27) const;
  // Returns an array of texts as UTF-8, without the zeros at their ends.
  std::vector<std::string> read_texts(const std::string& name, std::vector<int64_t>& shape) const;

 private:
  std::string path_;
  std::shared_ptr<const MappedFile> file_;
  std::vector<ZipEntry> entries_;
};

}  // namespace tessera
