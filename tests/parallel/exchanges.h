// Parts of the program `exchanges`.
#pragma once

#include "parallel/world.h"

namespace tessera::parallel {

// Divides tensors of several shapes by ZeRO over `shard` processes and checks gradients, gathered weights, joined tensors,
// norms and counted bytes.
bool check_shards(World& world, int64_t stage, int64_t shard);

// Trains 24 equal blocks without ZeRO and at both stages and compares the peaks of LibTorch's memory with the formula.
bool check_memory(World& world);

}  // namespace tessera::parallel
