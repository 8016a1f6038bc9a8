#include "io/files/replaced_files.h"

#include <deque>
#include <mutex>
#include <utility>

#include "core/error.h"

namespace tessera {
namespace {

// A file that this process will replace.
struct ReplacedFile {
  dev_t device;
  ino_t number;
  std::function<std::string(const std::string&)> refusal;
  std::string read = {};  // the refusal of the first attempt to read it
};
std::mutex replaced_files_mutex;
std::deque<ReplacedFile> replaced_files;  // before the work; later only `read` changes

ReplacedFile* find_replaced(const struct stat& status) {
  for (ReplacedFile& file : replaced_files)
    if (file.device == status.st_dev && file.number == status.st_ino) return &file;
  return nullptr;
}

}  // namespace

void refuse_to_read(const std::string& path, std::function<std::string(const std::string& path)> refusal) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return;
  replaced_files.push_back({status.st_dev, status.st_ino, std::move(refusal)});
}

void check_not_replaced(const struct stat& status, const std::string& path) {
  ReplacedFile* file = find_replaced(status);
  if (!file) return;
  const std::lock_guard lock(replaced_files_mutex);
  if (file->read.empty()) file->read = file->refusal(path);
  fail_usage(file->read);
}

// Throws the usage error of an earlier attempt to read the file.
void check_not_read(const std::string& path) {
  struct stat status {};
  if (replaced_files.empty() || ::stat(path.c_str(), &status) != 0) return;
  const ReplacedFile* file = find_replaced(status);
  const std::lock_guard lock(replaced_files_mutex);
  if (file && !file->read.empty()) fail_usage(file->read);
}

}  // namespace tessera
