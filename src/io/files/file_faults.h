// For tests only: makes the n-th file operation of this process fail, to test "disk full" at every point.
// Every write of the program goes through io/files/file.cpp, which checks here first.
//
//   TESSERA_FAULT=write:7:ENOSPC     the 7th write fails with "No space left on device"
//   TESSERA_FAULT=write:7+:ENOSPC    the 7th and all later ones
//   TESSERA_FAULT=any:7:KILL         the process is killed (SIGKILL) in place of its 7th operation
//   TESSERA_FAULT=write:7:SHORT      the 7th write writes half of its bytes; the caller has to continue
//
// Operations: open (for writing), write, fsync, rename, truncate, remove, mkdir, any.
// Results: ENOSPC, EIO, EDQUOT, EACCES, EROFS, EINTR, EMFILE, EINVAL, KILL, SHORT.
#pragma once

#include <cstdint>
#include <string>

namespace tessera {

class FileFaults {
 public:
  // Replaces the fault from the environment; "" is none. Resets the counts.
  static void set(const std::string& fault);
  // Returns the number of operations of any kind since set(), or since the start.
  static int64_t count();
};

namespace file_faults_detail {
enum class Operation { open, write, fsync, rename, truncate, remove, mkdir };
// Returns the outcome of the next operation: 0 = run, > 0 = fail with that errno, kShort = half a write.
constexpr int kShort = -1;
int next(Operation operation);
}  // namespace file_faults_detail

}  // namespace tessera
