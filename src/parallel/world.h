// The processes that work on one run: alone, or as many as mpirun or srun started.
//
//   const auto world = parallel::World::join();
//   world->sum(tensor);                       // every process must call it
//
// Everything but rank(), size(), traffic(), recording and abort() is collective: all processes call it, in
// the same order.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tessera::parallel {

// Kinds of collectives: the gradients' all-reduce, sums of measurements and decisions, the leader's bytes to
// all, everyone's bytes to all, rows from each process to the next.
inline constexpr const char *kGradients = "gradients", *kSum = "sum", *kBroadcast = "broadcast",
                            *kGather = "gather", *kRing = "ring";

// The calls and bytes of the collectives of one kind so far in this process.
struct Traffic {
  std::string kind;
  int64_t calls = 0, bytes = 0;  // bytes: of this process' tensors
  double seconds = 0;            // of all of them together, as in Collective
};

// One collective that is done.
struct Collective {
  const char* kind = "";
  int64_t bytes = 0;  // of this process' tensors
  // Handed over at steady_seconds(). On the CPU until it was complete, computing that went on beside it
  // included; on a GPU the time that the GPU took.
  double began = 0, seconds = 0;
};

// As the system calls it.
std::string name_of_machine();

class World {
 public:
  // Starts MPI where a launcher started this process; once a program. An error where there is a launcher and
  // this build is without MPI, and where several processes were started that MPI does not bring together.
  //
  // A collective that does not end within TESSERA_WAIT_SECONDS (600) because a process does not come to it
  // (stopped, stuck) is an error in those that wait, which names it and them.
  static std::unique_ptr<World> join();
  static std::unique_ptr<World> alone();
  ~World();  // leaves; waits for the others
  World(const World&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  int local_size() const { return local_size_; }  // processes on this machine
  int local_rank() const { return local_rank_; }  // this one's number among them
  bool leader() const { return rank_ == 0; }

  // In place; float, double or integers on the CPU, contiguous. Every process gets the same bits.
  void sum(const torch::Tensor& values);
  bool any(bool mine);
  // The leader's bytes.
  std::string broadcast(const std::string& bytes);
  // Everyone's bytes by rank.
  std::vector<std::string> gather(const std::string& bytes);
  // Begins to hand `rows` to the process of the next rank, which for the last is the first, and to fill `into` with those
  // of the one before; the function that it returns waits for the end. Tensors as for sum, of one row or more in all
  // but the first dimension; neither may change until then. An error where this process is alone.
  std::function<void()> pass_on(const torch::Tensor& rows, const torch::Tensor& into);
  std::vector<Traffic> traffic() const;  // by kind, in alphabetical order
  // Between the two every collective of this process is kept; stop_recording() gives them.
  void start_recording();
  std::vector<Collective> stop_recording();

  // The gradients go over GPUs from here on: this process' is the one of that number. Needs NCCL (gpus.h).
  void take_gpu(int index);

  // Ends all processes at once, without the others' help.
  [[noreturn]] void abort(int exit_code);

  // For the gradients (data_parallel.h): null where this process is alone.
  struct Group;
  Group* group() const { return group_.get(); }

 private:
  World();
  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1;
  std::unique_ptr<Group> group_;
};

}  // namespace tessera::parallel
