// One pool of compute threads: OpenMP's, shared with LibTorch and oneDNN.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace tessera {

// Number of compute threads; set once at the start (0 = as many as the machine lets us use).
void set_num_threads(int count);
int num_threads();
// Cores that this process may run on.
int available_cores();
// Which those are: the same bytes in every process of a machine that shares them.
std::string core_mask();

// Calls body(begin, end) over pieces of [0, count), each at least `grain` long. The split depends only on
// count, grain and num_threads(). Nested calls run serially. An exception of a piece is thrown again at the
// end.
void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

}  // namespace tessera
