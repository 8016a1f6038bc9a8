// Time of a model by operation, without the time of nested operations: that of the device, also of a GPU's.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace tessera::cli {

// Counts every operation between construction and stop(): of this thread, or on a GPU of all threads. There an operation begins
// and ends when the device's queue comes to it, so that a device that waits for the host shows in the operation it waits for.
class Profile {
 public:
  explicit Profile(const torch::Device& device = torch::kCPU);
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;
  void stop();

  struct Row {
    int64_t calls = 0;
    double seconds = 0;
  };
  const std::map<std::string, Row>& rows() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::cli
