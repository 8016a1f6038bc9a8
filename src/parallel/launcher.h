// The environment variables of a launcher (mpirun, srun, or that of another MPI).
#pragma once

namespace tessera::parallel {

// True if OpenMPI can find the processes started with this one (by mpirun, or by srun with PMIx). Throws a
// usage error if several were started that it cannot connect: each would do the whole run alone, all in one
// directory.
bool launched();

// Throws a usage error if several processes were started but MPI finds only this one.
void refuse_lonely(int mpi_size);

}  // namespace tessera::parallel
