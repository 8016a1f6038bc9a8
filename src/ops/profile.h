// Names a stretch of time for profilers (LibTorch's, and `tessera bench --profile`); free while none listens.
#pragma once

#include <ATen/record_function.h>

#include "core/error.h"

namespace tessera::ops {

class Profiled {
 public:
  // The name is the parts put together, made only if somebody listens.
  template <class... Parts>
  explicit Profiled(const Parts&... parts) : record_(at::RecordScope::FUNCTION) {
    if (record_.isActive()) record_.before(text(parts...));
  }

 private:
  at::RecordFunction record_;
};

}  // namespace tessera::ops
