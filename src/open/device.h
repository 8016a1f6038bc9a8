// Where and in which arithmetic a model runs.
#pragma once

#include "ops/torch.h"

#include <string>
#include <vector>

#include "parallel/world.h"
#include "tasks/base/task.h"

namespace tessera::train {

// "cpu", "cuda", "cuda:1" or "auto" (a GPU where there is one). A GPU that is asked for and not there is an
// error.
torch::Device choose_device(const std::string& name);

// The same for each of several processes: a GPU each, or the CPU for all; all decide alike. "auto" takes the
// CPU where there is no GPU for each, and says so in `notes`; "cuda" is then an error.
torch::Device choose_device(const std::string& name, parallel::World& world, std::vector<std::string>& notes);

// The one number of compute threads for the library's own loops and LibTorch's; 0 = all cores. Returns it.
int use_threads(int64_t threads);

// The same where `decoding` threads are at work besides: as far as they are an eighth of `threads` they count
// against them. A decoder sleeps most of the time; of few threads a whole one would be missed more.
int use_threads_beside(int64_t decoding, int64_t threads);

torch::ScalarType parameter_type(tasks::Precision precision);

}  // namespace tessera::train
