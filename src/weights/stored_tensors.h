// The tensors of a file by our names, each a tensor of the file or made of several.
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
  std::vector<const TensorView*> views;  // of the parts, then of the copies
  std::vector<int64_t> shape;

  const std::string& name() const { return source.ours; }
  const TensorView& view() const { return *views.front(); }
  // The file's tensor as it is, without a change of its numbers.
  bool is_plain() const;
  // Throws Error if copies differ.
  torch::Tensor read() const;
};

class StoredTensors {
 public:
  // `views` must outlive this. `where` is the file in errors. Throws Error as sources_of, or if parts of ours do not fit
  // together.
  StoredTensors(const std::vector<TensorView>& views, const std::vector<NamePlace>& places,
                std::string where);

  const StoredTensor* find(const std::string& name) const;
  // In the order of the file.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const std::string& where() const { return where_; }

 private:
  std::string where_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, size_t> index_;
};

// Returns views by our names, to write them. Tensors that are made of others are put into `kept`.
std::vector<TensorView> views_of(const std::vector<const StoredTensor*>& stored,
                                 std::vector<torch::Tensor>& kept);
std::vector<std::string> names_of(const std::vector<TensorView>& views);

// Returns the tensor of ours from those of theirs, which `get` gives.
torch::Tensor assemble(const TensorSource& source,
                       const std::function<torch::Tensor(const std::string&)>& get);

// Returns tensors of ours by the names of a program, joined and split as it has them.
NamedTensors by_names_of(const NameTable& table, const NamedTensors& ours);

}  // namespace tessera::train
