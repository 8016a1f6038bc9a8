#include "data/base/draws.h"

#include <cmath>

#include "core/error.h"

namespace tessera::data {

double ListedDraws::next(const std::string& kind, double low, double high) {
  check(at_ < draws_.size(), "more numbers are drawn than the ", draws_.size(), " recorded");
  const RecordedDraw& draw = draws_[at_++];
  check(draw.kind == kind && std::abs(draw.low - low) < 1e-12 && std::abs(draw.high - high) < 1e-12, "draw ",
        at_ - 1, " is ", kind, " of ", low, " to ", high, ", recorded is ", draw.kind, " of ", draw.low,
        " to ", draw.high);
  return draw.value;
}

}  // namespace tessera::data
