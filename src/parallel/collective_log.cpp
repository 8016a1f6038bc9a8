#include "parallel/group.h"

#include <utility>

namespace tessera::parallel {

void CollectiveLog::add(const Collective& done) {
  const std::lock_guard lock(mutex_);
  Traffic& kind = traffic_[done.kind];
  kind.kind = done.kind;
  ++kind.calls;
  kind.bytes += done.bytes;
  kind.seconds += done.seconds;
  if (recording_) recorded_.push_back(done);
}

std::vector<Traffic> CollectiveLog::traffic() const {
  const std::lock_guard lock(mutex_);
  std::vector<Traffic> kinds;
  for (const auto& [name, kind] : traffic_) kinds.push_back(kind);
  return kinds;
}

void CollectiveLog::start_recording() {
  const std::lock_guard lock(mutex_);
  recording_ = true;
  recorded_.clear();
}

std::vector<Collective> CollectiveLog::stop_recording() {
  const std::lock_guard lock(mutex_);
  recording_ = false;
  return std::exchange(recorded_, {});
}

}  // namespace tessera::parallel
