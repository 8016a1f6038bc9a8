// Shared by tests that a pass reads no number back, which would stop the host until a GPU has computed it.
#pragma once

#include <ATen/record_function.h>

#include <memory>
#include <string>

namespace tessera::ops {

// Counts the numbers that this thread reads as LibTorch's dispatcher shows them, during its lifetime.
class ReadBacks {
 public:
  ReadBacks() {
    count_ = 0;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback([](const at::RecordFunction& f) {
      count_ += std::string(f.name()) == "aten::_local_scalar_dense";
      return std::unique_ptr<at::ObserverContext>();
    }));
  }
  ~ReadBacks() { at::removeCallback(handle_); }
  ReadBacks(const ReadBacks&) = delete;
  ReadBacks& operator=(const ReadBacks&) = delete;
  static int count() { return count_; }

 private:
  static inline thread_local int count_ = 0;
  at::CallbackHandle handle_ = 0;
};

// Returns how many numbers `compute` reads back.
template <class Compute>
int read_backs(const Compute& compute) {
  const ReadBacks counter;
  compute();
  return ReadBacks::count();
}

}  // namespace tessera::ops
