#include "io/files/tar.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "core/text.h"

namespace tessera {
namespace {

constexpr uint64_t kBlock = 512;
constexpr uint64_t kMaxExtension = uint64_t{1} << 20;  // a pax header or a GNU long name
constexpr size_t kMaxName = 4096;
constexpr uint64_t kRecord = 10240;  // archives are padded to a multiple of this, as by tar

uint64_t round_up(uint64_t size, uint64_t to) { return (size + to - 1) / to * to; }

// Returns a header field up to its first NUL.
std::string_view field(std::span<const std::byte> header, size_t offset, size_t length) {
  const std::string_view all = as_text(header.subspan(offset, length));
  return all.substr(0, all.find('\0'));
}

// Parses octal digits with optional spaces, or GNU's base 256 (top bit set). Returns nothing if it is neither
// or exceeds 63 bits.
std::optional<uint64_t> number(std::span<const std::byte> header, size_t offset, size_t length) {
  const auto raw = header.subspan(offset, length);
  if ((raw[0] & std::byte{0x80}) != std::byte{0}) {
    uint64_t value = std::to_integer<uint64_t>(raw[0] & std::byte{0x7F});
    for (const std::byte b : raw.subspan(1)) {
      if (value >> 55) return std::nullopt;
      value = value << 8 | std::to_integer<uint64_t>(b);
    }
    return value;
  }
  uint64_t value = 0;
  for (const char c : trim(field(header, offset, length))) {
    if (c < '0' || c > '7') return std::nullopt;
    value = value << 3 | static_cast<uint64_t>(c - '0');
  }
  return value;
}

// Sums the header with the checksum field as spaces; old tars summed signed characters.
bool checksum_agrees(std::span<const std::byte> header) {
  int64_t plain = 8 * ' ', with_sign = 8 * ' ';
  for (size_t i = 0; i < kBlock; ++i) {
    if (i >= 148 && i < 156) continue;
    plain += std::to_integer<unsigned char>(header[i]);
    with_sign += static_cast<signed char>(header[i]);
  }
  const auto said = number(header, 148, 8);
  return said && (static_cast<int64_t>(*said) == plain || static_cast<int64_t>(*said) == with_sign);
}

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

class Indexer {
 public:
  Indexer(std::span<const std::byte> archive, const std::string& path) : archive_(archive), path_(path) {}

  TarIndex run() {
    check(!archive_.empty(), path_, ": is empty, must be a tar archive");
    while (read_header()) {
    }
    check(extension_.empty(), path_, ": ends after the header for a long name");
    const auto rest = archive_.subspan(std::min<size_t>(at_, archive_.size()));
    check(all_zero(rest), path_, ": bytes after the end of the archive at byte ", at_,
          " (are several archives in one file?)");
    return {std::move(names_), std::move(members_)};
  }

 private:
  // Holds the settings of pax headers and GNU long names for the next member.
  struct Extension {
    std::optional<std::string> name, link;
    std::optional<uint64_t> size;
    bool sparse = false;
    bool seen = false;
    bool empty() const { return !seen; }
  };

  std::string last() const {
    return members_.empty() ? "" : text(" (after member '", members_.back().name, "')");
  }

  // Reads one header and its content; returns false at the end-of-archive mark.
  bool read_header() {
    if (archive_.size() - at_ < kBlock)
      fail(path_, ": truncated at byte ", archive_.size(), ": no end mark", last());
    const auto header = archive_.subspan(at_, kBlock);
    if (all_zero(header)) {
      at_ += kBlock;
      return false;
    }
    check(checksum_agrees(header), path_, ": no tar header at byte ", at_, last(),
          at_ == 0 ? ": is it a tar archive?" : "");
    const auto size = number(header, 124, 12);
    const char type = static_cast<char>(header[156]);
    std::string name = extension_.name ? *extension_.name : ustar_name(header);
    check_name(name);
    check(size.has_value(), path_, ": member '", name, "' has no readable size");
    const uint64_t bytes = extension_.size && !is_extension(type) ? *extension_.size : *size;
    const uint64_t begin = at_ + kBlock, room = archive_.size() - begin;
    const bool has_content = type != '1' && type != '2' && type != '5';
    if (has_content && bytes > room)
      fail(path_, ": truncated: member '", name, "' has ", bytes, " bytes, the archive ends after ", room);
    at_ = begin + (has_content ? std::min(round_up(bytes, kBlock), room) : 0);
    if (is_extension(type)) {
      read_extension(type, archive_.subspan(begin, bytes), name);
    } else {
      add(type, std::move(name), header, begin, bytes);
      extension_ = {};
    }
    return true;
  }

  static bool is_extension(char type) { return type == 'x' || type == 'g' || type == 'L' || type == 'K'; }

  std::string ustar_name(std::span<const std::byte> header) const {
    std::string name(field(header, 0, 100));
    // GNU's magic is "ustar  ", and its tar uses the prefix for other data.
    if (as_text(header.subspan(257, 6)) == std::string_view("ustar\0", 6))
      if (const auto prefix = field(header, 345, 155); !prefix.empty()) name = text(prefix, "/", name);
    return name;
  }

  void check_name(const std::string& name) const {
    check(!name.empty(), path_, ": a member without a name at byte ", at_, last());
    check(name.size() <= kMaxName, path_, ": a member name of ", name.size(), " characters at byte ", at_,
          ", at most ", kMaxName);
    const bool control =
        std::any_of(name.begin(), name.end(), [](char c) { return (c >= 0 && c < ' ') || c == 0x7F; });
    check(!control, path_, ": a member name with control characters at byte ", at_, last());
  }

  void read_extension(char type, std::span<const std::byte> content, const std::string& name) {
    check(content.size() <= kMaxExtension, path_, ": header '", name, "' of ", content.size(),
          " bytes, at most ", kMaxExtension);
    if (type == 'x' || type == 'g') {
      Extension read = type == 'x' ? extension_ : Extension{};
      read_pax(as_text(content), name, read);
      // A global header applies to all members, so a name or a size in it makes no sense.
      if (type == 'x')
        extension_ = read;
      else
        check(!read.name && !read.link && !read.size, path_, ": global header '", name,
              "' sets a name or a size");
    } else {
      const std::string_view all = as_text(content);
      (type == 'L' ? extension_.name : extension_.link) = std::string(all.substr(0, all.find('\0')));
    }
    if (type != 'g') extension_.seen = true;
  }

  // Parses records "LENGTH KEY=VALUE
  // "; the length includes the whole record.
  void read_pax(std::string_view records, const std::string& name, Extension& out) const {
    while (!records.empty()) {
      const size_t space = records.find(' ');
      const auto length = parse_int(records.substr(0, std::min<size_t>(space, 20)));
      const bool fits = space != std::string_view::npos && length &&
                        *length > static_cast<int64_t>(space) + 1 &&
                        static_cast<uint64_t>(*length) <= records.size();
      check(fits && records[static_cast<size_t>(*length) - 1] == '\n', path_, ": pax header '", name,
            "' holds a broken record");
      const std::string_view record = records.substr(space + 1, static_cast<size_t>(*length) - space - 2);
      records.remove_prefix(static_cast<size_t>(*length));
      const size_t equals = record.find('=');
      check(equals != std::string_view::npos, path_, ": pax header '", name, "' holds a broken record");
      const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
      if (key == "path") {
        out.name = std::string(value);
      } else if (key == "linkpath") {
        out.link = std::string(value);
      } else if (key == "size") {
        const auto size = parse_int(value);
        check(size && *size >= 0, path_, ": pax header '", name, "' holds the size '", printable(value, 40),
              "'");
        out.size = static_cast<uint64_t>(*size);
      } else if (key.starts_with("GNU.sparse.")) {
        out.sparse = true;
      }
    }
  }

  void add(char type, std::string name, std::span<const std::byte> header, uint64_t begin, uint64_t bytes) {
    const auto refuse = [&](const char* what) {
      fail(path_, ": member '", name, "' is ", what, ", must be a regular file");
    };
    if (extension_.sparse || type == 'S') refuse("a sparse file");
    if (type == '5') return;
    if (type == '0' || type == '\0' || type == '7') {
      if (type == '\0' && name.back() == '/') return;  // a directory, as the oldest tars wrote it
      push(name, begin, bytes);
    } else if (type == '1') {
      push_hard_link(name, extension_.link ? *extension_.link : std::string(field(header, 157, 100)));
    } else if (type == '2') {
      refuse("a symbolic link");
    } else if (type == '3' || type == '4' || type == '6') {
      refuse("a device or a pipe");
    } else if (type == 'M') {
      refuse("a part of a multi-volume archive");
    } else if (type != 'V') {  // V: the archive's own label
      fail(path_, ": member '", name, "' has the unknown type ", static_cast<int>(type),
           ", must be a regular file");
    }
  }

  void push(const std::string& name, uint64_t begin, uint64_t bytes) {
    char* kept = static_cast<char*>(names_->allocate(name.size(), 1));
    std::memcpy(kept, name.data(), name.size());
    members_.push_back({{kept, name.size()}, begin, bytes});
  }

  // The first hard link triggers building the table of names, since archives rarely contain any.
  void push_hard_link(const std::string& name, const std::string& target) {
    for (; linkable_ < members_.size(); ++linkable_) by_name_[members_[linkable_].name] = linkable_;
    const auto found = by_name_.find(target);
    check(found != by_name_.end(), path_, ": member '", name, "' is a hard link to '", printable(target),
          "', which does not precede it");
    push(name, members_[found->second].offset, members_[found->second].size);
  }

  std::span<const std::byte> archive_;
  const std::string& path_;
  std::unique_ptr<std::pmr::monotonic_buffer_resource> names_ =
      std::make_unique<std::pmr::monotonic_buffer_resource>();
  std::vector<TarMember> members_;
  std::unordered_map<std::string_view, size_t> by_name_;
  size_t linkable_ = 0;
  Extension extension_;
  uint64_t at_ = 0;
};

}  // namespace

TarIndex index_tar(std::span<const std::byte> archive, const std::string& path) {
  return Indexer(archive, path).run();
}

namespace {

// Returns the name of an unsupported compression, for the error message.
const char* other_compression(std::span<const std::byte> bytes) {
  const std::string_view start = as_text(bytes.first(std::min<size_t>(bytes.size(), 6)));
  if (start.starts_with("\x28\xB5\x2F\xFD")) return "zstd";
  if (start.starts_with("\xFD\x37zXZ")) return "xz";
  if (start.starts_with("BZh")) return "bzip2";
  if (start.starts_with("PK\x03\x04")) return "zip";
  return nullptr;
}

}  // namespace

TarArchive::TarArchive(const std::string& path, const InflateLimits& limits) : path_(path), file_(path) {
  if (const char* other = other_compression(file_.bytes()))
    fail(path, ": is packed with ", other, ", must be a tar archive, plain or gzipped");
  if (is_gzip(file_.bytes())) {
    TemporaryFile unpacked(text("unpacking '", path, "'"));
    inflate_gzip(file_.bytes(), path, limits, [&](auto piece) { unpacked.write(piece); });
    file_ = unpacked.map();
  }
  index_ = index_tar(file_.bytes(), path);
}

std::span<const std::byte> TarArchive::bytes(size_t member) const {
  const TarMember& m = index_.members.at(member);
  return file_.bytes().subspan(m.offset, m.size);
}

// --- writing

struct TarWriter::State {
  explicit State(const std::string& path) : file(path) {
    if (path.ends_with(".gz") || path.ends_with(".tgz"))
      gzip = std::make_unique<GzipEncoder>([this](auto piece) { file.write(piece); });
  }

  void write(std::span<const std::byte> bytes) {
    size += bytes.size();
    if (gzip)
      gzip->write(bytes);
    else
      file.write(bytes);
  }

  void pad(uint64_t to) {
    static constexpr std::array<std::byte, kRecord> zeros{};
    write(std::span(zeros).first(round_up(size, to) - size));
  }

  void write_header(std::string_view name, uint64_t bytes, char type) {
    std::array<char, kBlock> header{};
    const auto put = [&](size_t offset, std::string_view value) {
      std::copy(value.begin(), value.end(), header.begin() + static_cast<std::ptrdiff_t>(offset));
    };
    const auto octal = [&](size_t offset, size_t digits, uint64_t value) {
      for (size_t i = digits; i-- > 0; value >>= 3) header[offset + i] = static_cast<char>('0' + (value & 7));
    };
    put(0, name.substr(0, 100));
    octal(100, 7, 0644);
    octal(108, 7, 0);  // owner, group
    octal(116, 7, 0);
    octal(124, 11, bytes);
    octal(136, 11, 0);  // time
    put(148, "        ");
    header[156] = type;
    put(257, std::string_view("ustar\00000", 8));
    uint64_t sum = 0;
    for (const char c : header) sum += static_cast<unsigned char>(c);
    octal(148, 6, sum);
    header[154] = '\0';
    write(as_bytes({header.data(), header.size()}));
  }

  AtomicFile file;
  std::unique_ptr<GzipEncoder> gzip;
  uint64_t size = 0;
};

namespace {

std::string pax_record(std::string_view key, std::string_view value) {
  const size_t rest = key.size() + value.size() + 3;  // blank, '=', newline
  size_t length = rest + 1;
  while (std::to_string(length).size() + rest != length) ++length;
  return text(length, " ", key, "=", value, "\n");
}

}  // namespace

TarWriter::TarWriter(const std::string& path) : state_(std::make_unique<State>(path)) {}
TarWriter::~TarWriter() = default;

void TarWriter::add(std::string_view name, std::span<const std::byte> content) {
  const bool control =
      std::any_of(name.begin(), name.end(), [](char c) { return (c >= 0 && c < ' ') || c == 0x7F; });
  check(!name.empty() && name.size() <= kMaxName && !control, "cannot add '", printable(name),
        "' to a tar archive: a name has 1 to ", kMaxName, " characters and no control characters");
  std::string pax;
  if (name.size() > 100) pax += pax_record("path", name);
  const bool large = content.size() >> 33;  // 11 octal digits
  if (large) pax += pax_record("size", std::to_string(content.size()));
  if (!pax.empty()) {
    state_->write_header(text("PaxHeaders/", name.substr(0, 80)), pax.size(), 'x');
    state_->write(as_bytes(pax));
    state_->pad(kBlock);
  }
  state_->write_header(name, large ? 0 : content.size(), '0');
  state_->write(content);
  state_->pad(kBlock);
}

void TarWriter::add(std::string_view name, std::string_view content) { add(name, as_bytes(content)); }

uint64_t TarWriter::size() const { return state_->size; }

void TarWriter::commit() {
  static constexpr std::array<std::byte, 2 * kBlock> end{};
  state_->write(end);
  state_->pad(kRecord);
  if (state_->gzip) state_->gzip->finish();
  state_->file.commit();
}

}  // namespace tessera
