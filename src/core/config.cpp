#include "core/config.h"

namespace tessera {
namespace {

// 1 rather than 1.0: many ranges are of integers.
std::string plain(double value) {
  return value == std::floor(value) && std::abs(value) < 1e15 ? text(static_cast<int64_t>(value))
                                                              : shortest(value);
}

}  // namespace

std::string Range::text() const {
  const bool has_low = std::isfinite(low), has_high = std::isfinite(high);
  if (has_low && has_high && !without_low && !without_high) return plain(low) + " to " + plain(high);
  const std::string lower = (without_low ? "above " : "at least ") + plain(low);
  const std::string upper = (without_high ? "below " : "at most ") + plain(high);
  return !has_high ? lower : !has_low ? upper : lower + " and " + upper;
}

}  // namespace tessera
