// A lock between processes: one after the other.
#pragma once

#include <string>

namespace tessera {

// Waits until no other process holds the lock of this file, which is made if it is not there, and holds it until its end.
// The system gives it back when the process ends, however it ends. Throws Error where the file cannot be made.
class FileLock {
 public:
  explicit FileLock(const std::string& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int file_;
};

}  // namespace tessera
