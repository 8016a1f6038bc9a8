#include "io/weights/array_file.h"

#include <zlib.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"
#include "io/weights/safetensors.h"

namespace tessera {
namespace {

uint64_t bytes_of(const ArraySpec& array) {
  uint64_t bytes = size_of(array.dtype);
  for (const int64_t extent : array.shape)
    check(extent >= 0 && !__builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes), "array '",
          array.name, "' has a size that overflows");
  return bytes;
}

std::string little_endian(uint64_t number, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(number >> (8 * i) & 255);
  return out;
}

const char* numpy_type(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "<f8";
    case DType::f32:
      return "<f4";
    case DType::f16:
      return "<f2";
    case DType::i64:
      return "<i8";
    case DType::i32:
      return "<i4";
    case DType::i16:
      return "<i2";
    case DType::i8:
      return "|i1";
    case DType::u8:
      return "|u1";
    case DType::boolean:
      return "|b1";
    default:
      fail("NumPy has no element type for ", safetensors_name(dtype));
  }
}

// Version 1.0: magic, length, a Python dictionary, padded so that the numbers begin at a multiple of 64
// bytes.
std::string npy_header(const ArraySpec& array) {
  std::string shape;
  for (const int64_t extent : array.shape) shape += text(extent, ", ");
  if (array.shape.size() > 1) shape.resize(shape.size() - 2);
  std::string words = text("{'descr': '", numpy_type(array.dtype), "', 'fortran_order': False, 'shape': (",
                           trim(shape), "), }");
  constexpr size_t kFront = 10, kAlign = 64;
  words.append(kAlign - 1 - (kFront + words.size()) % kAlign, ' ');
  words += '\n';
  return std::string("\x93NUMPY\x01\x00", 8) + little_endian(words.size(), 2) + words;
}

}  // namespace

// Writes the parts of a format around the arrays' bytes.
class ArrayFile::Form {
 public:
  explicit Form(const std::string& path) : file_(path) {}
  virtual ~Form() = default;
  virtual void begin(const ArraySpec& array) = 0;
  virtual void write(std::span<const std::byte> bytes) { file_.write(bytes); }
  virtual void end(const ArraySpec& array) = 0;
  virtual void finish() {}
  void commit() { file_.commit(); }

 protected:
  AtomicFile file_;
};

class ArrayFile::Npy final : public Form {
 public:
  using Form::Form;
  void begin(const ArraySpec& array) override { file_.write(npy_header(array)); }
  void end(const ArraySpec&) override {}
};

// Entries are stored, with 64-bit sizes. The checksum is only known after the bytes, so a descriptor follows
// them (bit 3 of the flags).
class ArrayFile::Npz final : public Form {
 public:
  using Form::Form;

  void begin(const ArraySpec& array) override {
    const std::string header = npy_header(array);
    Entry& entry = entries_.emplace_back();
    entry.name = array.name + ".npy";
    entry.offset = file_.size();
    entry.bytes = header.size() + bytes_of(array);
    entry.sum = ::crc32(0, nullptr, 0);
    file_.write("PK\x03\x04" + front_of(entry) + little_endian(entry.name.size(), 2) +
                little_endian(kLocalExtra, 2) + entry.name + little_endian(1, 2) +
                little_endian(kLocalExtra - 4, 2) + little_endian(entry.bytes, 8) +
                little_endian(entry.bytes, 8));
    write(as_bytes(header));
  }

  void write(std::span<const std::byte> bytes) override {
    Entry& entry = entries_.back();
    entry.sum = ::crc32_z(entry.sum, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
    file_.write(bytes);
  }

  void end(const ArraySpec&) override {
    const Entry& entry = entries_.back();
    file_.write("PK\x07\x08" + little_endian(entry.sum, 4) + little_endian(entry.bytes, 8) +
                little_endian(entry.bytes, 8));
  }

  void finish() override {
    const uint64_t begin = file_.size();
    for (const Entry& entry : entries_)
      file_.write("PK\x01\x02" + little_endian(kVersion, 2) + front_of(entry, entry.sum) +
                  little_endian(entry.name.size(), 2) + little_endian(kCentralExtra, 2) +
                  std::string(10, '\0') /* comment, disk, attributes: 2 + 2 + 2 + 4 */ +
                  little_endian(kIn64, 4) + entry.name + little_endian(1, 2) +
                  little_endian(kCentralExtra - 4, 2) + little_endian(entry.bytes, 8) +
                  little_endian(entry.bytes, 8) + little_endian(entry.offset, 8));
    const uint64_t end = file_.size(), count = entries_.size();
    file_.write("PK\x06\x06" + little_endian(44, 8) + little_endian(kVersion, 2) +
                little_endian(kVersion, 2) + std::string(8, '\0') + little_endian(count, 8) +
                little_endian(count, 8) + little_endian(end - begin, 8) + little_endian(begin, 8));
    file_.write("PK\x06\x07" + std::string(4, '\0') + little_endian(end, 8) + little_endian(1, 4));
    file_.write("PK\x05\x06" + std::string(4, '\0') + little_endian(count, 2) + little_endian(count, 2) +
                little_endian(kIn64, 4) + little_endian(kIn64, 4) + std::string(2, '\0'));
  }

 private:
  struct Entry {
    std::string name;
    uint64_t offset = 0, bytes = 0;
    uLong sum = 0;
  };
  static constexpr uint64_t kVersion = 45;       // the first with 64-bit sizes
  static constexpr uint64_t kIn64 = 0xFFFFFFFF;  // "look at the 64-bit field"
  static constexpr uint64_t kLocalExtra = 20, kCentralExtra = 28;

  // Version, flags, method, time, date (1980-01-01), checksum, sizes: the same in both headers of an entry.
  static std::string front_of(const Entry&, uint64_t sum = 0) {
    return little_endian(kVersion, 2) + little_endian(8, 2) + little_endian(0, 2) + little_endian(0, 2) +
           little_endian(0x21, 2) + little_endian(sum, 4) + little_endian(kIn64, 4) + little_endian(kIn64, 4);
  }

  std::vector<Entry> entries_;
};

class ArrayFile::Safetensors final : public Form {
 public:
  Safetensors(const std::string& path, const std::vector<ArraySpec>& arrays) : Form(path) {
    nlohmann::ordered_json header = nlohmann::ordered_json::object();
    uint64_t at = 0;
    for (const ArraySpec& array : arrays) {
      const uint64_t end = at + bytes_of(array);
      header[array.name] = {
          {"dtype", safetensors_name(array.dtype)}, {"shape", array.shape}, {"data_offsets", {at, end}}};
      at = end;
    }
    std::string json = header.dump();
    json.append((8 - json.size() % 8) % 8, ' ');
    file_.write(little_endian(json.size(), 8) + json);
  }
  void begin(const ArraySpec&) override {}
  void end(const ArraySpec&) override {}
};

bool ArrayFile::knows(const std::string& path) { return path.ends_with(".npy") || holds_several(path); }

bool ArrayFile::holds_several(const std::string& path) {
  return path.ends_with(".npz") || path.ends_with(".safetensors");
}

ArrayFile::ArrayFile(const std::string& path, std::vector<ArraySpec> arrays) : arrays_(std::move(arrays)) {
  check(!arrays_.empty() && (arrays_.size() == 1 || holds_several(path)), "'", path,
        "' holds one array, not ", arrays_.size());
  if (path.ends_with(".safetensors"))
    form_ = std::make_unique<Safetensors>(path, arrays_);
  else if (path.ends_with(".npz"))
    form_ = std::make_unique<Npz>(path);
  else
    form_ = std::make_unique<Npy>(path);
  left_ = bytes_of(arrays_[0]);
  form_->begin(arrays_[0]);
  begin_arrays();
}

ArrayFile::~ArrayFile() = default;

// Advances to the first array that lacks bytes.
void ArrayFile::begin_arrays() {
  while (left_ == 0 && current_ < arrays_.size()) {
    form_->end(arrays_[current_]);
    if (++current_ == arrays_.size()) return;
    left_ = bytes_of(arrays_[current_]);
    form_->begin(arrays_[current_]);
  }
}

void ArrayFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    check(current_ < arrays_.size(), "more bytes than the arrays have");
    const auto now = static_cast<size_t>(std::min<uint64_t>(left_, bytes.size()));
    form_->write(bytes.first(now));
    bytes = bytes.subspan(now);
    left_ -= now;
    begin_arrays();
  }
}

void ArrayFile::commit() {
  check(current_ == arrays_.size(), "array '", current_ < arrays_.size() ? arrays_[current_].name : "",
        "' lacks ", left_, " bytes");
  form_->finish();
  form_->commit();
}

}  // namespace tessera
