#include "io/files/zip.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <unordered_set>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"

namespace tessera {
namespace {

constexpr size_t kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20, kEntryBytes = 46, kLocalBytes = 30;
constexpr uint64_t kMaxComment = 65535, kMaxName = 1024;

// Reads little-endian numbers of one record, which has all its bytes.
class Record {
 public:
  explicit Record(std::span<const std::byte> bytes) : bytes_(bytes) {}
  uint64_t number(size_t offset, size_t length) const {
    uint64_t out = 0;
    for (size_t i = length; i-- > 0;) out = out << 8 | std::to_integer<uint64_t>(bytes_[offset + i]);
    return out;
  }
  uint64_t u16(size_t offset) const { return number(offset, 2); }
  uint64_t u32(size_t offset) const { return number(offset, 4); }
  uint64_t u64(size_t offset) const { return number(offset, 8); }

 private:
  std::span<const std::byte> bytes_;
};

struct Directory {
  uint64_t begin = 0, size = 0, entries = 0;
};

struct Extent {
  uint64_t begin = 0, end = 0;
  size_t entry = 0;
};

class Indexer {
 public:
  Indexer(std::span<const std::byte> archive, const std::string& path) : archive_(archive), path_(path) {}

  std::vector<ZipEntry> run() {
    const Directory directory = find_directory();
    check(directory.entries <= directory.size / kEntryBytes, path_, ": the zip directory has ",
          directory.size, " bytes, too few for ", directory.entries, " entries");
    entries_.reserve(directory.entries);
    uint64_t at = directory.begin;
    for (uint64_t i = 0; i < directory.entries; ++i)
      at = read_entry(at, directory.begin + directory.size, directory.begin);
    check_overlaps();
    return std::move(entries_);
  }

 private:
  std::optional<Record> record(uint64_t at, uint64_t length) const {
    if (at > archive_.size() || length > archive_.size() - at) return std::nullopt;
    return Record(archive_.subspan(at, length));
  }

  // Finds the end record: at the end of the file, before a comment whose length it states.
  Directory find_directory() const {
    const uint64_t size = archive_.size();
    const uint64_t lowest = size > kEndBytes + kMaxComment ? size - kEndBytes - kMaxComment : 0;
    for (uint64_t at = size < kEndBytes ? 0 : size - kEndBytes + 1; at-- > lowest;) {
      const Record end = *record(at, kEndBytes);
      if (end.u32(0) != 0x06054B50 || at + kEndBytes + end.u16(20) != size) continue;
      Directory out{end.u32(16), end.u32(12), end.u16(10)};
      uint64_t directory_end = at;
      check(end.u16(4) == 0 || end.u16(4) == 0xFFFF, path_, ": a zip archive of several volumes");
      if (const auto locator = at < kLocatorBytes ? std::nullopt : record(at - kLocatorBytes, kLocatorBytes);
          locator && locator->u32(0) == 0x07064B50)
        out = read_end64(locator->u64(8), directory_end);
      check(out.begin <= directory_end && out.size <= directory_end - out.begin, path_,
            ": the zip directory is outside the file");
      return out;
    }
    fail(path_, ": is no zip archive, or truncated: it has no end mark");
  }

  Directory read_end64(uint64_t at, uint64_t& directory_end) const {
    const auto end = at < directory_end ? record(at, kEnd64Bytes) : std::nullopt;
    check(end && end->u32(0) == 0x06064B50, path_,
          ": the zip archive's 64-bit end mark is not where it should be");
    check(end->u32(16) == 0 && end->u32(20) == 0, path_, ": a zip archive of several volumes");
    directory_end = at;
    return {end->u64(48), end->u64(40), end->u64(32)};
  }

  // Reads the directory entry at `at` and returns the position of the next.
  uint64_t read_entry(uint64_t at, uint64_t end, uint64_t data_end) {
    const auto header = end - at < kEntryBytes ? std::nullopt : record(at, kEntryBytes);
    check(header && header->u32(0) == 0x02014B50, path_, ": the zip directory is damaged at byte ", at);
    const uint64_t name_length = header->u16(28), extra_length = header->u16(30),
                   comment_length = header->u16(32);
    const uint64_t next = at + kEntryBytes + name_length + extra_length + comment_length;
    check(next <= end, path_, ": the zip directory is damaged at byte ", at);
    check(name_length >= 1 && name_length <= kMaxName, path_, ": a zip entry's name has ", name_length,
          " bytes, must have 1 to ", kMaxName);
    const std::string name(as_text(archive_.subspan(at + kEntryBytes, name_length)));
    const auto where = [&] { return text(path_, ": zip entry '", printable(name), "'"); };
    check(names_.insert(name).second, where(), " occurs twice in the directory");
    check((header->u16(8) & 1) == 0, where(), " is encrypted");
    const bool stored = header->u16(10) == 0;
    uint64_t unpacked = header->u32(24), packed = header->u32(20), local = header->u32(42);
    read_extra64(archive_.subspan(at + kEntryBytes + name_length, extra_length), {&unpacked, &packed, &local},
                 where());
    check(!stored || unpacked == packed, where(), " is stored, but its two sizes differ: ", unpacked, " and ",
          packed);

    const auto own = record(local, kLocalBytes);
    check(own && own->u32(0) == 0x04034B50, where(), " has no header of its own at byte ", local);
    const uint64_t begin = local + kLocalBytes + own->u16(26) + own->u16(28);
    check(begin <= data_end && packed <= data_end - begin, where(), " has ", packed,
          " bytes and would end outside the file");
    check(own->u16(26) == name_length && as_text(archive_.subspan(local + kLocalBytes, name_length)) == name,
          where(), " has another name in its own header");
    extents_.push_back({local, begin + packed, entries_.size()});
    entries_.push_back({.name = name,
                        .bytes = archive_.subspan(begin, packed),
                        .stored = stored,
                        .method = static_cast<int>(header->u16(10)),
                        .unpacked = unpacked,
                        .sum = static_cast<uint32_t>(header->u32(16))});
    return next;
  }

  // Zip64: numbers beyond 32 bits are in an extra field, in a fixed order.
  static void read_extra64(std::span<const std::byte> extra, std::initializer_list<uint64_t*> numbers,
                           const std::string& where) {
    constexpr uint64_t elsewhere = 0xFFFFFFFF;
    std::span<const std::byte> field;
    while (extra.size() >= 4) {
      const uint64_t id = Record(extra).u16(0), length = Record(extra).u16(2);
      if (length > extra.size() - 4) break;
      if (id == 1) field = extra.subspan(4, length);
      extra = extra.subspan(4 + length);
    }
    for (uint64_t* number : numbers) {
      if (*number != elsewhere) continue;
      check(field.size() >= 8, where, " lacks its 64-bit sizes");
      *number = Record(field).u64(0);
      field = field.subspan(8);
    }
  }

  void check_overlaps() {
    std::sort(extents_.begin(), extents_.end(), [](const Extent& a, const Extent& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    for (size_t i = 1; i < extents_.size(); ++i)
      if (extents_[i].begin < extents_[i - 1].end)
        fail(path_, ": zip entry '", printable(entries_[extents_[i].entry].name), "' overlaps '",
             printable(entries_[extents_[i - 1].entry].name), "'");
  }

  std::span<const std::byte> archive_;
  const std::string& path_;
  std::vector<ZipEntry> entries_;
  std::vector<Extent> extents_;
  std::unordered_set<std::string> names_;
};

}  // namespace

std::vector<ZipEntry> index_zip(std::span<const std::byte> archive, const std::string& path) {
  return Indexer(archive, path).run();
}

}  // namespace tessera
