/* MPI_Allreduce of float sums, as the peer of `tessera doctor --cluster`: prints a line "BYTES SECONDS" for each size, the mean over
   processes of each one's median. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static double median_of(float* values, int count, double limit) {
  enum { kMost = 4096, kLeast = 5 };
  static double seconds[kMost];
  double total = 0;
  int done = 0, more = 1;
  while (more) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double began = MPI_Wtime();
    MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    seconds[done] = MPI_Wtime() - began;
    total += seconds[done++];
    more = done < kLeast || (total < limit && done < kMost);
    MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
  }
  qsort(seconds, (size_t)done, sizeof *seconds, by_value);
  return seconds[done / 2];
}

int main(int argc, char** argv) {
  static const long sizes[] = {1L << 16, 1L << 20, 1L << 26};
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    float* values = calloc((size_t)sizes[i], 1);
    double mine = median_of(values, (int)(sizes[i] / 4), 0.15), sum = 0;
    MPI_Reduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%ld %.9f\n", sizes[i], sum / size);
    free(values);
  }
  return MPI_Finalize();
}
