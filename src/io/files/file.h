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
// The file must not be cut short while it is mapped: the kernel answers a read behind its end with SIGBUS.
class MappedFile {
 public:
  MappedFile() = default;  // no bytes
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&&) noexcept;
  MappedFile& operator=(MappedFile&&) noexcept;
  MappedFile(const MappedFile&) = delete;
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  friend class TemporaryFile;
  MappedFile(int descriptor, const std::string& path);
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// The whole file; an error if it is larger than `max_bytes`.
std::vector<std::byte> read_file(const std::string& path, uint64_t max_bytes = uint64_t{1} << 32);
std::string read_text(const std::string& path, uint64_t max_bytes = uint64_t{64} << 20);

// Writes beside, flushes, fsyncs, renames over `path`, fsyncs the directory. On any failure the old file
// stands and the temporary one is gone. Keeps the mode of the file it replaces and follows a symbolic link at
// `path`.
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
  // All is on the disk and no descriptor open: what is left to commit() is the rename. Optional.
  void finish();
  // After a failure in here the file at `path` is either the old one or the whole new one.
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A file that grows at its end: metrics, events. It is made if it does not exist.
class AppendFile {
 public:
  explicit AppendFile(const std::string& path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  // All of the bytes, handed to the system before this returns; on a failure none of them stay in the file.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void sync();  // fsync

 private:
  std::string path_;
  int descriptor_ = -1;
};

// A file without a name in $TMPDIR (or /tmp), gone with this object and its maps.
class TemporaryFile {
 public:
  // `purpose` ends the error line when the disk is full: "unpacking 'train.tar.gz'".
  explicit TemporaryFile(std::string purpose);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  void write(std::span<const std::byte> bytes);
  MappedFile map();

 private:
  std::string purpose_, directory_;
  int descriptor_ = -1;
};

void sync_directory(const std::string& directory);
// Gives a finished directory its name, atomically, and fsyncs the parent. What stood there before is then at
// `fresh` (for the caller to remove); where the file system cannot exchange two names it is at `fresh` +
// ".old" for a moment.
void move_directory(const std::string& fresh, const std::string& path);
// Makes `path` a symbolic link to `target`, replacing a link that is there by rename.
void replace_symlink(const std::string& target, const std::string& path);
// Gives a file a second name, so that both are one file. False where the file system, or the file, does not allow it.
bool link_file(const std::string& from, const std::string& to);
// Cuts a file to its first `size` bytes, and fsyncs it.
void cut_file(const std::string& path, uint64_t size);
// Makes a directory and its parents; no error if it is there.
void make_directories(const std::string& directory);
// Removes a file or a whole directory; no error if there is none.
void remove_all(const std::string& path);
// Removes what writers that were killed left in a directory (not below it): temporary files whose process is
// gone. Returns how many.
int remove_stale_temporaries(const std::string& directory);
bool file_exists(const std::string& path);  // a file or a directory

std::string checksum_of(std::span<const std::byte> bytes);  // XXH3-64, 16 hex digits
uint64_t free_disk_bytes(const std::string& path);  // of the file system that holds `path` (or its parent)

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace tessera
