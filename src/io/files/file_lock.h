// A lock between processes: one after the other, or one alone.
#pragma once

#include <memory>
#include <string>

namespace tessera {

// Waits until no other process holds the lock of this file, which is made if it is not there, and holds it until its end.
// The system gives it back when the process ends, however it ends. Throws Error where the file cannot be made.
class FileLock {
 public:
  explicit FileLock(const std::string& path);
  // The same without waiting: null while another process holds it. A file system that knows no locks refuses nobody.
  static std::unique_ptr<FileLock> try_lock(const std::string& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  explicit FileLock(int file) : file_(file) {}
  int file_;
};

}  // namespace tessera
