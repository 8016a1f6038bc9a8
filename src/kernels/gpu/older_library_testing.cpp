// A library with the table of an older version, for the test of loading.
#include "kernels/gpu/table.h"

extern "C" const tessera::kernels::gpu::Table* tessera_gpu_table(void) {
  using namespace tessera::kernels::gpu;
  static Table table;
  table.version = kTableVersion - 1, table.layout = kTableLayout;
  return &table;
}
