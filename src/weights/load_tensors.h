// From a file into tensors by name: the one loader, and the one check of sizes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "weights/stored_tensors.h"

namespace tessera::train {

struct LoadRules {
  std::string misfit;       // after the file in errors: "does not fit vit_base_patch16_224"
  bool surplus = false;     // tensors that nothing takes are reported, else refused
  bool reshape = false;     // tensors with as many numbers in another number of axes fit
  std::string finite = {};  // not empty: refuses numbers that are not finite, for this reason
  std::function<bool(const std::string& name)> may_miss = {};
  // Makes a tensor of another shape fit; undefined if it cannot.
  std::function<torch::Tensor(const std::string& name, const torch::Tensor& stored,
                              torch::IntArrayRef wanted)>
      fit = {};
};

struct LoadedTensors {
  int64_t count = 0;                 // of tensors that were copied
  std::vector<std::string> missing;  // those that may
  std::vector<std::string> fitted;   // "pos_embed [1, 197, 384] to [1, 65, 384]"
  std::vector<std::string> surplus;  // by the file's names
};

// Copies by name, each tensor when all are known to fit; pages of `file` leave memory then. Throws Error that names the
// first tensors that are missing, left over or of another shape, and their numbers.
LoadedTensors load_tensors(const NamedTensors& targets, const StoredTensors& stored, const LoadRules& rules,
                           const WeightFile* file = nullptr);
// The same checks without a copy. Returns the stored tensors in the order of the targets.
std::vector<const StoredTensor*> match_tensors(const NamedTensors& targets, const StoredTensors& stored,
                                               const LoadRules& rules);

// All tensors of a file of a run, whose names are those of the targets.
void load_own(const NamedTensors& targets, const WeightFile& file);

// Numbers of all tensors.
int64_t numbers_in(const std::vector<TensorView>& views);
// Throws Error if a model with `needed` parameters is far larger than the file: nothing is allocated on the word of its
// metadata or configuration. Interpolated positions may be larger than stored ones.
void check_claims(int64_t needed, const WeightFile& file, const std::string& misfit);

}  // namespace tessera::train
