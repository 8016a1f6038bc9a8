// The source of random numbers for augmentation: a stream in training, a list in tests. A list makes results
// comparable with other libraries.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

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

// Returns recorded numbers in their order. Throws if a draw has another kind or range than its record.
struct RecordedDraw {
  std::string kind;  // random (fraction), uniform, randint (integer), normal
  double low = 0, high = 1, value = 0;
};
class ListedDraws final : public Draws {
 public:
  explicit ListedDraws(std::vector<RecordedDraw> draws) : draws_(std::move(draws)) {}
  double fraction() override { return next("random", 0, 1); }
  double uniform(double low, double high) override { return next("uniform", low, high); }
  int64_t integer(int64_t low, int64_t high) override {
    return static_cast<int64_t>(next("randint", static_cast<double>(low), static_cast<double>(high)));
  }
  double normal() override { return next("normal", 0, 1); }
  bool used_up() const { return at_ == draws_.size(); }

 private:
  double next(const std::string& kind, double low, double high);
  std::vector<RecordedDraw> draws_;
  size_t at_ = 0;
};

}  // namespace tessera::data
