#include "io/files/file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "io/files/file_faults.h"
#include "io/files/path.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using file_faults_detail::Operation;

constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr size_t kMaxCall = size_t{1} << 30;  // Linux moves at most 2 GiB per call

std::string reason(int error) {  // strerror is not thread-safe
  std::array<char, 128> buffer{};
  return strerror_r(error, buffer.data(), buffer.size());
}

// Runs a system call through the fault hook; repeats it after EINTR. Returns its result, or -1 with errno
// set.
template <class Call>
auto guarded(Operation operation, const Call& call) -> decltype(call()) {
  while (true) {
    if (const int fault = file_faults_detail::next(operation); fault > 0) {
      errno = fault;
    } else if (const auto result = call(); result >= 0) {
      return result;
    }
    if (errno != EINTR) return -1;
  }
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  operator int() const { return fd_; }  // NOLINT: stands for the number in system calls

 private:
  int fd_;
};

int open_to_read(const std::string& path, int more_flags = 0) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | more_flags);
  if (fd >= 0) return fd;
  const int error = errno;
  std::error_code ignored;
  if (error == ENOENT && std::filesystem::is_symlink(path, ignored))
    fail("cannot open '", path, "': it is a link to '", behind_links(path), "', which does not exist");
  fail("cannot open '", path, "': ", reason(error));
}

struct stat status_of(int fd, const std::string& path) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) fail("cannot read '", path, "': ", reason(errno));
  if (S_ISDIR(status.st_mode)) fail("'", path, "' is a directory, must be a file");
  check_not_replaced(status, path);
  return status;
}

// Writes everything or returns the errno; continues after short writes.
int write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const int fault = file_faults_detail::next(Operation::write);
    if (fault == EINTR) continue;
    if (fault > 0) return fault;
    size_t wanted = std::min(bytes.size(), kMaxCall);
    if (fault == file_faults_detail::kShort) wanted = (wanted + 1) / 2;
    const ssize_t written = ::write(fd, bytes.data(), wanted);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    if (written == 0) return ENOSPC;  // a regular file takes at least one byte or fails
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return 0;
}

std::string parent_of(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

// Temporary names contain host and process, so that a later run can identify leftovers.
std::string temporary_suffix() {
  std::array<char, 33> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  std::string name = host.data();
  std::replace(name.begin(), name.end(), '-', '_');
  return text(".tmp-", name, "-");
}

std::string hex16(uint64_t value) {
  std::string out(16, '0');
  for (size_t i = 0; i < 16; ++i) out[15 - i] = "0123456789abcdef"[(value >> (4 * i)) & 15];
  return out;
}

}  // namespace

// --- reading

MappedFile::MappedFile(const std::string& path) : MappedFile(-1, path) {}

MappedFile::MappedFile(int descriptor, const std::string& path) {
  // O_NONBLOCK: a pipe without a writer is refused below, not waited for.
  const Descriptor own(descriptor < 0 ? open_to_read(path, O_NONBLOCK) : -1);
  const int fd = descriptor < 0 ? static_cast<int>(own) : descriptor;
  const struct stat status = status_of(fd, path);
  if (!S_ISREG(status.st_mode)) fail("'", path, "' is a device or a pipe, must be a regular file");
  size_ = static_cast<size_t>(status.st_size);
  if (size_ == 0) return;
  void* map = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
  if (map == MAP_FAILED) {
    size_ = 0;
    fail("cannot map '", path, "' (", human_bytes(static_cast<uint64_t>(status.st_size)),
         "): ", reason(errno));
  }
  data_ = static_cast<const std::byte*>(map);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

std::string MappedFile::checksum() const {
  constexpr size_t kPiece = size_t{16} << 20;  // whole pages
  XXH3_state_t hash;
  XXH3_64bits_reset(&hash);
  for (size_t begin = 0; begin < size_; begin += kPiece) {
    const size_t count = std::min(kPiece, size_ - begin);
    XXH3_64bits_update(&hash, data_ + begin, count);
    ::madvise(const_cast<std::byte*>(data_) + begin, count, MADV_DONTNEED);
  }
  return hex16(XXH3_64bits_digest(&hash));
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

namespace {

constexpr uint64_t kMostPipeBytes = uint64_t{256} << 20;  // a device may never end

// Appends the rest of a file to `out`, which has resize() and data(). Pipes have no size, so `out` grows
// during reading.
template <class Out>
void read_into(Out& out, const std::string& path, uint64_t max_bytes) {
  const Descriptor fd(open_to_read(path));
  const struct stat status = status_of(fd, path);
  if (!S_ISREG(status.st_mode)) max_bytes = std::min(max_bytes, kMostPipeBytes);
  const auto too_large = [&](const std::string& size) {
    fail("'", path, "' has ", size, ", at most ", max_bytes, " bytes are read here");
  };
  const auto said = static_cast<uint64_t>(std::max<off_t>(status.st_size, 0));
  if (said > max_bytes) too_large(text(said, " bytes"));
  size_t used = 0;
  out.resize(S_ISREG(status.st_mode) ? static_cast<size_t>(said) : 0);
  while (true) {
    if (used == out.size()) {  // one more read to detect the end (files may grow or misstate their size)
      if (used > max_bytes) too_large(text("more than ", max_bytes, " bytes"));
      const uint64_t room = std::min<uint64_t>(max_bytes + 1 - used, std::max<size_t>(used / 2, 4096));
      out.resize(used + static_cast<size_t>(room));
    }
    const ssize_t n = ::read(fd, out.data() + used, std::min(out.size() - used, kMaxCall));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("cannot read '", path, "': ", reason(errno));
    if (n == 0) break;
    used += static_cast<size_t>(n);
  }
  if (used > max_bytes) too_large(text("more than ", max_bytes, " bytes"));
  out.resize(used);
}

}  // namespace

std::vector<std::byte> read_file(const std::string& path, uint64_t max_bytes) {
  std::vector<std::byte> out;
  read_into(out, path, max_bytes);
  return out;
}

std::string read_text(const std::string& path, uint64_t max_bytes) {
  std::string out;
  read_into(out, path, max_bytes);
  return out;
}

// --- writing

struct AtomicFile::State {
  std::string path, temporary;
  int fd = -1;
  bool failed = false;
  std::vector<std::byte> buffer;
  uint64_t size = 0;
  XXH3_state_t hash;

  ~State() { discard(); }

  [[noreturn]] void fail_with(int error) {
    failed = true;
    fail("cannot write '", path, "': ", reason(error));
  }

  void flush() {
    const int error = write_all(fd, buffer);
    buffer.clear();
    if (error != 0) fail_with(error);
  }

  void discard() {
    if (fd >= 0) ::close(std::exchange(fd, -1));
    if (!temporary.empty()) ::unlink(temporary.c_str());
    temporary.clear();
  }
};

namespace {

std::atomic<int> temporaries_made = 0;  // by this process: their numbers

}  // namespace

AtomicFile::AtomicFile(const std::string& path) : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.path = behind_links(path);
  struct stat old {};
  const bool replaces = ::stat(path.c_str(), &old) == 0;
  if (replaces && S_ISDIR(old.st_mode)) fail("cannot write '", path, "': it is a directory");
  if (replaces && !S_ISREG(old.st_mode)) fail("cannot write '", path, "': it is not a regular file");
  std::string temporary;
  do {  // after a reboot, an earlier process with this number may have left such a file
    temporary = text(s.path, temporary_suffix(), ::getpid(), "-", ++temporaries_made);
    s.fd = guarded(Operation::open,
                   [&] { return ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666); });
  } while (s.fd < 0 && errno == EEXIST);
  if (s.fd < 0) s.fail_with(errno);
  s.temporary = temporary;
  if (replaces) {  // owner first: a change may clear mode bits; only root may do it, and failure is fine
    if (::fchown(s.fd, old.st_uid, old.st_gid) != 0) errno = 0;
    if (::fchmod(s.fd, old.st_mode & 07777) != 0) s.fail_with(errno);
  }
  XXH3_64bits_reset(&s.hash);
}

AtomicFile::~AtomicFile() = default;

void AtomicFile::write(std::span<const std::byte> bytes) {
  State& s = *state_;
  check(s.fd >= 0 && !s.failed, "cannot write '", s.path, "': it is closed, or an earlier write failed");
  XXH3_64bits_update(&s.hash, bytes.data(), bytes.size());
  s.size += bytes.size();
  if (s.buffer.size() + bytes.size() > kBufferBytes) s.flush();
  if (bytes.size() >= kBufferBytes) {
    if (const int error = write_all(s.fd, bytes); error != 0) s.fail_with(error);
  } else {
    s.buffer.insert(s.buffer.end(), bytes.begin(), bytes.end());
  }
}

void AtomicFile::write(std::string_view content) { write(as_bytes(content)); }

std::string AtomicFile::checksum() const { return hex16(XXH3_64bits_digest(&state_->hash)); }

uint64_t AtomicFile::size() const { return state_->size; }

void AtomicFile::finish() {
  State& s = *state_;
  check(s.fd >= 0 && !s.failed, "cannot write '", s.path, "': it is closed, or an earlier write failed");
  s.flush();
  if (guarded(Operation::fsync, [&] { return ::fsync(s.fd); }) != 0) s.fail_with(errno);
  if (::close(std::exchange(s.fd, -1)) != 0 && errno != EINTR) s.fail_with(errno);
  s.buffer = {};
}

void AtomicFile::commit() {
  State& s = *state_;
  begin_replacing(s.path);
  if (s.fd >= 0 || s.failed || s.temporary.empty()) finish();
  if (guarded(Operation::rename, [&] { return ::rename(s.temporary.c_str(), s.path.c_str()); }) != 0)
    s.fail_with(errno);
  s.temporary.clear();
  sync_directory(parent_of(s.path));
}

void write_file_atomic(const std::string& path, std::span<const std::byte> bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

void write_text_atomic(const std::string& path, std::string_view content) {
  write_file_atomic(path, as_bytes(content));
}

AppendFile::AppendFile(const std::string& path) : path_(path) {
  descriptor_ = guarded(
      Operation::open, [&] { return ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666); });
  if (descriptor_ < 0) fail("cannot write '", path, "': ", reason(errno));
}

AppendFile::~AppendFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void AppendFile::write(std::span<const std::byte> bytes) {
  struct stat before {};
  if (::fstat(descriptor_, &before) != 0) fail("cannot write '", path_, "': ", reason(errno));
  const int error = write_all(descriptor_, bytes);
  if (error == 0) return;
  // Truncating needs no space; if it fails too, report the first error.
  if (S_ISREG(before.st_mode) && ::ftruncate(descriptor_, before.st_size) != 0) errno = 0;
  fail("cannot write '", path_, "': ", reason(error));
}

void AppendFile::write(std::string_view content) { write(as_bytes(content)); }

void AppendFile::sync() {
  if (guarded(Operation::fsync, [&] { return ::fsync(descriptor_); }) != 0)
    fail("cannot write '", path_, "': ", reason(errno));
}

TemporaryFile::TemporaryFile(std::string purpose) : purpose_(std::move(purpose)) {
  const char* wanted = std::getenv("TMPDIR");
  directory_ = wanted && *wanted ? wanted : "/tmp";
  descriptor_ = guarded(Operation::open,
                        [&] { return ::open(directory_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600); });
  if (descriptor_ < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {  // some file systems
    std::string name = directory_ + "/tessera-XXXXXX";
    descriptor_ = ::mkostemp(name.data(), O_CLOEXEC);
    if (descriptor_ >= 0) ::unlink(name.c_str());
  }
  if (descriptor_ < 0)
    fail(purpose_, ": cannot make a temporary file in '", directory_, "': ", reason(errno));
}

TemporaryFile::~TemporaryFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void TemporaryFile::write(std::span<const std::byte> bytes) {
  if (const int error = write_all(descriptor_, bytes); error != 0)
    fail(purpose_, ": cannot write a temporary file in '", directory_, "': ", reason(error),
         "; TMPDIR may name another folder");
}

MappedFile TemporaryFile::map() { return MappedFile(descriptor_, purpose_); }

// --- directories

void sync_directory(const std::string& directory) {
  const Descriptor fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd < 0) fail("cannot open the directory '", directory, "': ", reason(errno));
  // Some file systems have no fsync of directories and return EINVAL.
  if (guarded(Operation::fsync, [&] { return ::fsync(fd); }) != 0 && errno != EINVAL)
    fail("cannot write the directory '", directory, "': ", reason(errno));
}

void move_directory(const std::string& fresh, const std::string& path) {
  const auto move = [](const std::string& from, const std::string& to, unsigned flags) {
    return guarded(Operation::rename,
                   [&] { return ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags); });
  };
  const auto fail_with = [&] { fail("cannot rename '", fresh, "' to '", path, "': ", reason(errno)); };
  std::error_code nothing;
  if (!fs::exists(path, nothing)) {
    if (move(fresh, path, 0) != 0) fail_with();
  } else if (move(fresh, path, RENAME_EXCHANGE) != 0) {
    if (errno != EINVAL && errno != ENOSYS) fail_with();
    const std::string aside = fresh + ".old";
    if (move(path, aside, 0) != 0 || move(fresh, path, 0) != 0 || move(aside, fresh, 0) != 0) fail_with();
  }
  sync_directory(parent_of(path));
}

bool link_file(const std::string& from, const std::string& to) {
  return guarded(Operation::open, [&] { return ::link(from.c_str(), to.c_str()); }) == 0;
}

void replace_symlink(const std::string& target, const std::string& path) {
  const std::string temporary = text(path, temporary_suffix(), ::getpid(), "-0");
  ::unlink(temporary.c_str());
  const auto make = [&] { return ::symlink(target.c_str(), temporary.c_str()); };
  const auto put = [&] { return ::rename(temporary.c_str(), path.c_str()); };
  if (guarded(Operation::open, make) != 0) fail("cannot make the link '", path, "': ", reason(errno));
  if (guarded(Operation::rename, put) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    fail("cannot make the link '", path, "': ", reason(error));
  }
  sync_directory(parent_of(path));
}

void cut_file(const std::string& path, uint64_t size) {
  const Descriptor fd(guarded(Operation::open, [&] { return ::open(path.c_str(), O_WRONLY | O_CLOEXEC); }));
  if (fd < 0) fail("cannot write '", path, "': ", reason(errno));
  const auto cut = [&] { return ::ftruncate(fd, static_cast<off_t>(size)); };
  if (guarded(Operation::truncate, cut) != 0 || guarded(Operation::fsync, [&] { return ::fsync(fd); }) != 0)
    fail("cannot cut '", path, "' to ", size, " bytes: ", reason(errno));
}

void make_directories(const std::string& directory) {
  std::error_code nothing;
  if (directory.empty() || fs::is_directory(directory, nothing)) return;
  std::string path = directory;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const std::string parent = parent_of(path);
  if (parent != path) make_directories(parent);
  const int result = guarded(Operation::mkdir, [&] { return ::mkdir(path.c_str(), 0777); });
  if (result != 0 && errno == EEXIST && fs::is_directory(path, nothing))
    return;  // another process was faster
  if (result != 0) fail("cannot make the directory '", path, "': ", reason(errno));
  sync_directory(parent);
}

void remove_all(const std::string& path) {
  std::error_code error;
  if (guarded(Operation::remove, [] { return 0; }) != 0)
    error.assign(errno, std::generic_category());
  else
    fs::remove_all(path, error);
  if (error) fail("cannot remove '", path, "': ", reason(error.value()));
}

int remove_stale_temporaries(const std::string& directory) {
  const std::string suffix = temporary_suffix();
  const auto is_stale = [&](const std::string& name) {
    const size_t at = name.rfind(suffix);
    if (at == std::string::npos) return false;
    const auto parts = split(std::string_view(name).substr(at + suffix.size()), '-');
    const auto process = parse_int(parts[0]);
    const auto number = parts.size() == 2 ? parse_int(parts[1]) : std::nullopt;
    if (!number || !process || *process <= 0) return false;
    if (*process == ::getpid()) return *number > temporaries_made;  // from an earlier process with our number
    return ::kill(static_cast<pid_t>(*process), 0) != 0 && errno == ESRCH;
  };
  int removed = 0;
  std::error_code error;
  fs::directory_iterator entry(directory, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code nothing;  // another process may have removed it
    if (is_stale(entry->path().filename().string()) && fs::remove(entry->path(), nothing)) ++removed;
  }
  if (error) fail("cannot read the directory '", directory, "': ", reason(error.value()));
  return removed;
}

bool file_exists(const std::string& path) {
  std::error_code nothing;
  return fs::exists(path, nothing);
}

std::string checksum_of(std::span<const std::byte> bytes) {
  return hex16(XXH3_64bits(bytes.data(), bytes.size()));
}

uint64_t free_disk_bytes(const std::string& path) {
  std::string at = path.empty() ? "." : path;
  struct statvfs status {};
  while (::statvfs(at.c_str(), &status) != 0) {
    const std::string parent = parent_of(at);
    if (errno != ENOENT || parent == at) fail("cannot read the free space at '", path, "': ", reason(errno));
    at = parent;
  }
  return static_cast<uint64_t>(status.f_bavail) * status.f_frsize;
}

}  // namespace tessera
