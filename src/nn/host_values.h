// Values of a device that the host has read before, so that a pass does not wait for them: reading one stops the host, and a
// graph of a GPU cannot contain it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>

#include "ops/identity.h"

namespace tessera::nn {

// Returns how many values of a mask are true. The host counts them; a mask on a device is copied first.
inline int64_t count_true(const torch::Tensor& mask) {
  const torch::Tensor host = mask.to(torch::kCPU).contiguous();
  const bool* const values = host.const_data_ptr<bool>();
  return std::count(values, values + host.numel(), true);
}

// The number of note_load() calls of this process.
inline std::atomic<int64_t>& value_loads() {
  static std::atomic<int64_t> loads = 0;
  return loads;
}
// Call it after stored values were copied into tensors of a model.
inline void note_load() { ++value_loads(); }

// Learned steps that the first data set, and a number that is set with them. Each is read once; again in other memory, after
// note_load(), and on the CPU after any change.
class KnownSteps {
 public:
  // True if the steps are set, not infinite.
  bool hold(const torch::Tensor& log_steps) {
    const ops::Identity now = key_of(log_steps);
    if (set_ && now == steps_) return true;
    set_ = !std::isinf(log_steps.detach().flatten()[0].item<double>());
    steps_ = now, number_ = {};
    return set_;
  }
  // Returns the number [1] that belongs to them.
  double value_of(const torch::Tensor& number) {
    const ops::Identity now = key_of(number);
    if (!set_ || now != number_) value_ = number.item<double>(), number_ = now;
    return value_;
  }

 private:
  // A step of an optimiser on a device sets no step back, so changes in place do not count there.
  static ops::Identity key_of(const torch::Tensor& tensor) {
    ops::Identity key = ops::identity_of(tensor);
    if (!tensor.is_cpu()) key.version = value_loads();
    return key;
  }
  bool set_ = false;
  ops::Identity steps_, number_;
  double value_ = 0;
};

}  // namespace tessera::nn
