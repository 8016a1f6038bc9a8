// Passes as graphs of a GPU's calls: the host starts one graph instead of some hundred kernels. Off unless TESSERA_GPU=graphs
// (kernels/gpu/graphs.h).
//
// A graph computes with the memory that it was recorded with. So a pass copies its inputs there, and its results from there;
// weights that changed in place are seen, weights in other memory make new graphs.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <list>
#include <mutex>
#include <string>
#include <vector>

namespace tessera::models {

class GraphedPass {
 public:
  static constexpr int64_t kWarmCalls =
      2;  // before a graph is recorded: libraries allocate in their first calls
  static constexpr size_t kMostGraphs = 8;     // the one that was unused for longest is dropped
  static constexpr int64_t kMostDropped = 16;  // after this many, shapes change too often for graphs

  using Tensors = std::vector<torch::Tensor>;
  // Maps tensors to one of a shape that only those of the inputs determine.
  using Pass = std::function<torch::Tensor(const torch::Tensor& input)>;
  using PassOfAll = std::function<torch::Tensor(const Tensors& inputs)>;
  using Modules = std::initializer_list<torch::nn::Module*>;
  // Runs a forward and a backward pass. Returns tensors without gradients, of shapes that only those of the inputs determine.
  using Step = std::function<Tensors(const Tensors& inputs)>;

  GraphedPass();
  ~GraphedPass();
  GraphedPass(const GraphedPass&) = delete;
  GraphedPass& operator=(const GraphedPass&) = delete;

  // Returns pass(input); by a graph if one was recorded for this shape, type and the thread's settings. A graph keeps `pass`, which
  // reads no tensors but those of `modules`.
  torch::Tensor run(const torch::Tensor& input, const Modules& modules, const Pass& pass);
  torch::Tensor run(const Tensors& inputs, const Modules& modules, const PassOfAll& pass);
  // Returns step(inputs), likewise. The parameters of the modules have no gradients before, and those of the step afterwards: those
  // of a graph are in its memory, so that the next step overwrites them. Buffers change once. `numbers` are all else that the step
  // depends on. One that draws random numbers or sends tables to the device gets no graph (core/recording.h).
  Tensors run_step(const Tensors& inputs, const std::vector<int64_t>& numbers,
                   const std::vector<torch::nn::Module*>& modules, const Step& step);
  // Drops all graphs, for modules that got other tensors.
  void forget();

  // Why the last call started the kernels one by one; empty after a replay.
  const std::string& reason() const { return reason_; }
  // The same of the last call that was not among the first of its shape.
  const std::string& refusal() const { return refusal_; }
  int64_t captures() const { return captures_; }
  size_t graphs() const { return entries_.size(); }

 private:
  struct Entry;
  struct Call;
  Tensors computed(const Call& call);
  Entry* entry_of(const Call& call);
  void record(Entry& entry, const Call& call);
  Tensors replayed(Entry& entry, const Call& call);

  std::mutex mutex_;
  std::list<Entry> entries_;  // the last one used is first
  std::string reason_, refusal_;
  int64_t captures_ = 0, dropped_ = 0;
};

}  // namespace tessera::models
