// Files: bounded reading, memory maps, and writing that leaves either the old file or the whole new one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// A read-only memory map of a whole file. Throws Error naming the path (no such file, is a directory, …).
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&&) noexcept;
  MappedFile& operator=(MappedFile&&) noexcept;
  MappedFile(const MappedFile&) = delete;
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// The whole file; an error if it is larger than `max_bytes`.
std::vector<std::byte> read_file(const std::string& path, uint64_t max_bytes = uint64_t{1} << 32);
std::string read_text(const std::string& path, uint64_t max_bytes = uint64_t{64} << 20);

// Writes beside, flushes, fsyncs, renames over `path`, fsyncs the directory. On any failure the old file stands and
// the temporary one is gone.
void write_file_atomic(const std::string& path, std::span<const std::byte> bytes);
void write_text_atomic(const std::string& path, std::string_view content);

// A file that is written front to back and counts only once commit() returned (the same protocol).
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();  // without commit(): removes what was written
  AtomicFile(const AtomicFile&) = delete;
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  // XXH3-64 of all that was written, as 16 hex digits.
  std::string checksum() const;
  uint64_t size() const;
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

void sync_directory(const std::string& directory);
std::string checksum_of(std::span<const std::byte> bytes);  // XXH3-64, 16 hex digits
uint64_t free_disk_bytes(const std::string& path);          // of the file system that holds `path` (or its parent)

}  // namespace tessera
