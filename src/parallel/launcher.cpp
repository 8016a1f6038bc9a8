#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "core/error.h"
#include "core/text.h"
#include "parallel/group.h"
#include "parallel/started.h"

namespace tessera::parallel {
namespace {

constexpr const char* kRight =
    "start them with OpenMPI's mpirun or with srun --mpi=pmix --kill-on-bad-exit=1";

int64_t number_in(const char* variable, int64_t otherwise) {
  const char* value = std::getenv(variable);
  return value ? parse_int(value).value_or(otherwise) : otherwise;
}

// Returns the number of processes that srun started; 1 outside Slurm, and in a batch script, which is a single
// process however many SLURM_NTASKS the job has.
int64_t slurm_tasks() {
  if (!std::getenv("SLURM_PROCID")) return 1;
  const bool step = std::getenv("SLURM_STEP_ID") || std::getenv("SLURM_STEPID");
  return number_in("SLURM_STEP_NUM_TASKS", step ? number_in("SLURM_NTASKS", 1) : 1);
}

}  // namespace

int64_t started_processes() {
  return number_in("OMPI_COMM_WORLD_SIZE", std::max(slurm_tasks(), number_in("PMI_SIZE", 1)));
}

bool launched() {
  if (std::getenv("OMPI_COMM_WORLD_SIZE") || std::getenv("PMIX_RANK")) return true;
  if (const int64_t tasks = slurm_tasks(); tasks > 1)
    fail_usage("srun started ", tasks, " processes that cannot find each other (no PMIX_RANK): ", kRight);
  const int64_t size = number_in("PMI_SIZE", 1);
  if (std::getenv("PMI_RANK") && size > 1)
    fail_usage("a launcher of another MPI started ", size, " processes (PMI_RANK): ", kRight);
  return false;
}

void refuse_lonely(int mpi_size) {
  const int64_t started = number_in("OMPI_COMM_WORLD_SIZE", slurm_tasks());
  if (mpi_size == 1 && started > 1)
    fail_usage(started, " processes were started, but MPI finds this one alone: ", kRight,
               " of the MPI that this program was built with");
}

}  // namespace tessera::parallel
