// Loads tensors by name from a file, and checks sizes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "io/weights/safetensors.h"
#include "io/weights/weight_file.h"
#include "nn/named_tensors.h"
#include "weights/stored_tensors.h"

namespace tessera::train {

struct LoadRules {
  std::string misfit;       // follows the file in errors: "does not fit vit_base_patch16_224"
  bool surplus = false;     // reports unused tensors instead of throwing
  bool reshape = false;     // accepts tensors with equal numel and another number of axes
  std::string finite = {};  // if not empty, non-finite numbers throw with this reason
  std::function<bool(const std::string& name)> may_miss = {};
  // Converts a tensor of another shape; returns an undefined tensor if it cannot.
  std::function<torch::Tensor(const std::string& name, const torch::Tensor& stored,
                              torch::IntArrayRef wanted)>
      fit = {};
  // Takes a tensor in place of the target, which may have no memory: for a process that keeps rows of it.
  std::function<void(const std::string& name, const torch::Tensor& value)> take = {};
};

struct LoadedTensors {
  int64_t count = 0;                 // copied tensors
  std::vector<std::string> missing;  // missing tensors that may_miss allows
  std::vector<std::string> fitted;   // "pos_embed [1, 197, 384] to [1, 65, 384]"
  std::vector<std::string> surplus;  // under the file's names
};

// Copies tensors by name after all of them have been checked, and releases the pages of `file`. Throws Error
// with the first tensors that are missing, left over or of another shape, and their number.
LoadedTensors load_tensors(const NamedTensors& targets, const StoredTensors& stored, const LoadRules& rules,
                           const WeightFile* file = nullptr);
// Runs the same checks without copying. Returns the stored tensors in the order of the targets.
std::vector<const StoredTensor*> match_tensors(const NamedTensors& targets, const StoredTensors& stored,
                                               const LoadRules& rules);

// Loads all tensors of a run's file, which has the names of the targets. `take` as in LoadRules.
void load_own(const NamedTensors& targets, const WeightFile& file,
              std::function<void(const std::string& name, const torch::Tensor& value)> take = {});

// Runs the same checks. Returns the file's tensors in the order of the targets.
std::vector<TensorView> own_views(const NamedTensors& targets, const WeightFile& file);

// Returns the total number of elements.
int64_t numbers_in(const std::vector<TensorView>& views);
// Throws Error if a model with `needed` parameters is far larger than the file, so that wrong metadata cannot
// cause a huge allocation. Interpolated positions may be larger than stored ones.
void check_claims(int64_t needed, const WeightFile& file, const std::string& misfit);

// Returns a tensor's element type in files. Throws Error with the tensor's name if safetensors lacks the
// type.
DType element_type(const torch::Tensor& tensor, const std::string& name);

// Writes tensors of any device in their own dtype. Returns the XXH3-64 of the file.
std::string save_tensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata = {});
// The same for tensors that exist one at a time: `next` returns each in turn, with the dtype and shape of that of `like`,
// which may be on the meta device. At the path of an index it writes files of at most `most_bytes` with that index, and
// returns "".
std::string save_each_tensor(const std::string& path, const NamedTensors& like, const Metadata& metadata,
                             const std::function<torch::Tensor()>& next, uint64_t most_bytes = 0);
// Copies a view of a file into a tensor that owns its memory.
torch::Tensor to_tensor(const TensorView& view);
NamedTensors read_tensors(const SafetensorsFile& file);
NamedTensors read_tensors(const WeightFile& file);

// Weights of detectron2's model zoo, Detectron and Caffe, which differ from PyTorch's in norms and channel
// order.

// Returns statistics for a ResNet's norms that are stored as scale and shift only, under the file's names.
// Means of 0 and variances of 1 make a batch norm equivalent up to its epsilon (5e-6). Empty if the file has
// statistics.
NamedTensors absent_statistics(const std::vector<TensorView>& views);

// Returns the name of the convolution that reads the image and its weights [out, 3, rows, columns] with the
// input channels reversed. Throws Error with `path` unless exactly one exists.
std::pair<std::string, torch::Tensor> turned_first_convolution(const std::vector<TensorView>& views,
                                                               const std::string& path);

}  // namespace tessera::train
