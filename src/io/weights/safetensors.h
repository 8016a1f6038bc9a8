// The safetensors format: strict reader (memory map, nothing copied), atomic writer.
//
// Refused, each with a line that names file, tensor and rule: header over 100,000,000 bytes or over the file,
// not UTF-8, not a JSON object, nesting, duplicate keys, unknown dtype, more than 8 dimensions, sizes that
// overflow, offsets out of range, that overlap or leave holes, bytes after the last tensor.
#pragma once

#include <functional>
#include <map>
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
  // In the order of their offsets; the views live as long as this object. Their bytes need not be aligned to
  // the element: copy them, or check.
  const std::vector<TensorView>& tensors() const { return tensors_; }
  const TensorView* find(const std::string& name) const;

 private:
  std::string path_;
  MappedFile file_;
  Metadata metadata_;
  std::vector<TensorView> tensors_;
  std::map<std::string, size_t> index_;
};

// The parser alone, for bytes that did not come from a file (and for fuzzing).
struct SafetensorsContent {
  Metadata metadata;
  std::vector<TensorView> tensors;
};
SafetensorsContent parse_safetensors(std::span<const std::byte> bytes, const std::string& name);

// Writes the tensors in the order given, with the header padded so that data starts 8-byte aligned.
// Returns the file's XXH3-64. The target is replaced atomically. `before_each` tensor is called: what it
// throws leaves the target as it was.
std::string write_safetensors(const std::string& path, const std::vector<TensorView>& tensors,
                              const Metadata& metadata = {}, const std::function<void()>& before_each = {});
// The same into a file, called `name` in errors, that the caller commits.
void put_safetensors(AtomicFile& file, const std::string& name, const std::vector<TensorView>& tensors,
                     const Metadata& metadata, const std::function<void()>& before_each);

// "F32", "BF16", … as in the header.
const char* safetensors_name(DType dtype);

}  // namespace tessera
