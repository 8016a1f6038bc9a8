// Tar archives: random access to their files (ustar, pax, GNU long names; plain or gzipped), and a writer.
//
// Nothing is unpacked under names from the archive, so absolute names and ".." are harmless and not
// changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/files/file.h"
#include "io/files/gzip.h"

namespace tessera {

// A regular file in an archive. `name` is valid for the archive's lifetime (also after a move).
struct TarMember {
  std::string_view name;
  uint64_t offset = 0;  // first byte in the unpacked archive
  uint64_t size = 0;
};

// The members of an archive, and the memory of their names.
struct TarIndex {
  std::unique_ptr<std::pmr::monotonic_buffer_resource> names;
  std::vector<TarMember> members;
};

// The parser alone, for bytes in memory (and for fuzzing). `path` is for error messages.
TarIndex index_tar(std::span<const std::byte> archive, const std::string& path);

// The files of one archive, in its order. Directories are left out; hard links become the linked file. A
// gzipped archive (detected by its bytes) is inflated once, into a temporary file in $TMPDIR or
// /tmp.
//
// Throws an error with the archive and the member: truncated, no end mark, a broken header, a member longer
// than the archive, symbolic links, devices, sparse and multi-volume members, names with control characters,
// gzip data that inflates beyond `limits`.
class TarArchive {
 public:
  explicit TarArchive(const std::string& path, const InflateLimits& limits = {});

  const std::string& path() const { return path_; }
  const std::vector<TarMember>& members() const { return index_.members; }
  // Returns the bytes of a member: a view, valid for the archive's lifetime. Thread-safe; copies nothing.
  std::span<const std::byte> bytes(size_t member) const;

 private:
  std::string path_;
  MappedFile file_;  // unpacked
  TarIndex index_;
};

// Writes an archive front to back: ustar, with a pax header if a name or a size needs one. Equal members give
// equal bytes (times and owners are not stored). Gzipped if the path ends in ".gz" or ".tgz".
class TarWriter {
 public:
  explicit TarWriter(const std::string& path);
  ~TarWriter();  // removes the unfinished file unless committed
  TarWriter(const TarWriter&) = delete;
  void add(std::string_view name, std::span<const std::byte> content);
  void add(std::string_view name, std::string_view content);
  // Returns the bytes added so far, before compression, headers included.
  uint64_t size() const;
  // Closes the archive and moves it into place (see AtomicFile).
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
