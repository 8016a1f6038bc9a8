// Replaces mpi_backend.cpp in a build without MPI.
#include <cstdlib>

#include "core/error.h"
#include "parallel/group.h"

namespace tessera::parallel {

Launched launch_mpi(const std::shared_ptr<CollectiveLog>&) {
  fail(
      "this process was started by a launcher (mpirun, srun), but this build is without MPI: install OpenMPI "
      "(libopenmpi-dev) and build again");
}
void leave_mpi() {}
void abort_mpi(int exit_code) { std::_Exit(exit_code); }

}  // namespace tessera::parallel
