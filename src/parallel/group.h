// Inside this folder: the process group behind a World.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "parallel/world.h"

namespace tessera::parallel {

struct World::Group {
  c10::intrusive_ptr<c10d::ProcessGroup> processes;
  c10::intrusive_ptr<c10d::Backend> backend;
};

// --- mpi_backend.cpp, or where the build is without MPI, no_mpi.cpp

struct Launched {
  int rank = 0, size = 1, local_size = 1;
  c10::intrusive_ptr<c10d::Backend> backend;  // null: alone
};
Launched launch_mpi();
void leave_mpi();
[[noreturn]] void abort_mpi(int exit_code);
Traffic mpi_traffic(const c10d::Backend& backend);
std::vector<Collective> mpi_record(c10d::Backend& backend);

}  // namespace tessera::parallel
