// PyTorch's weight files (.pth, .pt, .bin, .th: a zip archive with a pickle in it), read without running
// anything.
//
// Dictionaries of NumPy arrays are read only from a bare pickle (detectron2's and Detectron's .pkl), not from
// an archive. The tensors of a TorchScript program (OpenAI's CLIP files) are read by module path, its code is
// not. Objects of other programs next to the weights ("state_dict" with a logger's history) are not read.
//
// Throws an error with the file and the fault:
// - the old form without a zip archive
// - pickles without a dictionary of weights that name anything but tensors, containers and numbers (whole
//   models, code)
// - storages that are missing, of another size, big-endian or of an unknown type
// - tensors outside their storage, with more than 8 dimensions, or with sizes that overflow
// - tensors that expand to far more than the file's size
//
// There is no fallback.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "io/files/file.h"

namespace tessera {

// A dictionary in the file that maps names to tensors.
struct TorchGroup {
  std::string key;  // its path: "" (the file is this dictionary), "state_dict", "model", "ema.shadow"
  std::vector<TensorView> tensors;  // in the file's order; contiguous
};

struct TorchContent {
  std::vector<TorchGroup> groups;
  // Copies of tensors that are not contiguous in the file; views may point here.
  std::vector<std::unique_ptr<std::byte[]>> copies;
  bool arrays_alone = false;        // a pickle of NumPy arrays, not an archive
  std::vector<std::string> unread;  // the first few classes and functions of other programs in the file
};

// The parser alone, for bytes in memory (and for fuzzing).
TorchContent parse_torch_archive(std::span<const std::byte> bytes, const std::string& name);

class TorchArchive {
 public:
  explicit TorchArchive(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<TorchGroup>& groups() const { return content_.groups; }
  // Returns the format, for messages.
  const char* form() const { return content_.arrays_alone ? "pickle of numpy's arrays" : "PyTorch archive"; }
  const std::vector<std::string>& unread() const { return content_.unread; }
  // Returns the dictionary under `key` ("model_ema"). Without a key: the first of "state_dict", "model",
  // "model_state_dict", "module", "net", "network", "backbone", "weights", "params", "model_ema",
  // "state_dict_ema", "teacher", "blobs", "" that exists, or the only one. Throws an error that lists the
  // existing keys.
  const TorchGroup& choose(const std::string& key = "") const;
  // Returns its weights, valid for this object's lifetime. Removes a prefix shared by all names of a wrapped
  // model ("module.", "_orig_mod.").
  std::vector<TensorView> weights(const std::string& key = "") const;

 private:
  std::string path_;
  MappedFile file_;
  TorchContent content_;
};

// True if the bytes start like a zip archive or a pickle: a file for this reader, or for its error message.
bool looks_like_torch(std::span<const std::byte> bytes);

}  // namespace tessera
