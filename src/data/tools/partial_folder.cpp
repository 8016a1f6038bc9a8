#include "data/tools/pack.h"

#include "core/error.h"
#include "io/files/file.h"

namespace tessera::data {

namespace fs = std::filesystem;

std::string folder_to_write(const std::string& path) {
  std::error_code error;
  if (fs::exists(path, error) && !(fs::is_directory(path, error) && fs::is_empty(path, error)))
    fail(path, " exists and is not an empty folder");
  if (fs::is_symlink(path, error) || fs::equivalent(path, ".", error))
    fail(path, " is ", fs::is_symlink(path, error) ? "a link" : "the folder that you are in",
         " and cannot be replaced by the finished one: name another folder");
  std::string target = fs::path(path).lexically_normal().string();
  while (target.size() > 1 && target.back() == '/') target.pop_back();
  return target;
}

PartialFolder::PartialFolder(const std::string& target) : target_(target), path_(target + ".partial") {
  std::error_code error;
  if (const fs::path parent = fs::path(target).parent_path(); !parent.empty())
    fs::create_directories(parent, error);
  if (!error && !fs::create_directory(path_, error) && !error)
    fail(path_.string(), " exists: another program writes it, or one was killed; if so remove it");
  if (error) fail(path_.string(), " cannot be made: ", error.message());
  existed_ = fs::remove(target_, error);  // an empty folder; a mount point cannot be replaced
  if (!error) return;
  std::error_code ignored;
  fs::remove(path_, ignored);
  fail(target_.string(), " cannot be replaced by the finished folder: ", error.message());
}

PartialFolder::~PartialFolder() {
  std::error_code error;
  if (done_) return;
  fs::remove_all(path_, error);
  if (existed_) fs::create_directory(target_, error);
}

void PartialFolder::put_in_place() {
  std::error_code error;
  done_ = true;  // a finished folder always exists under one of the two names
  fs::rename(path_, target_, error);
  if (error)
    fail("the finished folder is ", path_.string(), ", it cannot be renamed to ", target_.string(), ": ",
         error.message());
  const fs::path parent = target_.parent_path();
  sync_directory(parent.empty() ? "." : parent.string());
}

}  // namespace tessera::data
