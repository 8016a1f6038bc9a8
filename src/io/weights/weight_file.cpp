#include "io/weights/weight_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <span>
#include <variant>

#include "core/error.h"
#include "core/text.h"
#include "io/files/path.h"
#include "io/weights/safetensors_shards.h"
#include "io/weights/torch_archive.h"

namespace tessera {

// Owns the memory of the views.
struct WeightFile::Source {
  using Shards = std::vector<std::unique_ptr<WeightFile>>;
  std::variant<std::monostate, std::unique_ptr<SafetensorsFile>, std::unique_ptr<TorchArchive>, Shards> file;
  bool torch = false;  // a PyTorch archive, or one among the shards
};

namespace {

std::string form_of(const TorchArchive& archive, const TorchGroup& chosen) {
  if (archive.groups().size() == 1 && chosen.key.empty()) return archive.form();
  std::vector<std::string> unread;
  for (const std::string& name : archive.unread()) unread.push_back(printable(name));
  std::vector<std::string> others;
  for (const TorchGroup& group : archive.groups())
    if (&group != &chosen && others.size() < 4) others.push_back("'" + printable(group.key) + "'");
  return text(archive.form(), ", '", printable(chosen.key), "'",
              others.empty() ? "" : text("; it also has ", join(others, ", ")),
              unread.empty() ? "" : text("; left unread: objects of ", join(unread, ", ")));
}

// Throws unless the file begins like a safetensors file: a length, then JSON.
void check_looks_like_safetensors(const std::string& path) {
  const MappedFile file(path);
  const std::string_view bytes = as_text(file.bytes());
  if (bytes.size() > 8 && bytes[8] == '{') return;
  if (bytes.starts_with("version https://git-lfs"))
    fail(path, ": is a Git LFS pointer: fetch the file itself");
  fail(path, ": is no weights file", bytes.empty() ? ", it is empty" : "",
       ": must be of safetensors (.safetensors), or of PyTorch (.pth, .pt, .bin)");
}

bool is_index_name(const std::string& path) { return lower(path).ends_with(".json"); }

}  // namespace

WeightFile::WeightFile(const std::string& path, const std::string& key)
    : path_(path), source_(std::make_unique<Source>()) {
  refuse_remote_path(path);
  const bool is_index = is_index_name(path);
  if (!is_index && looks_like_torch(MappedFile(path).bytes())) {
    auto archive = std::make_unique<TorchArchive>(path);
    const TorchGroup& chosen = archive->choose(key);
    form_ = form_of(*archive, chosen);
    for (const TorchGroup& group : archive->groups())
      other_weights_ = other_weights_ || (&group != &chosen && group.tensors.size() == chosen.tensors.size());
    tensors_ = archive->weights(key);
    source_->file = std::move(archive);
    source_->torch = true;
    return;
  }
  check(key.empty(), path, ": has no dictionary '", key, "': it is no PyTorch archive");
  if (is_index) {
    open_shards();
    return;
  }
  check_looks_like_safetensors(path);
  auto file = std::make_unique<SafetensorsFile>(path);
  form_ = "safetensors";
  metadata_ = file->metadata();
  tensors_ = file->tensors();
  source_->file = std::move(file);
}

// Appends the tensors file by file. Throws if the index and the files disagree about a tensor.
void WeightFile::open_shards() {
  ShardIndex index = read_shard_index(path_);
  metadata_ = std::move(index.metadata);
  Source::Shards shards;
  for (auto& [name, expected] : index.files) {
    check(!is_index_name(name), path_, ": names '", printable(name), "', which is no file of weights");
    const WeightFile& file = *shards.emplace_back(std::make_unique<WeightFile>(name));
    source_->torch = source_->torch || file.source_->torch;
    for (const TensorView& tensor : file.tensors()) {
      check(expected.erase(tensor.name) == 1, name, ": holds tensor '", printable(tensor.name), "', which ",
            path_, " does not list in this file");
      tensors_.push_back(tensor);
    }
    if (!expected.empty())
      fail(name, ": lacks tensor '", printable(*expected.begin()), "', which ", path_, " lists in this file");
    metadata_.insert(file.metadata().begin(), file.metadata().end());
  }
  form_ = text(source_->torch ? "PyTorch archives in " : "safetensors in ", shards.size(), " files");
  source_->file = std::move(shards);
}

WeightFile::~WeightFile() = default;

std::string checksum_of_weights(const std::string& path) {
  if (!is_index_name(path)) return MappedFile(path).checksum();
  std::string all;
  for (const auto& [file, tensors] : read_shard_index(path).files) all += MappedFile(file).checksum();
  return checksum_of(std::as_bytes(std::span(all)));
}

void WeightFile::forget(const TensorView& view) const {
  // Views of an archive may be in separate memory, which would be lost.
  if (source_->torch) return;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(view.bytes.data());
  // Only whole pages, since pages at the ends also belong to neighbours.
  const uintptr_t first = (begin + page - 1) / page * page, last = (begin + view.bytes.size()) / page * page;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace tessera
