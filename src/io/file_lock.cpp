#include "io/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace tessera {

FileLock::FileLock(const std::string& path)
    : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (file_ < 0) fail("cannot write '", path, "': ", std::strerror(errno));
  while (::flock(file_, LOCK_EX) != 0) {
    if (errno == EINTR) continue;
    const int error = errno;
    ::close(file_);
    fail("cannot lock '", path, "': ", std::strerror(error));
  }
}

FileLock::~FileLock() { ::close(file_); }

}  // namespace tessera
