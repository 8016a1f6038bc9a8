// A file of weights, whatever its form: safetensors, a PyTorch archive, or the index of several of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/weights/safetensors.h"

namespace tessera {

class WeightFile {
 public:
  // The form follows from the content: "PK" or a pickle is PyTorch's, a name that ends in .json an index, all
  // else safetensors. `key` says which dictionary of a PyTorch archive is meant ("model_ema"); without it the
  // usual one is taken (see TorchArchive). The other forms have none.
  explicit WeightFile(const std::string& path, const std::string& key = "");
  ~WeightFile();
  WeightFile(const WeightFile&) = delete;

  const std::string& path() const { return path_; }
  // The form as people are told it: "safetensors", "safetensors in 3 files", "PyTorch archive, 'model' of
  // 'model', 'model_ema'".
  const std::string& form() const { return form_; }
  const Metadata& metadata() const { return metadata_; }  // empty for PyTorch archives
  // The views live as long as this object. Their bytes need not be aligned to the element.
  const std::vector<TensorView>& tensors() const { return tensors_; }
  // The view's pages may leave memory, as it was copied: reading it again reads the file again. Of PyTorch archives nothing.
  void forget(const TensorView& view) const;

 private:
  void open_shards();

  struct Source;
  std::string path_, form_;
  std::unique_ptr<Source> source_;
  Metadata metadata_;
  std::vector<TensorView> tensors_;
};

// Tells the weights of files apart, whatever the form: the checksum of the file's content, or of those of its shards.
std::string checksum_of_weights(const std::string& path);

}  // namespace tessera
