// Where augmentation takes its random numbers from. A stream in training; a list in tests, so that the choice
// made from given numbers can be compared with other libraries.
#pragma once

#include <cstdint>

#include "core/random.h"

namespace tessera::data {

class Draws {
 public:
  virtual ~Draws() = default;
  virtual double uniform(double low, double high) = 0;     // [low, high)
  virtual int64_t integer(int64_t low, int64_t high) = 0;  // low … high, both included
  double uniform() { return uniform(0.0, 1.0); }
};

class StreamDraws final : public Draws {
 public:
  explicit StreamDraws(RandomStream& stream) : stream_(stream) {}
  double uniform(double low, double high) override { return stream_.uniform(low, high); }
  int64_t integer(int64_t low, int64_t high) override { return stream_.integer(low, high); }

 private:
  RandomStream& stream_;
};

}  // namespace tessera::data
