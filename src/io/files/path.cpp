#include "io/files/path.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>
#include <algorithm>
#include <array>
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
  if (found.size() == 1) return found[0].string();
  if (found.size() < 2 || !fs::is_directory(fs::path(path) / "refs", error)) return "";
  std::ranges::sort(found);
  fail_usage("'", printable(path), "' has ", found.size(),
             " snapshots and no refs/main that names one of them: give one, such as '",
             printable(found[0].string()), "'");
}

void refuse_broken_links(const std::string& folder) {
  namespace fs = std::filesystem;
  constexpr std::array kRead = {".json", ".safetensors", ".bin", ".model", ".txt", ".pt", ".pth"};
  std::error_code error, ignored;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const fs::path& link = entry->path();
    if (entry->is_symlink(ignored) && !fs::exists(link, ignored) &&
        std::ranges::count(kRead, lower(link.extension().string())) > 0)
      fail("'", printable(link.string()), "' is a link to '", printable(behind_links(link.string())),
           "', which does not exist: fetch the file again");
  }
}

std::string without_cache(const std::string& path) {
  std::string folder = snapshot_in(path);
  if (folder.empty()) folder = path;
  refuse_broken_links(folder);
  return folder;
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
