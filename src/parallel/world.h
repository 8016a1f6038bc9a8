// The processes of one run: a single one, or all that a launcher started.
//
//   const auto world = parallel::World::join();
//   world->lay_out(recipe.parallel);
//   world->samples().sum(tensor);             // every process must call it
//
// Gloo carries tensors on CPUs, NCCL those on GPUs. All functions except rank(), size(), traffic(), recording,
// blame() and end() are collective: all processes call them, in the same order.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "parallel/axis.h"
#include "parallel/mesh.h"
#include "parallel/traffic.h"

namespace tessera::parallel {

// Returns the machine's host name.
std::string name_of_machine();

class World {
 public:
  // Joins the processes that a launcher started (launcher.h); once per program. Throws a usage error for
  // contradicting variables and for different programs or versions of LibTorch, Error if no process serves the store
  // within TESSERA_WAIT_SECONDS (600), and Lost if processes do not come or do not connect within that time.
  static std::unique_ptr<World> join();
  static std::unique_ptr<World> alone();
  ~World();  // waits for the others, then leaves
  World(const World&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  int local_size() const { return local_size_; }  // processes on this machine
  int local_rank() const { return local_rank_; }  // rank among them
  bool leader() const { return rank_ == 0; }
  // Names of the machines of all processes, by rank.
  const std::vector<std::string>& machines() const { return machines_; }
  // The launcher's name; "" for a process that is alone.
  const std::string& launcher() const { return launcher_; }

  // Divides the processes over axes; at first all are on `replicate`. Throws as Mesh does.
  void lay_out(const ParallelConfig& config);
  const Mesh& mesh() const { return mesh_; }
  // All processes; those that differ on one axis; those that divide a batch (replicate x shard); those that divide one copy
  // of the weights and their state (pipeline x shard x tensor).
  const Axis& all() const { return all_; }
  const Axis& axis(AxisName name) const { return axes_[static_cast<size_t>(name)]; }
  const Axis& samples() const { return samples_; }
  const Axis& holders() const { return holders_; }
  // This process and its neighbour on the pipeline: an axis for activations, one for their gradients. A process without
  // that neighbour is alone.
  struct Pair {
    Axis forwards, backwards;
  };
  const Pair& previous() const { return previous_; }
  const Pair& next() const { return next_; }

  // Over all processes: sums in place, as Axis::sum.
  void sum(const torch::Tensor& values) { all_.sum(values); }
  bool any(bool mine);
  // Returns the leader's bytes.
  std::string broadcast(const std::string& bytes);
  // Returns the bytes of all processes by rank.
  std::vector<std::string> gather(const std::string& bytes);

  std::vector<Traffic> traffic() const;  // by axis and kind, in alphabetical order
  // start_recording() starts to record all exchanges of this process; stop_recording() returns them.
  void start_recording();
  std::vector<Collective> stop_recording();

  // Makes exchanges of tensors on GPUs possible; `index` is this process's GPU. Throws Error in a build without NCCL
  // (has_nccl) or for a process that is alone.
  void take_gpu(int index);

  // Publishes why this process fails, so that the others name it.
  void blame(const std::string& line);
  // Ends this process at once; its launcher ends the others.
  [[noreturn]] static void end(int exit_code);

  // For gradients (data_parallel.h); null if this process is alone.
  struct Group;
  Group* group() const { return group_.get(); }

 private:
  World();
  void name_machines();
  // `own_engines`: its exchanges take place next to those of other axes with the same members.
  Axis make_axis(const std::string& name, const std::vector<int>& members, bool own_engines = false);
  // Returns the axis of processes that differ on any of these; that of one of them if the others have one process.
  Axis make_product(const std::string& name, const std::vector<AxisName>& names);
  Pair make_pair(const std::vector<int>& members);
  void make_axes();

  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1;
  std::vector<std::string> machines_;
  std::string launcher_;
  Mesh mesh_;
  std::unique_ptr<Group> group_;
  Axis all_, samples_, holders_;
  Pair previous_, next_;
  std::vector<Axis> axes_;  // by AxisName
};

// Returns the GPU of process `local_rank` of the `local_size` on this machine, which sees `gpus` GPUs. This
// is GPU `local_rank`, or the only one if the launcher gives each process its own (srun --gpus-per-task=1);
// else -1.
int gpu_of(int local_rank, int local_size, int gpus);

// True if this build can exchange tensors between GPUs.
bool has_nccl();
// Returns a name that is the same in all processes with this GPU, and unique to it; "" without NCCL.
std::string name_of_gpu(int index);

// Returns why the processes, by rank, cannot train on the GPUs with these names ("" for none); empty if they
// can.
std::string why_no_gpu_each(std::span<const std::string> names);

}  // namespace tessera::parallel
