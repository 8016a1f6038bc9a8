#include "data/sources/shard_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <tuple>

#include "core/error.h"
#include "core/text.h"
#include "data/base/image_files.h"
#include "io/files/file.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

// Returns the position of the member's name in a path through a shard; npos if no shard is in the path.
size_t member_start(std::string_view path) {
  for (size_t slash = path.find('/'); slash != std::string_view::npos; slash = path.find('/', slash + 1))
    if (is_shard_name(path.substr(0, slash))) return slash + 1;
  return std::string_view::npos;
}

// True if a folder has a folder or an image, next to which a shard is a leftover.
bool holds_more_than_shards(const fs::path& folder) {
  std::error_code error, ignored;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (entry->is_directory(ignored) ||
        (!is_hidden(entry->path().filename().string()) && has_picture_extension(entry->path().string())))
      return true;
  return false;
}

}  // namespace

bool is_shard_name(std::string_view path) {
  return path.ends_with(".tar") || path.ends_with(".tar.gz") || path.ends_with(".tgz");
}

std::vector<std::string> shards_in(const std::string& folder) {
  std::vector<std::string> shards;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (is_shard_name(name) && !name.starts_with('.')) shards.push_back(entry->path().string());
  }
  if (error) fail(folder, " cannot be listed: ", error.message());
  std::sort(shards.begin(), shards.end());
  return shards;
}

std::vector<std::string> shards_of_set(const std::string& path) {
  std::vector<std::string> shards = shards_in(path);
  std::error_code error;
  if (!shards.empty()) return shards;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    if (!entry.is_directory(error) || !split_of_name(entry.path().filename().string())) continue;
    if (holds_more_than_shards(entry.path())) continue;
    std::ranges::move(shards_in(entry.path().string()), std::back_inserter(shards));
  }
  std::ranges::sort(shards);
  return shards;
}

ShardList find_shards(const SourceConfig& config, Split split) {
  const std::string& path = path_of(config, split);
  const bool own_path = !config.val_path.empty();
  std::error_code too_long;  // a list in braces may exceed the length of a file name
  if (!fs::is_directory(path, too_long)) return {expand_braces(path), !own_path};
  const auto all = shards_of_set(path);
  std::vector<std::string> train, held_out, test, others;
  for (const std::string& shard : all) {
    const std::string name = lower(fs::path(shard).lexically_relative(path).generic_string());
    const bool out = name.starts_with("val") || name.starts_with("test");
    const auto named = out                         ? Split::validation
                       : name.starts_with("train") ? Split::train
                                                   : split_of_name(name.substr(0, name.find('.')));
    const bool is_test = !name.starts_with("val") && is_test_name(name.substr(0, name.find('.')));
    (!named ? others : *named == Split::train ? train : is_test ? test : held_out).push_back(shard);
  }
  const size_t left_out = held_out.empty() ? 0 : test.size();
  if (held_out.empty()) held_out = test;
  if (split == Split::validation && !held_out.empty())
    return {held_out, false, !own_path && !(train.empty() && others.empty()), left_out};
  if (split == Split::validation && own_path) return {all, false};
  if (train.empty() && others.empty())
    fail(path, " has shards for validation (", fs::path(held_out[0]).filename().string(),
         ") but none to train on");
  return {train.empty() ? others : train, !own_path && held_out.empty(), false, left_out};
}

std::shared_ptr<const TarArchive> open_archive(const std::string& path) {
  using Key = std::tuple<dev_t, ino_t, off_t, time_t, long>;
  static std::mutex mutex;
  static std::map<Key, std::weak_ptr<const TarArchive>> opened;
  struct ::stat file {};
  if (::stat(path.c_str(), &file) != 0) return std::make_shared<TarArchive>(path);  // throws with the reason
  const Key key = {file.st_dev, file.st_ino, file.st_size, file.st_mtim.tv_sec, file.st_mtim.tv_nsec};
  {
    const std::lock_guard lock(mutex);
    std::erase_if(opened, [](const auto& entry) { return entry.second.expired(); });
    if (const auto found = opened.find(key); found != opened.end())
      if (auto archive = found->second.lock(); archive && archive->path() == path) return archive;
  }
  auto archive = std::make_shared<const TarArchive>(path);
  const std::lock_guard lock(mutex);
  opened[key] = archive;
  return archive;
}

bool ShardFiles::inside_shard(std::string_view path) { return member_start(path) != std::string_view::npos; }

const ShardFiles::Shard& ShardFiles::shard(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<const Shard>& known = shards_[path];
  if (!known) {
    auto opened = std::make_unique<Shard>();
    opened->archive = open_archive(path);
    const auto& members = opened->archive->members();
    for (size_t m = 0; m < members.size(); ++m) opened->members.emplace(members[m].name, m);
    known = std::move(opened);
  }
  return *known;
}

std::vector<std::byte> ShardFiles::read(const std::string& path, uint64_t most) const {
  const size_t start = member_start(path);
  if (start == std::string::npos) return read_file(path, most);
  const std::string archive = path.substr(0, start - 1), name = path.substr(start);
  const Shard& inside = shard(archive);
  const auto member = inside.members.find(name);
  check(member != inside.members.end(), archive, ": has no member '", printable(name), "'");
  const auto bytes = inside.archive->bytes(member->second);
  if (bytes.size() > most) fail(path, " has ", bytes.size(), " bytes, at most ", most, " are read");
  return {bytes.begin(), bytes.end()};
}

}  // namespace tessera::data
