// Which process holds which rows of a tensor.
//
//   const Layout layout(state, world.holders());
//   torch::Tensor part = layout.cut("blocks.0.mlp.fc1.weight", weight);   // this process's rows
//
// A process holds a run of whole rows of the first dimension, which may be empty. One process holds vectors, numbers,
// tensors with fewer rows than processes, and tensors that an update reads as a whole. Which process holds what depends
// on names and shapes alone, and is chosen so that all hold about as many bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "nn/named_tensors.h"
#include "parallel/axis.h"

namespace tessera::parallel {

class Layout {
 public:
  // True for a tensor that one process must hold.
  using HeldWhole = std::function<bool(const std::string& name)>;
  // By name, the process that must hold a tensor whole.
  using Holders = std::map<std::string, int>;

  // The layout for one process, which holds every tensor.
  Layout() = default;
  Layout(const NamedTensors& wholes, const Axis& axis, const HeldWhole& held_whole,
         const Holders& holders = {});

  int processes() const { return processes_; }
  bool has(const std::string& name) const { return held_.contains(name); }
  const std::vector<int64_t>& shape(const std::string& name) const { return held(name).shape; }
  // Returns the rows of each process. Throws Error for an unknown name.
  const std::vector<int64_t>& rows(const std::string& name) const;
  // Returns the process that joins and writes the tensor: one with the most rows, so that all write about as many bytes.
  int owner(const std::string& name) const { return processes_ == 1 ? 0 : held(name).owner; }
  // Returns the number of values in the rows of a process.
  int64_t values(const std::string& name, int process) const;
  // Returns a view of the rows of a process, by default of this one. A number ([]) is [0] in processes that do not hold
  // it.
  torch::Tensor cut(const std::string& name, const torch::Tensor& whole, int process) const;
  torch::Tensor cut(const std::string& name, const torch::Tensor& whole) const;
  // Returns the same of all.
  NamedTensors cut(const NamedTensors& wholes) const;
  // Returns the whole tensor at process `to`, an undefined one elsewhere. Collective over `axis`.
  torch::Tensor join(const std::string& name, const torch::Tensor& part, const Axis& axis, int to) const;

 private:
  struct Held {
    std::vector<int64_t> shape, rows;  // rows: by process
    int owner = 0;
  };
  const Held& held(const std::string& name) const;

  int processes_ = 1, rank_ = 0;
  std::map<std::string, Held> held_;
};

}  // namespace tessera::parallel
