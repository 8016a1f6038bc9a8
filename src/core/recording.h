// A pass that is recorded and then repeated must not contain values of one pass alone, such as random numbers: each repetition
// would have the same ones. What makes such values throws in a recording:
//
//   const Recording recording;                                         // in the thread of the pass
//   …
//   if (Recording::is_on()) fail("random numbers are drawn (crop)");   // where they are made
#pragma once

#include <utility>

namespace tessera {

// While it lives, this thread records.
class Recording {
 public:
  Recording() : before_(std::exchange(on(), true)) {}
  ~Recording() { on() = before_; }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  static bool is_on() { return on(); }

 private:
  static bool& on() {
    static thread_local bool it = false;
    return it;
  }
  bool before_;
};

}  // namespace tessera
