// Private to this folder: the log of a process's exchanges.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "parallel/traffic.h"

namespace tessera::parallel {

// Thread-safe.
class ExchangeLog {
 public:
  void add(const Collective& done);
  // Returns the traffic by axis and kind, in alphabetical order.
  std::vector<Traffic> traffic() const;
  // As in World.
  void start_recording();
  std::vector<Collective> stop_recording();

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, Traffic> traffic_;
  bool recording_ = false;
  std::vector<Collective> recorded_;
};

}  // namespace tessera::parallel
