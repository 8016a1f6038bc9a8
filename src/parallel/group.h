// Private to this folder: the process group of a World.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>

#include "parallel/collective_log.h"
#include "parallel/world.h"

namespace tessera::parallel {

struct World::Group {
  c10::intrusive_ptr<c10d::ProcessGroup> processes;  // for gradients
  c10::intrusive_ptr<c10d::Backend> backend;         // for everything else, over MPI
  c10::intrusive_ptr<c10d::Backend> nccl;            // null: gradients also use MPI
  std::shared_ptr<CollectiveLog> log;
};

// Returns a store that all processes of the world have joined; the leader's machine serves it on a free port.
c10::intrusive_ptr<c10d::Store> meet(World& world);

// --- mpi_backend.cpp, or no_mpi.cpp in a build without MPI

struct Launched {
  int rank = 0, size = 1, local_rank = 0, local_size = 1;
  // Both use one thread, so that all processes start collectives in the same order; logged separately.
  c10::intrusive_ptr<c10d::Backend> gradients, others;
};
Launched launch_mpi(const std::shared_ptr<CollectiveLog>& log);
void leave_mpi();
[[noreturn]] void abort_mpi(int exit_code);

}  // namespace tessera::parallel
