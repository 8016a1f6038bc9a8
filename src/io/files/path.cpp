#include "io/files/path.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"

namespace tessera {

std::string behind_links(const std::string& path) {
  namespace fs = std::filesystem;
  constexpr int kMostLinks = 40;  // as in the kernel
  std::error_code nothing;
  fs::path at = path;
  for (int i = 0; i < kMostLinks && fs::is_symlink(at, nothing); ++i) {
    const fs::path to = fs::read_symlink(at, nothing);
    at = to.is_absolute() ? to : at.parent_path() / to;
  }
  return at.string();
}

std::string snapshot_in(const std::string& path) {
  namespace fs = std::filesystem;
  const fs::path all = fs::path(path) / "snapshots";
  std::error_code error;
  if (!fs::is_directory(all, error)) return "";
  const std::string main = path + "/refs/main";
  if (fs::exists(main, error))
    if (const fs::path named = all / std::string(trim(read_text(main, 256))); fs::is_directory(named, error))
      return named.string();
  std::vector<fs::path> found(fs::directory_iterator(all, error), fs::directory_iterator());
  return found.size() == 1 ? found[0].string() : "";
}

std::string without_cache(const std::string& path) {
  std::string folder = snapshot_in(path);
  return folder.empty() ? path : folder;
}

std::string portable_path(std::string path) {
  if (path.find('/') == std::string::npos) std::ranges::replace(path, '\\', '/');
  return path;
}

void refuse_remote_path(const std::string& path) {
  const std::string shown = printable(path);
  for (const char* scheme : {"https://", "http://", "ftp://"})
    if (lower(path).starts_with(scheme))
      fail_usage("'", shown, "' is on the network, from which nothing is read: fetch it first (curl -LO ",
                 shown, ") and give the file");
  for (const char* scheme : {"hf-hub:", "hf_hub:", "hf://", "hf:"})
    if (path.starts_with(scheme)) {
      const std::string name = printable(path.substr(std::string(scheme).size()));
      fail_usage("'", shown,
                 "' is on the Hugging Face Hub, from which nothing is read: fetch it first (hf download ",
                 name, " --local-dir FOLDER) and give FOLDER/model.safetensors");
    }
  for (const char* scheme : {"s3://", "gs://"})
    if (path.starts_with(scheme))
      fail_usage("'", shown,
                 "' is in a store on the network, from which nothing is read: copy it here first");
}

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
