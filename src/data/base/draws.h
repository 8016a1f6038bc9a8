// The source of random numbers for augmentation: a stream in training, recorded numbers in tests
// (draws_testing.h).
#pragma once

#include <cstdint>

#include "core/random.h"

namespace tessera::data {

class Draws {
 public:
  virtual ~Draws() = default;
  virtual double fraction() = 0;                           // [0, 1)
  virtual double uniform(double low, double high) = 0;     // [low, high)
  virtual int64_t integer(int64_t low, int64_t high) = 0;  // low … high, both included
  virtual double normal() = 0;                             // mean 0, variance 1
};

class StreamDraws final : public Draws {
 public:
  explicit StreamDraws(RandomStream& stream) : stream_(stream) {}
  double fraction() override { return stream_.uniform(); }
  double uniform(double low, double high) override { return stream_.uniform(low, high); }
  int64_t integer(int64_t low, int64_t high) override { return stream_.integer(low, high); }
  double normal() override { return stream_.normal(); }

 private:
  RandomStream& stream_;
};

}  // namespace tessera::data
