// The processes of one run: a single one, or all that mpirun or srun started.
//
//   const auto world = parallel::World::join();
//   world->sum(tensor);                       // every process must call it
//
// All functions except rank(), size(), traffic(), recording and abort() are collective: all processes call
// them, in the same order.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tessera::parallel {

// Kinds of collectives: the all-reduce of gradients, sums of metrics and decisions, broadcasts of the
// leader's bytes, gathers of all processes' bytes, and rows sent from each process to the next.
inline constexpr const char *kGradients = "gradients", *kSum = "sum", *kBroadcast = "broadcast",
                            *kGather = "gather", *kRing = "ring";

// The calls and bytes of one kind of collectives so far in this process.
struct Traffic {
  std::string kind;
  int64_t calls = 0, bytes = 0;  // bytes: of this process's tensors
  double seconds = 0;            // total seconds of the calls, as in Collective
};

// A completed collective.
struct Collective {
  const char* kind = "";
  int64_t bytes = 0;  // in this process's tensors
  // `began`: submission time, from steady_seconds(). `seconds`: on the CPU the time until completion,
  // including overlapped computation; on a GPU the GPU time.
  double began = 0, seconds = 0;
};

// Returns the machine's host name.
std::string name_of_machine();

class World {
 public:
  // Starts MPI if a launcher started this process; once per program. Throws if there is a launcher but this
  // build has no MPI, or if MPI does not connect the started processes.
  //
  // If a process does not join a collective within TESSERA_WAIT_SECONDS (600) because it is stopped or stuck,
  // the waiting processes throw an error with the collective and the missing processes.
  static std::unique_ptr<World> join();
  static std::unique_ptr<World> alone();
  ~World();  // leaves; waits for the others
  World(const World&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  int local_size() const { return local_size_; }  // processes on this machine
  int local_rank() const { return local_rank_; }  // rank among them
  bool leader() const { return rank_ == 0; }

  // Sums in place; contiguous floats, doubles or integers on the CPU. All processes get the same bits.
  void sum(const torch::Tensor& values);
  bool any(bool mine);
  // Returns the leader's bytes.
  std::string broadcast(const std::string& bytes);
  // Returns the bytes of all processes by rank.
  std::vector<std::string> gather(const std::string& bytes);
  // Starts sending `rows` to the next rank (from the last to the first) and receiving the previous rank's
  // rows in `into`. Returns a function that waits for completion; neither tensor may change before that.
  // Tensors as for sum, with at least one row and equal shapes except in the first dimension. Throws if this
  // process is alone.
  std::function<void()> pass_on(const torch::Tensor& rows, const torch::Tensor& into);
  std::vector<Traffic> traffic() const;  // by kind, in alphabetical order
  // start_recording() starts to record all collectives of this process; stop_recording() returns them.
  void start_recording();
  std::vector<Collective> stop_recording();

  // From now on, gradients are exchanged between GPUs; `index` is this process's. Needs NCCL (gpus.h).
  void take_gpu(int index);

  // Ends all processes at once, without their cooperation.
  [[noreturn]] void abort(int exit_code);

  // For gradients (data_parallel.h); null if this process is alone.
  struct Group;
  Group* group() const { return group_.get(); }

 private:
  World();
  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1;
  std::unique_ptr<Group> group_;
};

// Returns the GPU of process `local_rank` of the `local_size` on this machine, which sees `gpus` GPUs. This
// is GPU `local_rank`, or the only one if the launcher gives each process its own (srun --gpus-per-task=1);
// else -1.
int gpu_of(int local_rank, int local_size, int gpus);

// True if this build can exchange gradients between GPUs.
bool has_nccl();
// Returns a name that is the same in all processes with this GPU, and unique to it; "" without NCCL.
std::string name_of_gpu(int index);

// Returns why the processes, by rank, cannot train on the GPUs with these names ("" for none); empty if they
// can.
std::string why_no_gpu_each(std::span<const std::string> names);

}  // namespace tessera::parallel
