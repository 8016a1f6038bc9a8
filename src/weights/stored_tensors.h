// The tensors of a file under our names, each made from one or more tensors of the file.
#pragma once

#include "ops/torch.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "io/weights/weight_file.h"
#include "nn/named_tensors.h"
#include "weights/base/name_table.h"

namespace tessera::train {

bool is_floating(const TensorView& view);

struct StoredTensor {
  TensorSource source;
  std::vector<const TensorView*> views;  // views of parts, then of copies
  std::vector<int64_t> shape;

  const std::string& name() const { return source.ours; }
  const TensorView& view() const { return *views.front(); }
  // True if it is a single tensor of the file, with unchanged values.
  bool is_plain() const;
  // Reads the tensor. Throws Error if copies differ.
  torch::Tensor read() const;
};

class StoredTensors {
 public:
  // `views` must outlive this. `where`: file name for errors. Throws Error like sources_of, or if the shapes
  // of parts do not match.
  StoredTensors(const std::vector<TensorView>& views, const std::vector<NamePlace>& places,
                std::string where);

  const StoredTensor* find(const std::string& name) const;
  // Returns the tensors in the order of the file.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const std::string& where() const { return where_; }

 private:
  std::string where_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, size_t> index_;
};

// Returns views under our names, for writing. `kept` holds the memory of assembled tensors.
std::vector<TensorView> views_of(const std::vector<const StoredTensor*>& stored,
                                 std::vector<torch::Tensor>& kept);
std::vector<std::string> names_of(const std::vector<TensorView>& views);

// Assembles our tensor from theirs, which `get` returns by name.
torch::Tensor assemble(const TensorSource& source,
                       const std::function<torch::Tensor(const std::string&)>& get);

// Returns our tensors under a program's names, joined and split as in that program.
NamedTensors by_names_of(const NameTable& table, const NamedTensors& ours);

}  // namespace tessera::train
