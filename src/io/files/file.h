// Files: bounded reading, memory maps, and atomic writing that leaves either the old or the new file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

struct stat;

namespace tessera {

// A read-only memory map of a whole file. Throws Error with the path (no such file, is a directory, …). The
// file must not shrink while it is mapped: a read past its end raises SIGBUS.
class MappedFile {
 public:
  MappedFile() = default;  // no bytes
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&&) noexcept;
  MappedFile& operator=(MappedFile&&) noexcept;
  MappedFile(const MappedFile&) = delete;
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Returns checksum_of() the bytes. Pages that were read leave the memory of this process.
  std::string checksum() const;

 private:
  friend class TemporaryFile;
  MappedFile(int descriptor, const std::string& path);
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Returns the content of the file. Throws if it is larger than `max_bytes`, or a device or pipe of more than 256 MiB.
std::vector<std::byte> read_file(const std::string& path, uint64_t max_bytes = uint64_t{1} << 32);
std::string read_text(const std::string& path, uint64_t max_bytes = uint64_t{64} << 20);

// Returns the rest of the stream. Throws Error that names `name` if it has more than `max_bytes`.
std::vector<std::byte> read_stream(std::istream& in, const std::string& name, uint64_t max_bytes);

// Reads a line without its end, which is "\n" or "\r\n". Returns false at the end of the stream. For a line of
// more than `max_bytes` it skips the whole line and throws Error that names `name`.
bool read_line(std::istream& in, std::string& line, const std::string& name, uint64_t max_bytes);

// Writes to a temporary file next to `path`, flushes, fsyncs, renames it to `path`, and fsyncs the directory.
// On failure, keeps the old file and removes the temporary one. Keeps the mode of a replaced file and follows
// a symbolic link at `path`.
void write_file_atomic(const std::string& path, std::span<const std::byte> bytes);
void write_text_atomic(const std::string& path, std::string_view content);

// A file written front to back that takes effect only at commit() (same protocol).
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();  // removes the temporary file unless committed
  AtomicFile(const AtomicFile&) = delete;
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  // Returns the XXH3-64 of all written bytes, as 16 hex digits.
  std::string checksum() const;
  uint64_t size() const;
  // Writes everything to disk and closes the descriptor, so that commit() only renames. Optional.
  void finish();
  // If this fails, the file at `path` is either the old or the complete new one.
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A file that grows at its end: metrics, events. Created if missing.
class AppendFile {
 public:
  explicit AppendFile(const std::string& path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  // Passes all bytes to the system before it returns. On failure, none of them remain in the file.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void sync();  // fsync

 private:
  std::string path_;
  int descriptor_ = -1;
};

// An unnamed file in $TMPDIR (or /tmp), freed with this object and its maps.
class TemporaryFile {
 public:
  // `purpose` starts the error message if the disk is full: "unpacking 'train.tar.gz'".
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
// Renames a finished directory atomically and fsyncs the parent. An old directory at `path` is afterwards at
// `fresh`, and the caller removes it. If the file system cannot exchange two names, it is briefly at `fresh`
// + ".old".
void move_directory(const std::string& fresh, const std::string& path);
// Makes `path` a symbolic link to `target`; replaces an existing link by rename.
void replace_symlink(const std::string& target, const std::string& path);
// Hard-links a file to a second name. Returns false if the file system or the file does not allow it.
bool link_file(const std::string& from, const std::string& to);
// Truncates a file to `size` bytes and fsyncs it.
void cut_file(const std::string& path, uint64_t size);
// Creates a directory and its parents; an existing directory is not an error.
void make_directories(const std::string& directory);
// Removes a file or a whole directory; a missing one is not an error.
void remove_all(const std::string& path);
// Removes temporary files of killed writers in a directory (not below it), if their process no longer exists.
// Returns the number removed.
int remove_stale_temporaries(const std::string& directory);
bool file_exists(const std::string& path);  // a file or a directory

// Files that this process will replace, and therefore must not read.

// Registers an existing regular file that this process will replace. MappedFile, read_file and read_text then
// throw the usage error `refusal(path)` for it and for links to it. If a caller catches this error,
// AtomicFile throws it again. Call it before other threads read.
void refuse_to_read(const std::string& path, std::function<std::string(const std::string& path)> refusal);
// Throws the usage error for such a file.
void check_not_replaced(const struct stat& status, const std::string& path);
// Throws the error of an earlier attempt to read the file at `path`. Otherwise unregisters the file.
void begin_replacing(const std::string& path);

std::string checksum_of(std::span<const std::byte> bytes);  // XXH3-64, 16 hex digits
uint64_t free_disk_bytes(const std::string& path);          // on the file system of `path` (or its parent)

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace tessera
