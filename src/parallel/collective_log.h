// Private to this folder: a log of the collectives of a process.
#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "parallel/world.h"

namespace tessera::parallel {

// Thread-safe.
class CollectiveLog {
 public:
  void add(const Collective& done);
  // Returns the traffic by kind, in alphabetical order.
  std::vector<Traffic> traffic() const;
  // As in World.
  void start_recording();
  std::vector<Collective> stop_recording();

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Traffic> traffic_;
  bool recording_ = false;
  std::vector<Collective> recorded_;
};

}  // namespace tessera::parallel
