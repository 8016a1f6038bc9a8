// Reading ONNX: nothing in a file is trusted.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <protozero/pbf_reader.hpp>

#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"
#include "io/onnx/onnx_fields.h"
#include "io/onnx/onnx_model.h"

namespace tessera {
namespace {

using Wire = protozero::pbf_wire_type;

constexpr int kMostNested = 4;  // graphs in attributes of nodes of graphs
constexpr size_t kMostDimensions = 16;
constexpr uint64_t kMostFileBytes = uint64_t{1} << 31;  // largest protocol buffer

// The fields of one message. Every getter checks the wire type, which protozero does not.
class Message {
 public:
  explicit Message(protozero::data_view bytes) : reader_(bytes) {}
  // Calls read(field) for every field; read() takes its value or skips it.
  template <class F>
  void each(F&& read) {
    while (reader_.next()) {
      taken_ = false;
      read(reader_.tag());
      if (!taken_) reader_.skip();
    }
  }
  protozero::data_view bytes() { return take(Wire::length_delimited).get_view(); }
  std::string text() {
    const protozero::data_view view = bytes();
    return {view.data(), view.size()};
  }
  Message message() { return Message(bytes()); }
  int64_t integer() { return take(Wire::varint).get_int64(); }
  float real() { return take(Wire::fixed32).get_float(); }
  // Repeated numbers are packed into one field, or have one field each.
  void integers(std::vector<int64_t>& out) {
    if (reader_.wire_type() == Wire::varint) return out.push_back(integer());
    for (const int64_t one : take(Wire::length_delimited).get_packed_int64()) out.push_back(one);
  }
  template <class T>
  void fixed(std::vector<T>& out) {
    constexpr Wire kOne = sizeof(T) == 4 ? Wire::fixed32 : Wire::fixed64;
    if constexpr (sizeof(T) == 4) {
      if (reader_.wire_type() == kOne) return out.push_back(take(kOne).get_float());
      for (const float one : take(Wire::length_delimited).get_packed_float()) out.push_back(one);
    } else {
      if (reader_.wire_type() == kOne) return out.push_back(take(kOne).get_double());
      for (const double one : take(Wire::length_delimited).get_packed_double()) out.push_back(one);
    }
  }

 private:
  protozero::pbf_reader& take(Wire wire) {
    if (reader_.wire_type() != wire) throw protozero::unknown_pbf_wire_type_exception();
    taken_ = true;
    return reader_;
  }
  protozero::pbf_reader reader_;
  bool taken_ = false;
};

// A part of the file of external data; `length` is absent if it follows from the shape.
struct Place {
  std::string location;
  uint64_t offset = 0;
  std::optional<uint64_t> length = {};
};

std::pair<std::string, std::string> entry(Message message) {
  std::pair<std::string, std::string> out;
  message.each([&](uint32_t field) {
    if (field == fields::entry::key) out.first = message.text();
    if (field == fields::entry::value) out.second = message.text();
  });
  return out;
}

// Stores numbers that are separate fields as the bytes of the tensor.
template <class T, class S>
void keep(OnnxTensor& tensor, const std::vector<S>& numbers) {
  const auto kept = std::make_shared<std::vector<T>>();
  for (const S number : numbers) kept->push_back(static_cast<T>(number));
  tensor.bytes = std::as_bytes(std::span<const T>(*kept)), tensor.owner = kept;
}

class Parser {
 public:
  Parser(std::string name, std::string folder, bool tensors, std::shared_ptr<const void> owner)
      : name_(std::move(name)), folder_(std::move(folder)), tensors_(tensors), owner_(std::move(owner)) {}
  OnnxModel model(Message message);

 private:
  OnnxGraph graph(Message message, int depth);
  OnnxNode node(Message message, int depth);
  std::optional<OnnxAttribute> attribute(Message message, int depth);
  OnnxTensor tensor(Message message);
  OnnxValue value(Message message);
  void shape(Message message, OnnxValue& out);
  uint64_t wanted_bytes(const OnnxTensor& tensor) const;
  uint64_t number(const std::string& text) const;
  void read_external(OnnxTensor& tensor, const Place& place);

  std::string name_, folder_;
  bool tensors_;
  std::shared_ptr<const void> owner_;  // keeps the file's bytes alive
  std::vector<std::pair<std::string, std::shared_ptr<const MappedFile>>> data_;  // by location
};

OnnxModel Parser::model(Message message) {
  OnnxModel out;
  int graphs = 0;
  message.each([&](uint32_t field) {
    if (field == fields::model::graph) out.graph = graph(message.message(), 0), ++graphs;
    if (field == fields::model::producer) out.producer = message.text();
    if (field == fields::model::producer_version) out.producer_version = message.text();
    if (field == fields::model::description) out.description = message.text();
    if (field == fields::model::metadata) out.metadata.push_back(entry(message.message()));
    check(field != fields::model::functions, "'", name_, "' defines functions, which are not read");
    if (field != fields::model::opset) return;
    Message opset = message.message();
    std::string domain;
    int64_t version = 0;
    opset.each([&](uint32_t part) {
      if (part == fields::opset::domain) domain = opset.text();
      if (part == fields::opset::version) version = opset.integer();
    });
    if (domain.empty() || domain == "ai.onnx") out.opset = version;
  });
  check(graphs == 1, "'", name_, "' is not an ONNX model: it has ", graphs, " graphs, must have 1");
  return out;
}

OnnxGraph Parser::graph(Message message, int depth) {
  check(depth <= kMostNested, "'", name_, "' has graphs in graphs, deeper than ", kMostNested);
  OnnxGraph out;
  message.each([&](uint32_t field) {
    if (field == fields::graph::node) out.nodes.push_back(node(message.message(), depth));
    if (field == fields::graph::name) out.name = message.text();
    if (field == fields::graph::initializer) out.weights.push_back(tensor(message.message()));
    if (field == fields::graph::input) out.inputs.push_back(value(message.message()));
    if (field == fields::graph::output) out.outputs.push_back(value(message.message()));
    check(field != fields::graph::sparse_initializer, "'", name_, "' has sparse tensors, which are not read");
  });
  return out;
}

OnnxNode Parser::node(Message message, int depth) {
  OnnxNode out;
  std::string domain;
  message.each([&](uint32_t field) {
    if (field == fields::node::input) out.inputs.push_back(message.text());
    if (field == fields::node::output) out.outputs.push_back(message.text());
    if (field == fields::node::name) out.name = message.text();
    if (field == fields::node::operation) out.operation = message.text();
    if (field == fields::node::domain) domain = message.text();
    if (field != fields::node::attribute) return;
    if (auto found = attribute(message.message(), depth)) out.attributes.push_back(std::move(*found));
  });
  if (!domain.empty() && domain != "ai.onnx") out.operation = domain + "." + out.operation;
  return out;
}

// Returns none for a kind of attribute that no supported operation has.
std::optional<OnnxAttribute> Parser::attribute(Message message, int depth) {
  OnnxAttribute out;
  std::vector<int64_t> ints;
  std::vector<float> floats;
  int64_t type = 0;
  message.each([&](uint32_t field) {
    if (field == fields::attribute::name) out.name = message.text();
    if (field == fields::attribute::f) out.value = message.real();
    if (field == fields::attribute::i) out.value = message.integer();
    if (field == fields::attribute::s) out.value = message.text();
    if (field == fields::attribute::t) out.value = tensor(message.message());
    if (field == fields::attribute::g)
      out.value = std::make_shared<const OnnxGraph>(graph(message.message(), depth + 1));
    if (field == fields::attribute::ints) message.integers(ints);
    if (field == fields::attribute::floats) message.fixed(floats);
    if (field == fields::attribute::type) type = message.integer();
  });
  if (type == fields::attribute::kInts) out.value = std::move(ints);
  if (type == fields::attribute::kFloats) out.value = std::move(floats);
  return type > fields::attribute::kInts ? std::nullopt : std::make_optional(std::move(out));
}

OnnxTensor Parser::tensor(Message message) {
  OnnxTensor out;
  std::optional<Place> place;
  std::vector<int64_t> ints;
  std::vector<float> floats;
  std::vector<double> doubles;
  message.each([&](uint32_t field) {
    if (field == fields::tensor::dims) message.integers(out.shape);
    if (field == fields::tensor::type) out.type = static_cast<OnnxType>(message.integer());
    if (field == fields::tensor::name) out.name = message.text();
    if (field == fields::tensor::float_data) message.fixed(floats);
    if (field == fields::tensor::double_data) message.fixed(doubles);
    if (field == fields::tensor::int32_data || field == fields::tensor::int64_data) message.integers(ints);
    if (field == fields::tensor::raw) {
      const protozero::data_view view = message.bytes();
      out.bytes = {reinterpret_cast<const std::byte*>(view.data()), view.size()}, out.owner = owner_;
    }
    if (field != fields::tensor::external_data) return;
    const auto [key, text] = entry(message.message());
    if (!place) place.emplace();
    if (key == "location") place->location = text;
    if (key == "offset") place->offset = number(text);
    if (key == "length") place->length = number(text);
  });
  const uint64_t wanted = wanted_bytes(out);
  if (place) {
    if (!place->length) place->length = wanted;
    check(*place->length == wanted, "'", name_, "': tensor '", printable(out.name), "' has ", *place->length,
          " bytes of external data, must have ", wanted);
    if (tensors_) read_external(out, *place);
    return out;
  }
  if (!floats.empty()) keep<float>(out, floats);
  if (!doubles.empty()) keep<double>(out, doubles);
  if (!ints.empty()) {
    const size_t size = size_of(out.type);
    size == 8   ? keep<int64_t>(out, ints)
    : size == 4 ? keep<int32_t>(out, ints)
    : size == 2 ? keep<uint16_t>(out, ints)
                : keep<uint8_t>(out, ints);
  }
  check(out.bytes.size() == wanted, "'", name_, "': tensor '", printable(out.name), "' has ",
        out.bytes.size(), " bytes, must have ", wanted);
  return out;
}

uint64_t Parser::wanted_bytes(const OnnxTensor& tensor) const {
  const std::string at = text("'", name_, "': tensor '", printable(tensor.name), "'");
  check(size_of(tensor.type) > 0, at, " has an element type of number ", static_cast<int32_t>(tensor.type),
        ", which is not read");
  check(tensor.shape.size() <= kMostDimensions, at, " has ", tensor.shape.size(), " dimensions, at most ",
        kMostDimensions, " are read");
  uint64_t bytes = size_of(tensor.type);
  for (const int64_t side : tensor.shape) {
    check(side >= 0, at, " has a negative size");
    check(!__builtin_mul_overflow(bytes, static_cast<uint64_t>(side), &bytes), at, " is too large");
  }
  return bytes;
}

uint64_t Parser::number(const std::string& text) const {
  check(!text.empty() && text.size() <= 18 && text.find_first_not_of("0123456789") == std::string::npos, "'",
        name_, "': '", printable(text), "' in the place of external data is not a whole number");
  return std::stoull(text);
}

void Parser::read_external(OnnxTensor& tensor, const Place& place) {
  const std::string at = text("'", name_, "': tensor '", printable(tensor.name), "'");
  check(!folder_.empty(), at, " has external data, which are not read here");
  const std::filesystem::path file(place.location);
  check(!place.location.empty() && file.filename() == file && place.location != "." && place.location != "..",
        at, " has external data in '", printable(place.location),
        "', must be a file in the folder of the model");
  auto known =
      std::find_if(data_.begin(), data_.end(), [&](const auto& one) { return one.first == place.location; });
  if (known == data_.end()) {
    const std::string path = folder_ + "/" + place.location;
    check(!std::filesystem::is_symlink(path), at, " has external data in '", printable(path),
          "', which is a link");
    data_.emplace_back(place.location, std::make_shared<const MappedFile>(path));
    known = data_.end() - 1;
  }
  const std::span<const std::byte> bytes = known->second->bytes();
  check(place.offset <= bytes.size() && *place.length <= bytes.size() - place.offset, at, " ends beyond '",
        printable(place.location), "', which has ", bytes.size(), " bytes");
  tensor.bytes = bytes.subspan(place.offset, *place.length), tensor.owner = known->second;
}

OnnxValue Parser::value(Message message) {
  OnnxValue out;
  message.each([&](uint32_t field) {
    if (field == fields::value::name) out.name = message.text();
    if (field != fields::value::type) return;
    Message type = message.message();
    type.each([&](uint32_t kind) {
      if (kind != fields::value::tensor_type) return;
      Message tensor_type = type.message();
      tensor_type.each([&](uint32_t part) {
        if (part == fields::value::element) out.type = static_cast<OnnxType>(tensor_type.integer());
        if (part == fields::value::shape) shape(tensor_type.message(), out);
      });
    });
  });
  return out;
}

void Parser::shape(Message message, OnnxValue& out) {
  message.each([&](uint32_t field) {
    if (field != fields::value::dimension) return;
    Message side = message.message();
    OnnxDimension dimension;
    side.each([&](uint32_t part) {
      if (part == fields::value::size) dimension.size = side.integer();
      if (part == fields::value::parameter) dimension.name = side.text();
    });
    out.shape.push_back(std::move(dimension));
  });
}

OnnxModel parse(std::span<const std::byte> bytes, Parser parser, const std::string& name) {
  try {
    return parser.model(Message({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  } catch (const protozero::exception& error) {
    fail("'", name, "' is not an ONNX model, or is damaged: ", error.what());
  }
}

}  // namespace

OnnxModel parse_onnx(std::span<const std::byte> bytes, const std::string& name) {
  return parse(bytes, Parser(name, "", true, nullptr), name);
}

OnnxModel read_onnx(const std::string& path, bool tensors) {
  const auto file = std::make_shared<const MappedFile>(path);
  check(file->bytes().size() <= kMostFileBytes, "'", path,
        "' has more than 2 GB, which no ONNX file can have");
  const std::string folder = std::filesystem::absolute(path).parent_path().string();
  return parse(file->bytes(), Parser(path, folder, tensors, file), path);
}

bool is_onnx_name(const std::string& path) { return path.ends_with(".onnx"); }

size_t size_of(OnnxType type) {
  switch (type) {
    case OnnxType::u8:
    case OnnxType::i8:
    case OnnxType::boolean:
      return 1;
    case OnnxType::f16:
      return 2;
    case OnnxType::f32:
    case OnnxType::i32:
      return 4;
    case OnnxType::i64:
    case OnnxType::f64:
      return 8;
  }
  return 0;
}

const char* name_of(OnnxType type) {
  switch (type) {
    case OnnxType::f32:
      return "float32";
    case OnnxType::u8:
      return "uint8";
    case OnnxType::i8:
      return "int8";
    case OnnxType::i32:
      return "int32";
    case OnnxType::i64:
      return "int64";
    case OnnxType::boolean:
      return "bool";
    case OnnxType::f16:
      return "float16";
    case OnnxType::f64:
      return "float64";
  }
  return "unknown";
}

const OnnxAttribute* OnnxNode::find(const std::string& attribute) const {
  for (const OnnxAttribute& one : attributes)
    if (one.name == attribute) return &one;
  return nullptr;
}

}  // namespace tessera
