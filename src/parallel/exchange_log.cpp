#include "parallel/exchange_log.h"

#include <utility>

namespace tessera::parallel {

void ExchangeLog::add(const Collective& done) {
  const std::lock_guard lock(mutex_);
  Traffic& kind = traffic_[{done.axis, done.kind}];
  kind.axis = done.axis, kind.kind = done.kind;
  ++kind.calls;
  kind.bytes += done.bytes;
  kind.seconds += done.seconds;
  if (recording_) recorded_.push_back(done);
}

std::vector<Traffic> ExchangeLog::traffic() const {
  const std::lock_guard lock(mutex_);
  std::vector<Traffic> kinds;
  for (const auto& [name, kind] : traffic_) kinds.push_back(kind);
  return kinds;
}

void ExchangeLog::start_recording() {
  const std::lock_guard lock(mutex_);
  recording_ = true;
  recorded_.clear();
}

std::vector<Collective> ExchangeLog::stop_recording() {
  const std::lock_guard lock(mutex_);
  recording_ = false;
  return std::exchange(recorded_, {});
}

std::vector<Traffic> by_kind(const std::vector<Traffic>& traffic) {
  std::map<std::string, Traffic> kinds;
  for (const Traffic& one : traffic) {
    Traffic& kind = kinds[one.kind];
    kind.kind = one.kind;
    kind.calls += one.calls, kind.bytes += one.bytes, kind.seconds += one.seconds;
  }
  std::vector<Traffic> out;
  for (const auto& [name, kind] : kinds) out.push_back(kind);
  return out;
}

}  // namespace tessera::parallel
