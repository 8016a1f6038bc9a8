#include "io/files/file.h"

#include <sys/stat.h>

#include <atomic>
#include <deque>
#include <mutex>
#include <utility>

#include "core/error.h"

namespace tessera {
namespace {

// A file that this process will replace.
struct ReplacedFile {
  dev_t device = 0;
  ino_t number = 0;
  std::function<std::string(const std::string&)> refusal = {};
  std::string read = {};                 // the error of the first attempt to read it
  std::atomic<bool> replaced = {false};  // its number may later belong to another file
};
std::mutex replaced_files_mutex;
std::deque<ReplacedFile> replaced_files;  // before the work; then `read` and `replaced` change alone

ReplacedFile* find_replaced(const struct stat& status) {
  for (ReplacedFile& file : replaced_files)
    if (!file.replaced && file.device == status.st_dev && file.number == status.st_ino) return &file;
  return nullptr;
}

}  // namespace

void refuse_to_read(const std::string& path, std::function<std::string(const std::string& path)> refusal) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return;
  ReplacedFile& file = replaced_files.emplace_back();
  file.device = status.st_dev, file.number = status.st_ino, file.refusal = std::move(refusal);
}

void check_not_replaced(const struct stat& status, const std::string& path) {
  ReplacedFile* file = find_replaced(status);
  if (!file) return;
  const std::lock_guard lock(replaced_files_mutex);
  if (file->read.empty()) file->read = file->refusal(path);
  fail_usage(file->read);
}

void begin_replacing(const std::string& path) {
  struct stat status {};
  if (replaced_files.empty() || ::stat(path.c_str(), &status) != 0) return;
  ReplacedFile* file = find_replaced(status);
  if (!file) return;
  const std::lock_guard lock(replaced_files_mutex);
  if (!file->read.empty()) fail_usage(file->read);
  file->replaced = true;
}

}  // namespace tessera
