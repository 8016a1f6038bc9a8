// The safetensors format: strict reader (memory map, nothing copied), atomic writer.
//
// Throws an error with the file, tensor and rule: header over 100,000,000 bytes or beyond the file, not
// UTF-8, not a JSON object, nesting, duplicate keys, unknown dtype, more than 8 dimensions, sizes that
// overflow, offsets that are out of range, overlap or leave holes, bytes after the last tensor.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "io/files/file.h"

namespace tessera {

using Metadata = std::map<std::string, std::string>;

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return path_; }
  const Metadata& metadata() const { return metadata_; }
  // Returns views in the order of their offsets, valid for this object's lifetime. Their bytes may be
  // misaligned for the element type: copy them, or check.
  const std::vector<TensorView>& tensors() const { return tensors_; }
  const TensorView* find(const std::string& name) const;

 private:
  std::string path_;
  MappedFile file_;
  Metadata metadata_;
  std::vector<TensorView> tensors_;
  std::map<std::string, size_t> index_;
};

// The parser alone, for bytes in memory (and for fuzzing).
struct SafetensorsContent {
  Metadata metadata;
  std::vector<TensorView> tensors;
};
SafetensorsContent parse_safetensors(std::span<const std::byte> bytes, const std::string& name);

// Returns the bytes of a tensor of this shape; nothing if they do not fit 63 bits.
std::optional<uint64_t> tensor_bytes(std::span<const int64_t> shape, DType dtype);

// Writes the tensors in the given order; the header is padded so that the data is 8-byte aligned. Returns the
// file's XXH3-64. Replaces the target atomically. Calls `before_each` for each tensor; if it throws, the
// target is unchanged.
std::string write_safetensors(const std::string& path, const std::vector<TensorView>& tensors,
                              const Metadata& metadata = {}, const std::function<void()>& before_each = {});
// The same for tensors that exist one at a time: the views have no bytes, `bytes_of` returns those of each in turn.
using BytesOf = std::function<std::span<const std::byte>(const TensorView&)>;
std::string stream_safetensors(const std::string& path, const std::vector<TensorView>& tensors,
                               const Metadata& metadata, const BytesOf& bytes_of);
// The same into a file that the caller commits; errors call it `name`.
void put_safetensors(AtomicFile& file, const std::string& name, const std::vector<TensorView>& tensors,
                     const Metadata& metadata, const BytesOf& bytes_of);
// Returns the bytes of views one by one, after calling `before_each`.
BytesOf bytes_of_views(const std::function<void()>& before_each);

// "F32", "BF16", … as in the header.
const char* safetensors_name(DType dtype);

}  // namespace tessera
