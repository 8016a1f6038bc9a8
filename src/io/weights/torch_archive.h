// PyTorch's weight files (.pth, .pt, .bin, .th: a zip archive with a pickle in it), read without running
// anything.
//
// Dictionaries of numpy's arrays are read from a pickle alone (detectron2's and Detectron's .pkl), not from an archive.
// The tensors of a TorchScript program (OpenAI's files of CLIP) are read by the paths of their modules, its code is not.
// Objects of other programs that a training script kept beside the weights ("state_dict" with a logger's
// history) are left unread. Refused, each with a line that names the file and what is wrong: the old form
// without a zip archive, pickles without a dictionary of weights of its own that name anything
// but tensors, containers and numbers (whole models, code), storages
// that are missing, of another size, big endian or of an unknown type, tensors that reach outside of their
// storage, more than 8 dimensions, sizes that overflow, tensors that expand to far more than the file holds.
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

// A dictionary of the file that holds tensors by name.
struct TorchGroup {
  std::string key;  // where it stands: "" (the file is this dictionary), "state_dict", "model", "ema.shadow"
  std::vector<TensorView> tensors;  // in the file's order; contiguous
};

struct TorchContent {
  std::vector<TorchGroup> groups;
  // Copies of the tensors that do not lie contiguous in the file; views may point in here.
  std::vector<std::unique_ptr<std::byte[]>> copies;
  bool arrays_alone = false;        // a pickle of numpy's arrays, no archive
  std::vector<std::string> unread;  // classes and functions of other programs that it names, the first few
};

// The parser alone, for bytes that did not come from a file (and for fuzzing).
TorchContent parse_torch_archive(std::span<const std::byte> bytes, const std::string& name);

class TorchArchive {
 public:
  explicit TorchArchive(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<TorchGroup>& groups() const { return content_.groups; }
  // The form as people are told it.
  const char* form() const { return content_.arrays_alone ? "pickle of numpy's arrays" : "PyTorch archive"; }
  const std::vector<std::string>& unread() const { return content_.unread; }
  // The dictionary under `key` ("model_ema"). Without a key: the first of "state_dict", "model",
  // "model_state_dict", "module", "net", "network", "backbone", "weights", "params", "model_ema",
  // "state_dict_ema", "teacher", "blobs", "" that exists, or the only one. An error lists the keys there are.
  const TorchGroup& choose(const std::string& key = "") const;
  // Its weights. A prefix that all names share because the model was wrapped ("module.", "_orig_mod.") is
  // taken off. The views live as long as this object.
  std::vector<TensorView> weights(const std::string& key = "") const;

 private:
  std::string path_;
  MappedFile file_;
  TorchContent content_;
};

// True if the bytes start as a zip archive or a pickle does: a file for this reader, or for its error line.
bool looks_like_torch(std::span<const std::byte> bytes);

}  // namespace tessera
