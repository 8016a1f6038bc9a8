#include "io/files/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace tessera {
namespace {

int open_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) fail("cannot write '", path, "': ", std::strerror(errno));
  return file;
}

}  // namespace

FileLock::FileLock(const std::string& path) : file_(open_file(path)) {
  while (::flock(file_, LOCK_EX) != 0) {
    if (errno == EINTR) continue;
    const int error = errno;
    ::close(file_);
    fail("cannot lock '", path, "': ", std::strerror(error));
  }
}

std::unique_ptr<FileLock> FileLock::try_lock(const std::string& path) {
  std::unique_ptr<FileLock> lock(new FileLock(open_file(path)));
  const bool taken = ::flock(lock->file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  return taken ? nullptr : std::move(lock);
}

FileLock::~FileLock() { ::close(file_); }

}  // namespace tessera
