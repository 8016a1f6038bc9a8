// The division of processes over named axes.
//
//   [parallel]
//   replicate = "auto"   # as many as the other axes leave
//   shard = 2
//   zero = 1             # what the processes of shard x tensor divide (shards.h)
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/config.h"

namespace tessera::parallel {

// Axes from the outermost to the innermost: consecutive processes differ in `tensor` first.
enum class AxisName { pipeline, replicate, shard, context, tensor };
inline constexpr size_t kAxes = 5;

enum class Offloaded { none, optimiser };

// [parallel]: the degree of each axis, an integer or "auto", the stage of ZeRO, and the state that is in main memory.
struct ParallelConfig {
  Value replicate = "auto", shard = 1, context = 1, tensor = 1, pipeline = 1;
  int64_t zero = 0;
  Offloaded offload = Offloaded::none;

  template <class V>
  void visit(V& v) {
    v("replicate", replicate, "processes that hold all weights and share a batch, or \"auto\"");
    v("shard", shard, "processes that share a batch and divide weights, or \"auto\"");
    v("context", context, "processes that divide the tokens of a sample, or \"auto\"");
    v("tensor", tensor, "processes with the same samples that divide heads and hidden channels, or \"auto\"");
    v("pipeline", pipeline, "processes with the same samples that each hold a range of blocks, or \"auto\"");
    v("zero", zero, between(0, 3),
      "divided over shard x tensor (by default all processes): 0 = nothing, 1 = the optimiser's state and "
      "the moving "
      "average, 2 = gradients too, 3 = weights too");
    v("offload", offload,
      "optimiser = its state is in main memory, where the CPU updates the weights of a GPU; none");
  }
};

// The degrees and places of processes. Samples are divided over replicate x shard.
class Mesh {
 public:
  // All processes on `replicate`.
  explicit Mesh(int64_t processes = 1);
  // With parallel.zero and no parallel.shard, `shard` takes the processes that the other axes leave. Throws a
  // usage error for a degree that is neither a positive integer nor "auto", for two "auto", and for degrees with
  // another product than `processes` (with the nearest number that is possible).
  Mesh(const ParallelConfig& config, int64_t processes);

  int64_t degree(AxisName axis) const { return degrees_[static_cast<size_t>(axis)]; }
  int64_t processes() const;
  // Returns the place of a process on each axis, outermost first.
  std::array<int64_t, kAxes> place_of(int64_t rank) const;
  // Returns the processes that differ from `rank` on these axes only, in order.
  std::vector<int> group_of(int64_t rank, const std::vector<AxisName>& axes) const;

 private:
  std::array<int64_t, kAxes> degrees_ = {1, 1, 1, 1, 1};
};

// Throws a usage error for a degree that is neither a positive integer nor "auto", and for two "auto".
void check_degrees(const ParallelConfig& config);

// Throws a usage error that names the first axis with a degree above 1 that training does not divide: `context`, `shard`
// without parallel.zero, and `pipeline` next to `tensor` or parallel.zero.
void require_trainable(const ParallelConfig& config, const Mesh& mesh);
// The same before the number of processes is known.
void require_trainable(const ParallelConfig& config);

}  // namespace tessera::parallel

namespace tessera {
template <>
struct EnumNames<parallel::Offloaded> {
  static constexpr std::array names = {"none", "optimiser"};
};
template <>
struct EnumNames<parallel::AxisName> {
  static constexpr std::array names = {"pipeline", "replicate", "shard", "context", "tensor"};
};
}  // namespace tessera
