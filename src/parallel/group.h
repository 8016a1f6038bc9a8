// Private to this folder: the process group of a World.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "parallel/world.h"

namespace tessera::parallel {

// Thread-safe.
class CollectiveLog {
 public:
  void add(const Collective& done);
  // Returns the traffic by kind, in alphabetical order.
  std::vector<Traffic> traffic() const;
  // As in World.
  void start_recording();
  std::vector<Collective> stop_recording();

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Traffic> traffic_;
  bool recording_ = false;
  std::vector<Collective> recorded_;
};

struct World::Group {
  c10::intrusive_ptr<c10d::ProcessGroup> processes;  // for gradients
  c10::intrusive_ptr<c10d::Backend> backend;         // for everything else, over MPI
  c10::intrusive_ptr<c10d::Backend> nccl;            // null: gradients also use MPI
  std::shared_ptr<CollectiveLog> log;
};

// Returns a store that all processes of the world have joined; the leader's machine serves it on a free port.
c10::intrusive_ptr<c10d::Store> meet(World& world);

// --- mpi_backend.cpp, or absent.cpp in a build without MPI

struct Launched {
  int rank = 0, size = 1, local_rank = 0, local_size = 1;
  // Both use one thread, so all processes start collectives in the same order; they are logged separately.
  c10::intrusive_ptr<c10d::Backend> gradients, others;
};
Launched launch_mpi(const std::shared_ptr<CollectiveLog>& log);
void leave_mpi();
[[noreturn]] void abort_mpi(int exit_code);

c10::intrusive_ptr<c10d::Backend> make_nccl(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                            int gpu, std::shared_ptr<CollectiveLog> log);
// Logs the collectives that the GPU has completed.
void collect_nccl(c10d::Backend& backend);

// The environment variables of a launcher (mpirun, srun, or that of another MPI).

// True if OpenMPI can find the processes started with this one (by mpirun, or by srun with PMIx). Throws a
// usage error if it cannot connect several started processes: each would do the whole run alone, all in one
// directory.
bool launched();

// Throws a usage error if several processes were started but MPI finds only this one.
void refuse_lonely(int mpi_size);

}  // namespace tessera::parallel
