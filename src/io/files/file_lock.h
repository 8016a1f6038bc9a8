// A lock between processes.
#pragma once

#include <memory>
#include <string>

namespace tessera {

// Creates the lock file if missing, waits until no other process holds its lock, and holds it for the
// object's lifetime. The system releases it when the process ends in any way. Throws Error if the file cannot
// be created.
class FileLock {
 public:
  explicit FileLock(const std::string& path);
  // The same without waiting: null if another process holds it. Always succeeds on a file system without
  // locks.
  static std::unique_ptr<FileLock> try_lock(const std::string& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  explicit FileLock(int file) : file_(file) {}
  int file_;
};

}  // namespace tessera
