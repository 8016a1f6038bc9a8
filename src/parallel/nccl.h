// Inside this folder: gradients over GPUs by NCCL. nccl.cpp, or where the build is without it, no_nccl.cpp.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>

#include "parallel/collective_log.h"

namespace tessera::parallel {

c10::intrusive_ptr<c10d::Backend> make_nccl(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                            int gpu, std::shared_ptr<CollectiveLog> log);
// Hands the collectives that the GPU has done by now over to the log.
void collect_nccl(c10d::Backend& backend);

}  // namespace tessera::parallel
