// Paths: symbolic links, remote addresses, caches of a hub, and locks on files.
#pragma once

#include <memory>
#include <string>

namespace tessera {

// Returns the target of a write to `path`: resolves symbolic links, dangling ones too.
std::string behind_links(const std::string& path);

// Returns a relative path that another program wrote, with Windows' separators replaced: "images\\a.jpg" becomes
// "images/a.jpg". A path that has a slash keeps its backslashes.
std::string portable_path(std::string path);

// Returns the folder of the files in a repository of a hub's cache: that of refs/main, or the only one. Returns ""
// for any other path. Throws a usage error if there are several and refs/main names none of them.
std::string snapshot_in(const std::string& path);
// Throws an error that names the first file of a model or tokeniser in the folder that is a link to no file.
void refuse_broken_links(const std::string& folder);
// Returns the folder of snapshot_in(), or `path` if that is "". Refuses broken links in it.
std::string without_cache(const std::string& path);

// Throws a usage error for https://…, hf-hub:… and similar; accepts any other path.
void refuse_remote_path(const std::string& path);

// Creates the lock file if missing, waits until no other process holds its lock, and holds it for the
// object's lifetime. The system releases it however the process ends. Throws Error if the file cannot be
// created.
class FileLock {
 public:
  explicit FileLock(const std::string& path);
  // The same without waiting: null if another process holds the lock. Always succeeds if the file system has
  // no locks.
  static std::unique_ptr<FileLock> try_lock(const std::string& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  explicit FileLock(int file) : file_(file) {}
  int file_;
};

}  // namespace tessera
