// Names a time span for profilers (LibTorch's, and `tessera bench --profile`); costs nothing without one.
#pragma once

#include <ATen/record_function.h>

#include "core/error.h"

namespace tessera::ops {

class Profiled {
 public:
  // The name is the concatenated parts, built only if a profiler is active.
  template <class... Parts>
  explicit Profiled(const Parts&... parts) : record_(at::RecordScope::FUNCTION) {
    if (record_.isActive()) record_.before(text(parts...));
  }

 private:
  at::RecordFunction record_;
};

}  // namespace tessera::ops
