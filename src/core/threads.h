// The one pool of compute threads: OpenMP's, shared with LibTorch and oneDNN.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace tessera {

// Sets the number of compute threads, once at the start (0 = all available cores).
void set_num_threads(int count);
int num_threads();
// Returns the number of cores that this process may use.
int available_cores();
// Identifies those cores: the same bytes in all processes of a machine that share them.
std::string core_mask();

// Calls body(begin, end) over pieces of [0, count), each at least `grain` long. The split depends only on
// count, grain and num_threads(). Nested calls run serially. Rethrows a piece's exception at the end.
void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

}  // namespace tessera
