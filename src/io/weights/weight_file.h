// A weight file in any format: safetensors, a PyTorch archive, or an index of several of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/weights/safetensors.h"

namespace tessera {

class WeightFile {
 public:
  // The format follows from the content: "PK" or a pickle is PyTorch's, a name that ends in .json is an
  // index, anything else is safetensors. `key` selects the dictionary of a PyTorch archive ("model_ema"); the
  // default is the usual one (see TorchArchive). Other formats have no keys.
  explicit WeightFile(const std::string& path, const std::string& key = "");
  ~WeightFile();
  WeightFile(const WeightFile&) = delete;

  const std::string& path() const { return path_; }
  // Returns the format, for messages: "safetensors", "safetensors in 3 files", "PyTorch archive, 'model'; it also
  // has 'model_ema'".
  const std::string& form() const { return form_; }
  // True if a PyTorch archive has another dictionary with as many tensors, such as averaged weights.
  bool has_other_weights() const { return other_weights_; }
  const Metadata& metadata() const { return metadata_; }  // empty for PyTorch archives
  // Returns views that are valid for this object's lifetime. Their bytes may be misaligned for the element
  // type.
  const std::vector<TensorView>& tensors() const { return tensors_; }
  // Releases the memory pages of a view, for example after a copy; a later read loads them again. No effect
  // for PyTorch archives.
  void forget(const TensorView& view) const;

 private:
  void open_shards();

  struct Source;
  std::string path_, form_;
  bool other_weights_ = false;
  std::unique_ptr<Source> source_;
  Metadata metadata_;
  std::vector<TensorView> tensors_;
};

// Returns an identifier of the weights in any format: the checksum of the file's content, or of its shards'
// checksums.
std::string checksum_of_weights(const std::string& path);

}  // namespace tessera
