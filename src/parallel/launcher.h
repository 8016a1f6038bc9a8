// The environment that a launcher (mpirun, srun, another MPI's) left to this process.
#pragma once

namespace tessera::parallel {

// Whether OpenMPI can find the other processes that were started with this one: mpirun's and srun's with
// PMIx. A usage error where several were started that it cannot bring together: each would make the whole run
// alone, all of them into one directory.
bool launched();

// A usage error where several processes were started, but MPI says that this one is alone.
void refuse_lonely(int mpi_size);

}  // namespace tessera::parallel
