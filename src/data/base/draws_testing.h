// Draws that another library recorded, to compare its results with ours.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "data/base/draws.h"

namespace tessera::data {

struct RecordedDraw {
  std::string kind;  // random (fraction), uniform, randint (integer), normal
  double low = 0, high = 1, value = 0;
};
// Returns recorded numbers in their order. Throws if a draw has another kind or range than its record.
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
  double next(const std::string& kind, double low, double high) {
    check(at_ < draws_.size(), "more numbers are drawn than the ", draws_.size(), " recorded");
    const RecordedDraw& draw = draws_[at_++];
    check(draw.kind == kind && std::abs(draw.low - low) < 1e-12 && std::abs(draw.high - high) < 1e-12,
          "draw ", at_ - 1, " is ", kind, " of ", low, " to ", high, ", recorded is ", draw.kind, " of ",
          draw.low, " to ", draw.high);
    return draw.value;
  }
  std::vector<RecordedDraw> draws_;
  size_t at_ = 0;
};

}  // namespace tessera::data
