#include "io/files/zip.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/text.h"

namespace tessera {
namespace {

constexpr size_t kMostDimensions = 8;
constexpr uint64_t kMostHeader = 65536;
constexpr size_t kPieceBytes = size_t{1} << 20;
constexpr int64_t kMostText = 65536;   // characters of a text
constexpr uint64_t kMostRatio = 1040;  // deflate's own limit is 1032

std::string_view ending() { return ".npy"; }

// Returns a key's value in NumPy's dictionary: {'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }.
std::string_view value_of(std::string_view words, std::string_view key, const std::string& where) {
  const std::string quoted = text("'", key, "':");
  const size_t at = words.find(quoted);
  check(at != std::string_view::npos, where, ": the header of the array has no ", key);
  std::string_view rest = trim(words.substr(at + quoted.size()));
  const size_t end = rest.starts_with('(') ? rest.find(')') : rest.find(',');
  check(end != std::string_view::npos, where, ": the header of the array has no end after ", key);
  return rest.starts_with('(') ? rest.substr(1, end - 1) : trim(rest.substr(0, end));
}

// Sets the type of texts, '<U7' with 4 bytes a character or '|S7'. Returns false for other types.
bool set_text_type(NpyHeader& header, std::string_view descr) {
  const bool wide = descr.starts_with("'<U"), narrow = descr.starts_with("'|S");
  if (!(wide || narrow) || !descr.ends_with('\'')) return false;
  const auto length = parse_int(descr.substr(3, descr.size() - 4));
  if (!length || *length < 1 || *length > kMostText) return false;
  header.dtype = DType::u8;
  header.kind = wide ? NpyKind::characters : NpyKind::bytes;
  header.element = static_cast<size_t>(*length) * (wide ? 4 : 1);
  return true;
}

void set_type(NpyHeader& header, std::string_view descr, const std::string& where) {
  static constexpr std::pair<std::string_view, DType> known[] = {
      {"'<f8'", DType::f64}, {"'<f4'", DType::f32}, {"'<f2'", DType::f16}, {"'<i8'", DType::i64},
      {"'<i4'", DType::i32}, {"'<i2'", DType::i16}, {"'|i1'", DType::i8},  {"'|u1'", DType::u8},
      {"'<u8'", DType::i64}, {"'<u4'", DType::i32}, {"'<u2'", DType::i16}, {"'|b1'", DType::boolean}};
  for (const auto& [name, dtype] : known)
    if (descr == name) {
      header.dtype = dtype;
      header.kind = name.starts_with("'<u") ? NpyKind::without_sign : NpyKind::numbers;
      header.element = size_of(dtype);
      return;
    }
  if (set_text_type(header, descr)) return;
  if (descr == "'|O'") fail(where, ": Python objects are not read; save texts as array.astype(str)");
  fail(where, ": elements of type ", printable(descr),
       " are not read, must be u1, u2, u4, u8, i1, i2, i4, i8, f2, f4, f8, b1, U or S, little-endian");
}

std::vector<int64_t> shape_of(std::string_view tuple, const std::string& where) {
  std::vector<int64_t> shape;
  for (const std::string& part : split(tuple, ',')) {
    const std::string_view digits = trim(part);
    if (digits.empty()) continue;  // after the last comma
    const auto extent = parse_int(digits);
    check(extent && *extent >= 0, where, ": '", printable(digits), "' is no extent of an array");
    shape.push_back(*extent);
  }
  check(shape.size() <= kMostDimensions, where, ": an array of ", shape.size(), " dimensions, at most ",
        kMostDimensions, " are read");
  return shape;
}

uint32_t crc(uint32_t sum, std::span<const std::byte> bytes) {
  return static_cast<uint32_t>(::crc32_z(sum, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

// Unpacks a deflated entry into a temporary file.
std::shared_ptr<const MappedFile> inflated(const ZipEntry& entry, const std::string& where) {
  check(entry.unpacked / kMostRatio <= entry.bytes.size() + 1, where, ": ", entry.bytes.size(),
        " bytes cannot be deflated from ", entry.unpacked);
  TemporaryFile file(text("unpacking ", where));
  z_stream stream{};
  check(inflateInit2(&stream, -15) == Z_OK, where, ": not enough memory to inflate");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> ending_of(&stream,
                                                                [](z_stream* s) { return inflateEnd(s); });
  std::vector<std::byte> piece(kPieceBytes);
  std::span<const std::byte> left = entry.bytes;
  uint64_t made = 0;
  uint32_t sum = 0;
  for (int result = Z_OK; result != Z_STREAM_END;) {
    if (stream.avail_in == 0 && !left.empty()) {
      const size_t now = std::min(left.size(), kPieceBytes);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(left.data()));
      stream.avail_in = static_cast<uInt>(now);
      left = left.subspan(now);
    }
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
    result = inflate(&stream, Z_NO_FLUSH);
    const size_t count = piece.size() - stream.avail_out;
    check(result == Z_OK || result == Z_STREAM_END, where, ": its deflated bytes are damaged or truncated");
    made += count;
    check(made <= entry.unpacked, where, ": unpacks to more than the ", entry.unpacked, " bytes stated");
    const auto bytes = std::span<const std::byte>(piece).first(count);
    sum = crc(sum, bytes);
    file.write(bytes);
  }
  check(made == entry.unpacked, where, ": unpacks to ", made, " bytes, must be ", entry.unpacked);
  check(sum == entry.sum, where, ": its check sum is wrong, the file is damaged");
  return std::make_shared<const MappedFile>(file.map());
}

// Converts column-major numbers to row-major order.
std::shared_ptr<std::vector<std::byte>> transposed(std::span<const std::byte> bytes,
                                                   const std::vector<int64_t>& shape, size_t size) {
  auto out = std::make_shared<std::vector<std::byte>>(bytes.size());
  std::vector<int64_t> place(shape.size(), 0);
  for (size_t from = 0; from < bytes.size(); from += size) {
    int64_t to = 0;
    for (size_t d = 0; d < shape.size(); ++d) to = to * shape[d] + place[d];
    std::memcpy(out->data() + static_cast<size_t>(to) * size, bytes.data() + from, size);
    for (size_t d = 0; d < shape.size(); ++d) {  // the first extent runs fastest
      if (++place[d] < shape[d]) break;
      place[d] = 0;
    }
  }
  return out;
}

template <class Number>
std::vector<double> doubles(const NpzArray& array) {
  std::vector<double> out(static_cast<size_t>(array.numel()));
  for (size_t i = 0; i < out.size(); ++i) {
    Number number;
    std::memcpy(&number, array.bytes.data() + i * sizeof(Number), sizeof(Number));
    out[i] = static_cast<double>(number);
  }
  return out;
}

// Adds a character of 4 bytes; one that is none as U+FFFD.
void add_utf8(std::string& out, std::span<const std::byte> character) {
  uint32_t code = 0;
  std::memcpy(&code, character.data(), sizeof code);
  if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) code = 0xfffd;
  const auto add = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) return add(code);
  if (code < 0x800) return add(0xc0 | code >> 6), add(0x80 | (code & 63));
  if (code < 0x10000)
    add(0xe0 | code >> 12);
  else
    add(0xf0 | code >> 18), add(0x80 | (code >> 12 & 63));
  add(0x80 | (code >> 6 & 63)), add(0x80 | (code & 63));
}

}  // namespace

NpyHeader parse_npy_header(std::span<const std::byte> bytes, const std::string& where) {
  const auto at = [&](size_t i) { return std::to_integer<uint64_t>(bytes[i]); };
  check(bytes.size() >= 10 && as_text(bytes.first(6)) == "\x93NUMPY", where, ": is no array of NumPy");
  const uint64_t version = at(6);
  check(version >= 1 && version <= 3, where, ": NumPy's format ", version, " is not known, must be 1 to 3");
  const size_t front = version == 1 ? 10 : 12;
  check(bytes.size() >= front, where, ": is truncated");
  uint64_t length = at(8) | at(9) << 8;
  if (version > 1) length |= at(10) << 16 | at(11) << 24;
  check(length <= kMostHeader, where, ": a header of ", length, " bytes, at most ", kMostHeader, " are read");
  check(length <= bytes.size() - front, where, ": is truncated in its header");
  const std::string_view words = as_text(bytes.subspan(front, length));
  NpyHeader header;
  header.bytes = front + length;
  set_type(header, value_of(words, "descr", where), where);
  const std::string_view order = value_of(words, "fortran_order", where);
  check(order == "True" || order == "False", where, ": fortran_order is ", printable(order),
        ", must be True or False");
  header.fortran_order = order == "True";
  header.shape = shape_of(value_of(words, "shape", where), where);
  uint64_t expected = header.element;
  for (const int64_t extent : header.shape)
    check(!__builtin_mul_overflow(expected, static_cast<uint64_t>(extent), &expected), where,
          ": the size of the array overflows");
  check(expected == bytes.size() - header.bytes, where, ": the array needs ", expected, " bytes, there are ",
        bytes.size() - header.bytes);
  return header;
}

NpzFile::NpzFile(const std::string& path) : path_(path), file_(std::make_shared<const MappedFile>(path)) {
  entries_ = index_zip(file_->bytes(), path);
}

std::vector<std::string> NpzFile::names() const {
  std::vector<std::string> out;
  for (const ZipEntry& entry : entries_)
    if (entry.name.ends_with(ending()))
      out.push_back(entry.name.substr(0, entry.name.size() - ending().size()));
  return out;
}

bool NpzFile::holds(const std::string& name) const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const ZipEntry& entry) { return entry.name == name + std::string(ending()); });
}

NpzArray NpzFile::read(const std::string& name) const {
  const auto entry = std::find_if(entries_.begin(), entries_.end(), [&](const ZipEntry& other) {
    return other.name == name + std::string(ending());
  });
  if (entry == entries_.end())
    fail("'", path_, "' has no array '", printable(name), "', it holds ", printable(join(names(), ", ")));
  const std::string where = text("'", path_, "': array '", printable(name), "'");
  check(entry->stored || entry->method == 8, where, ": is compressed by method ", entry->method,
        ", must be stored or deflated");
  NpzArray array;
  array.name = name;
  std::span<const std::byte> bytes = entry->bytes;
  array.memory = file_;
  if (!entry->stored) {
    const auto unpacked = inflated(*entry, where);
    bytes = unpacked->bytes();
    array.memory = unpacked;
  } else {
    check(crc(0, bytes) == entry->sum, where, ": its check sum is wrong, the file is damaged");
  }
  const NpyHeader header = parse_npy_header(bytes, where);
  array.dtype = header.dtype;
  array.kind = header.kind;
  array.element = header.element;
  array.shape = header.shape;
  array.bytes = bytes.subspan(header.bytes);
  if (header.fortran_order && array.shape.size() > 1) {
    const auto rows = transposed(array.bytes, array.shape, array.element);
    array.bytes = *rows;
    array.memory = rows;
  }
  return array;
}

std::vector<double> NpzFile::read_doubles(const std::string& name, std::vector<int64_t>& shape,
                                          int64_t most) const {
  const NpzArray array = read(name);
  check(array.numel() <= most, "'", path_, "': array '", printable(name), "' has ", array.numel(),
        " numbers, at most ", most, " are read here");
  check(!array.is_text(), "'", path_, "': array '", printable(name), "' holds texts, must hold numbers");
  shape = array.shape;
  const bool no_sign = array.kind == NpyKind::without_sign;
  switch (array.dtype) {
    case DType::f64:
      return doubles<double>(array);
    case DType::f32:
      return doubles<float>(array);
    case DType::i64:
      return no_sign ? doubles<uint64_t>(array) : doubles<int64_t>(array);
    case DType::i32:
      return no_sign ? doubles<uint32_t>(array) : doubles<int32_t>(array);
    case DType::i16:
      return no_sign ? doubles<uint16_t>(array) : doubles<int16_t>(array);
    case DType::i8:
      return doubles<int8_t>(array);
    case DType::u8:
    case DType::boolean:
      return doubles<uint8_t>(array);
    default:
      fail("'", path_, "': array '", printable(name),
           "' holds neither floats of 32 or 64 bits nor whole numbers");
  }
}

std::vector<std::string> NpzFile::read_texts(const std::string& name, std::vector<int64_t>& shape) const {
  const NpzArray array = read(name);
  check(array.is_text(), "'", path_, "': array '", printable(name), "' holds numbers, must hold texts");
  shape = array.shape;
  std::vector<std::string> texts;
  for (int64_t i = 0; i < array.numel(); ++i) {
    const auto element = array.bytes.subspan(static_cast<size_t>(i) * array.element, array.element);
    std::string content;
    if (array.kind == NpyKind::bytes)
      content = as_text(element);
    else
      for (size_t at = 0; at < element.size(); at += 4) add_utf8(content, element.subspan(at, 4));
    content.resize(content.find_last_not_of('\0') + 1);
    texts.push_back(std::move(content));
  }
  return texts;
}

}  // namespace tessera
