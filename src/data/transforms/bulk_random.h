// Random numbers by the hundred thousand, for the noise of images: some ten times as fast as one call each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/random.h"

namespace tessera::data {

// Philox4x32-10 under a key that is drawn from the stream: they depend on the stream's place alone.
std::vector<uint32_t> bulk_words(RandomStream& stream, size_t count);
// In [low, high), in steps of 2^-32 of the range.
std::vector<double> bulk_uniform(RandomStream& stream, size_t count, double low = 0, double high = 1);
// Mean 0, variance 1, by Box and Muller in float32: at most 6.7 from 0.
std::vector<double> bulk_normal(RandomStream& stream, size_t count);

}  // namespace tessera::data
