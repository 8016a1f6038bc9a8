#include "io/weights/safetensors.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>

#include "core/error.h"
#include "core/text.h"

namespace tessera {

std::optional<uint64_t> tensor_bytes(std::span<const int64_t> shape, DType dtype) {
  uint64_t bytes = size_of(dtype);
  for (const int64_t extent : shape)
    if (extent < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes))
      return std::nullopt;
  if (bytes > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
  return bytes;
}

namespace {

constexpr uint64_t kMaxHeader = 100'000'000;
constexpr size_t kMaxDims = 8, kMaxName = 1024;
constexpr std::pair<DType, const char*> kDTypes[] = {
    {DType::f64, "F64"}, {DType::f32, "F32"},     {DType::f16, "F16"}, {DType::bf16, "BF16"},
    {DType::i64, "I64"}, {DType::i32, "I32"},     {DType::i16, "I16"}, {DType::i8, "I8"},
    {DType::u8, "U8"},   {DType::boolean, "BOOL"}};

std::optional<DType> dtype_named(std::string_view name) {
  for (const auto& [dtype, known] : kDTypes)
    if (name == known) return dtype;
  return std::nullopt;
}

std::string shape_text(std::span<const int64_t> shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += text(i ? ", " : "", shape[i]);
  return out + "]";
}

// Returns the fault of a tensor's name, or null.
const char* name_problem(std::string_view name) {
  if (name.empty()) return "is empty";
  if (name.size() > kMaxName) return "is longer than 1024 bytes";
  for (const char c : name)
    if ((c >= 0 && c < ' ') || c == 0x7F) return "holds control characters";
  return nullptr;
}

struct Entry {
  TensorView tensor;
  uint64_t begin = 0, end = 0;
};

// Reads the header's JSON event by event and builds only the tensors. Nested values and repeated keys are
// refused at once. The names follow nlohmann's SAX interface; errors are thrown.
class HeaderReader {
 public:
  explicit HeaderReader(const std::string& file) : file_(file) {}

  Metadata metadata;
  std::vector<Entry> entries;

  bool start_object(size_t) {
    switch (place_) {
      case Place::start:
        place_ = Place::top;
        return true;
      case Place::value_of_name:
        place_ = in_metadata_ ? Place::metadata : Place::tensor;
        return true;
      default:
        return unexpected("an object");
    }
  }

  bool key(std::string& name) {
    key_ = name;
    if (place_ == Place::top) {
      in_metadata_ = name == "__metadata__";
      if (const char* problem = name_problem(name))
        fail(file_, ": the name of tensor '", printable(name), "' ", problem);
      check(names_.insert(name).second, file_, ": the header has '", name, "' twice");
      if (!in_metadata_) entries.emplace_back().tensor.name = name;
      has_dtype_ = has_shape_ = has_offsets_ = false;
      place_ = Place::value_of_name;
    } else if (place_ == Place::metadata) {
      check(!metadata.contains(name), file_, ": the metadata has '", printable(name), "' twice");
      place_ = Place::value_of_metadata;
    } else {
      bool* seen = name == "dtype" ? &has_dtype_ : name == "shape" ? &has_shape_ : &has_offsets_;
      check(seen != &has_offsets_ || name == "data_offsets", where(), " has the unknown key '",
            printable(name), "'");
      check(!std::exchange(*seen, true), where(), " has '", name, "' twice");
      place_ = name == "dtype" ? Place::dtype : Place::before_array;
    }
    return true;
  }

  bool end_object() {
    if (place_ == Place::tensor) {
      check(has_dtype_, where(), " has no dtype");
      check(has_shape_, where(), " has no shape");
      check(has_offsets_, where(), " has no data_offsets");
    }
    place_ = place_ == Place::top ? Place::done : Place::top;
    return true;
  }

  bool string(std::string& value) {
    if (place_ == Place::value_of_metadata) {
      metadata.emplace(key_, value);
      place_ = Place::metadata;
      return true;
    }
    if (place_ != Place::dtype) return unexpected("a string");
    const auto dtype = dtype_named(value);
    check(dtype.has_value(), where(), " has the dtype '", printable(value),
          "', must be F64, F32, F16, BF16, I64, I32, I16, I8, U8 or BOOL");
    entries.back().tensor.dtype = *dtype;
    place_ = Place::tensor;
    return true;
  }

  bool start_array(size_t) {
    if (place_ != Place::before_array) return unexpected("an array");
    numbers_ = 0;
    place_ = Place::array;
    return true;
  }

  bool number_unsigned(uint64_t value) {
    if (place_ != Place::array) return unexpected("a number");
    Entry& entry = entries.back();
    if (key_ == "shape") {
      check(++numbers_ <= kMaxDims, where(), " has more than ", kMaxDims, " dimensions");
      check(value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()), where(), " has the extent ",
            value, ", its size overflows");
      entry.tensor.shape.push_back(static_cast<int64_t>(value));
    } else {
      check(++numbers_ <= 2, where(), " has more than two data_offsets");
      (numbers_ == 1 ? entry.begin : entry.end) = value;
    }
    return true;
  }

  bool end_array() {
    check(key_ == "shape" || numbers_ == 2, where(), " has ", numbers_, " data_offsets, must be two");
    place_ = Place::tensor;
    return true;
  }

  bool number_integer(int64_t value) { return unexpected(text("the number ", value)); }
  bool number_float(double, const std::string& value) {
    return unexpected("the number " + printable(value, 40));
  }
  bool null() { return unexpected("null"); }
  bool boolean(bool) { return unexpected("a boolean"); }
  bool binary(nlohmann::json::binary_t&) { return unexpected("binary data"); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) {
    fail(file_, ": the header is no valid JSON at byte ", position + 7);  // its positions count from 1
  }

 private:
  enum class Place {
    start,
    top,                // in the outer object
    value_of_name,      // after a tensor's name or __metadata__
    metadata,           // in its object
    value_of_metadata,  // after one of its keys
    tensor,             // in a tensor's object
    dtype,              // after that key
    before_array,       // after "shape" or "data_offsets"
    array,              // inside it
    done
  };

  std::string where() const { return text(file_, ": tensor '", entries.back().tensor.name, "'"); }

  bool unexpected(const std::string& what) const {
    switch (place_) {
      case Place::start:
        fail(file_, ": the header is ", what, ", must be an object");
      case Place::value_of_name:
        fail(file_, in_metadata_ ? text(": __metadata__") : text(": tensor '", key_, "'"), " is ", what,
             ", must be an object");
      case Place::value_of_metadata:
        fail(file_, ": metadata '", printable(key_), "' is ", what, ", must be a string");
      case Place::dtype:
        fail(where(), ": dtype is ", what, ", must be a string");
      case Place::before_array:
        fail(where(), ": ", key_, " is ", what, ", must be an array");
      default:
        fail(where(), ": ", key_, " holds ", what, ", must hold integers from 0");
    }
  }

  const std::string& file_;
  Place place_ = Place::start;
  bool in_metadata_ = false, has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
  size_t numbers_ = 0;
  std::string key_;
  std::unordered_set<std::string> names_;
};

// Returns a hint for files commonly mistaken for safetensors.
const char* hint(std::string_view bytes) {
  constexpr size_t kShown = 64;
  if (bytes.starts_with("version https://git-lfs"))
    return " (it is a Git LFS pointer: fetch the file itself)";
  if (bytes.starts_with("PK\x03\x04")) return " (it is a zip archive: a PyTorch file?)";
  if (bytes.starts_with("\x80\x02")) return " (it is a pickle: an old PyTorch file?)";
  if (bytes.starts_with("\x89HDF")) return " (it is an HDF5 file)";
  if (trim(bytes.substr(0, kShown)).starts_with('{'))
    return " (it is JSON: an index of shards has a name that ends in .json)";
  return "";
}

std::string_view header_of(std::span<const std::byte> bytes, const std::string& name) {
  check(bytes.size() >= 8, name, ": has ", bytes.size(), " bytes, a safetensors file has at least 8");
  uint64_t length = 0;
  for (size_t i = 8; i-- > 0;) length = length << 8 | std::to_integer<uint64_t>(bytes[i]);
  check(length <= kMaxHeader, name, ": declares a header of ", length, " bytes, at most ", kMaxHeader,
        " are allowed", hint(as_text(bytes)));
  check(length <= bytes.size() - 8, name, ": truncated: the header has ", length,
        " bytes, the file ends after ", bytes.size() - 8, hint(as_text(bytes)));
  const std::string_view header = as_text(bytes.subspan(8, length));
  check(header.starts_with('{'), name, ": the header does not start with '{'");
  check(is_utf8(header), name, ": the header is not UTF-8");
  // The parser treats a NUL as the end of the text, so a NUL could hide the rest.
  if (const size_t nul = header.find('\0'); nul != std::string_view::npos)
    fail(name, ": the header is no valid JSON at byte ", 8 + nul);
  return header;
}

// Checks that the tensors fill the data from 0 to the end, without holes or overlap.
void check_layout(std::vector<Entry>& entries, uint64_t data_bytes, const std::string& name) {
  for (const Entry& e : entries) {
    const auto where = [&] { return text(name, ": tensor '", e.tensor.name, "'"); };
    const auto bytes = tensor_bytes(e.tensor.shape, e.tensor.dtype);
    if (!bytes) fail(where(), " has the shape ", shape_text(e.tensor.shape), ", its size overflows");
    if (e.begin > e.end) fail(where(), " begins at byte ", e.begin, ", after its end at ", e.end);
    if (e.end - e.begin != *bytes)
      fail(where(), " has ", e.end - e.begin, " bytes, ", safetensors_name(e.tensor.dtype), " ",
           shape_text(e.tensor.shape), " needs ", *bytes);
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t at = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& e = entries[i];
    if (e.begin < at)
      fail(name, ": tensor '", e.tensor.name, "' overlaps tensor '", entries[i - 1].tensor.name, "' at byte ",
           e.begin);
    if (e.begin > at)
      fail(name, ": no tensor holds the bytes from ", at, " to '", e.tensor.name, "' at ", e.begin);
    at = e.end;
  }
  if (at > data_bytes)
    fail(name, ": truncated: the tensors need ", at, " bytes, the file ends after ", data_bytes);
  if (at < data_bytes) fail(name, ": ", data_bytes - at, " bytes after the last tensor");
}

}  // namespace

const char* safetensors_name(DType dtype) {
  for (const auto& [known, name] : kDTypes)
    if (dtype == known) return name;
  return "?";
}

SafetensorsContent parse_safetensors(std::span<const std::byte> bytes, const std::string& name) {
  const std::string_view header = header_of(bytes, name);
  HeaderReader reader(name);
  nlohmann::json::sax_parse(header.begin(), header.end(), &reader);
  const auto data = bytes.subspan(8 + header.size());
  check_layout(reader.entries, data.size(), name);
  SafetensorsContent out;
  out.metadata = std::move(reader.metadata);
  out.tensors.reserve(reader.entries.size());
  for (Entry& e : reader.entries) {
    e.tensor.bytes = data.subspan(e.begin, e.end - e.begin);
    const auto is_bool = [](std::byte b) { return b <= std::byte{1}; };
    check(e.tensor.dtype != DType::boolean ||
              std::all_of(e.tensor.bytes.begin(), e.tensor.bytes.end(), is_bool),
          name, ": tensor '", e.tensor.name, "' is BOOL and holds a byte that is neither 0 nor 1");
    out.tensors.push_back(std::move(e.tensor));
  }
  return out;
}

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path), file_(path) {
  SafetensorsContent content = parse_safetensors(file_.bytes(), path);
  metadata_ = std::move(content.metadata);
  tensors_ = std::move(content.tensors);
  for (size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
}

const TensorView* SafetensorsFile::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

namespace {

std::string quoted(const std::string& s) { return nlohmann::json(s).dump(); }

[[noreturn]] void fail_length(const std::string& path, const TensorView& t, size_t size,
                              const std::optional<uint64_t>& needed) {
  fail("cannot write '", path, "': tensor '", printable(t.name), "' has ", size, " bytes, ",
       safetensors_name(t.dtype), " ", shape_text(t.shape), " needs ",
       needed ? std::to_string(*needed) : "more than there are");
}

// The header preceded by its length, padded to a multiple of 8 bytes.
std::string make_header(const std::vector<TensorView>& tensors, const Metadata& metadata,
                        const std::string& path) {
  std::string json = "{";
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      check(is_utf8(key) && is_utf8(value), "cannot write '", path, "': metadata '", printable(key),
            "' is not UTF-8");
      json += text(json.back() == '{' ? "" : ",", quoted(key), ":", quoted(value));
    }
    json += "}";
  }
  std::set<std::string_view> names;
  uint64_t at = 0;
  for (const TensorView& t : tensors) {
    const auto where = [&] { return text("cannot write '", path, "': tensor '", printable(t.name), "'"); };
    if (const char* problem = name_problem(t.name)) fail(where(), ": the name ", problem);
    if (!is_utf8(t.name)) fail(where(), ": the name is not UTF-8");
    if (t.name == "__metadata__" || !names.insert(t.name).second) fail(where(), ": the name is taken");
    if (t.shape.size() > kMaxDims) fail(where(), " has more than ", kMaxDims, " dimensions");
    const auto bytes = tensor_bytes(t.shape, t.dtype);
    if (!bytes) fail_length(path, t, t.bytes.size(), bytes);
    json += text(json.size() == 1 ? "" : ",", quoted(t.name), ":{\"dtype\":\"", safetensors_name(t.dtype),
                 "\",\"shape\":[");
    for (size_t i = 0; i < t.shape.size(); ++i) json += text(i ? "," : "", t.shape[i]);
    json += text("],\"data_offsets\":[", at, ",", at + *bytes, "]}");
    at += *bytes;
  }
  json += "}";
  json.append((8 - json.size() % 8) % 8, ' ');
  check(json.size() <= kMaxHeader, "cannot write '", path, "': a header of ", json.size(), " bytes, at most ",
        kMaxHeader);
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(json.size() >> (8 * i) & 255);
  return out + json;
}

}  // namespace

void put_safetensors(AtomicFile& file, const std::string& name, const std::vector<TensorView>& tensors,
                     const Metadata& metadata, const BytesOf& bytes_of_tensor) {
  file.write(make_header(tensors, metadata, name));
  for (const TensorView& t : tensors) {
    const std::span<const std::byte> bytes = bytes_of_tensor(t);
    if (const auto needed = tensor_bytes(t.shape, t.dtype); bytes.size() != needed)
      fail_length(name, t, bytes.size(), needed);
    file.write(bytes);
  }
}

BytesOf bytes_of_views(const std::function<void()>& before_each) {
  return [before_each](const TensorView& t) {
    if (before_each) before_each();
    return t.bytes;
  };
}

std::string write_safetensors(const std::string& path, const std::vector<TensorView>& tensors,
                              const Metadata& metadata, const std::function<void()>& before_each) {
  return stream_safetensors(path, tensors, metadata, bytes_of_views(before_each));
}

std::string stream_safetensors(const std::string& path, const std::vector<TensorView>& tensors,
                               const Metadata& metadata, const BytesOf& bytes_of_tensor) {
  AtomicFile file(path);
  put_safetensors(file, path, tensors, metadata, bytes_of_tensor);
  file.commit();
  return file.checksum();
}

}  // namespace tessera
