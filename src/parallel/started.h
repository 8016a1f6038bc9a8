// The number of processes that a launcher started, without MPI.
#pragma once

#include <cstdint>

namespace tessera::parallel {

// Returns the number of processes that mpirun or srun started with this one, from environment variables; 1
// without a launcher.
int64_t started_processes();

}  // namespace tessera::parallel
