// Replaces mpi_backend.cpp in a build without MPI, and nccl.cpp in one without NCCL.
#include <cstdlib>

#include "core/error.h"
#include "parallel/group.h"
#include "parallel/world.h"

namespace tessera::parallel {

#ifndef TESSERA_HAS_MPI
Launched launch_mpi(const std::shared_ptr<CollectiveLog>&) {
  fail(
      "this process was started by a launcher (mpirun, srun), but this build is without MPI: install OpenMPI "
      "(libopenmpi-dev) and build again");
}
void leave_mpi() {}
void abort_mpi(int exit_code) { std::_Exit(exit_code); }
#endif

#ifndef USE_C10D_NCCL
bool has_nccl() { return false; }
std::string name_of_gpu(int) { return ""; }
c10::intrusive_ptr<c10d::Backend> make_nccl(c10::intrusive_ptr<c10d::Store>, int, int, int,
                                            std::shared_ptr<CollectiveLog>) {
  fail("this build is without NCCL: several processes train on the CPU, with --device cpu");
}
void collect_nccl(c10d::Backend&) {}
#endif

}  // namespace tessera::parallel
