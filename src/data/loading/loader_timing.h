// The speed of the loader alone: test images, and one timed pass over them.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::data {

// Fills folder/a and folder/b with `count` JPEGs of 500x375 pixels (ImageNet's usual size), quality 90,
// 4:2:0. Each is tiled from six images below `tiles`, in the order of their paths. Keeps existing images.
void make_bench_pictures(const std::string& tiles, const std::string& folder, int64_t count);

struct LoaderPass {
  int64_t images = 0;
  double seconds = 0;      // wall clock
  double cpu_seconds = 0;  // whole process
  double checksum = 0;     // mean of all values
};

struct LoaderBenchConfig {
  int64_t size = 224, batch = 32, threads = 1;
  std::string decode = "exact";
  uint64_t seed = 0;
};

// Times one pass of the training loader over an ImageFolder: read, random resized crop, flip, normalise,
// batch.
LoaderPass time_loader(const std::string& folder, const LoaderBenchConfig& config);

}  // namespace tessera::data
