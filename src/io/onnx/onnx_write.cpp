// Writing ONNX. Messages with weights are written piece by piece, since the length of a nested message
// precedes it.
#include <filesystem>
#include <protozero/pbf_writer.hpp>

#include "core/error.h"
#include "io/files/file.h"
#include "io/onnx/onnx_fields.h"
#include "io/onnx/onnx_model.h"

namespace tessera {
namespace {

using Writer = protozero::pbf_writer;

// Offsets of external data are multiples of a page, so that other programs can map them.
constexpr uint64_t kAlignment = 4096;

struct External {
  std::string location;
  uint64_t offset = 0;
};

std::string graph_message(const OnnxGraph& graph);

// Writes everything but the bytes.
std::string tensor_head(const OnnxTensor& tensor, const External* external) {
  std::string out;
  Writer writer(out);
  for (const int64_t side : tensor.shape) writer.add_int64(fields::tensor::dims, side);
  writer.add_int32(fields::tensor::type, static_cast<int32_t>(tensor.type));
  writer.add_string(fields::tensor::name, tensor.name);
  if (!external) return out;
  for (const auto& [key, value] : {std::pair<std::string, std::string>{"location", external->location},
                                   {"offset", std::to_string(external->offset)},
                                   {"length", std::to_string(tensor.bytes.size())}}) {
    Writer entry(writer, fields::tensor::external_data);
    entry.add_string(fields::entry::key, key);
    entry.add_string(fields::entry::value, value);
  }
  writer.add_enum(fields::tensor::location, fields::tensor::external);
  return out;
}

std::string tensor_message(const OnnxTensor& tensor) {
  std::string out = tensor_head(tensor, nullptr);
  Writer(out).add_bytes(fields::tensor::raw, reinterpret_cast<const char*>(tensor.bytes.data()),
                        tensor.bytes.size());
  return out;
}

std::string attribute_message(const OnnxAttribute& attribute) {
  std::string out;
  Writer writer(out);
  writer.add_string(fields::attribute::name, attribute.name);
  const auto add = [&]<class T>(const T& value) {
    if constexpr (std::is_same_v<T, int64_t>) {
      writer.add_int64(fields::attribute::i, value),
          writer.add_enum(fields::attribute::type, fields::attribute::kInt);
    } else if constexpr (std::is_same_v<T, float>) {
      writer.add_float(fields::attribute::f, value),
          writer.add_enum(fields::attribute::type, fields::attribute::kFloat);
    } else if constexpr (std::is_same_v<T, std::string>) {
      writer.add_bytes(fields::attribute::s, value),
          writer.add_enum(fields::attribute::type, fields::attribute::kString);
    } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
      for (const int64_t one : value) writer.add_int64(fields::attribute::ints, one);
      writer.add_enum(fields::attribute::type, fields::attribute::kInts);
    } else if constexpr (std::is_same_v<T, std::vector<float>>) {
      for (const float one : value) writer.add_float(fields::attribute::floats, one);
      writer.add_enum(fields::attribute::type, fields::attribute::kFloats);
    } else if constexpr (std::is_same_v<T, OnnxTensor>) {
      writer.add_message(fields::attribute::t, tensor_message(value));
      writer.add_enum(fields::attribute::type, fields::attribute::kTensor);
    } else {
      writer.add_message(fields::attribute::g, graph_message(*value));
      writer.add_enum(fields::attribute::type, fields::attribute::kGraph);
    }
  };
  std::visit(add, attribute.value);
  return out;
}

std::string node_message(const OnnxNode& node) {
  std::string out;
  Writer writer(out);
  for (const std::string& input : node.inputs) writer.add_string(fields::node::input, input);
  for (const std::string& output : node.outputs) writer.add_string(fields::node::output, output);
  writer.add_string(fields::node::name, node.name);
  writer.add_string(fields::node::operation, node.operation);
  for (const OnnxAttribute& attribute : node.attributes)
    writer.add_message(fields::node::attribute, attribute_message(attribute));
  return out;
}

std::string value_message(const OnnxValue& value) {
  std::string out;
  Writer writer(out);
  writer.add_string(fields::value::name, value.name);
  Writer type(writer, fields::value::type);
  Writer tensor(type, fields::value::tensor_type);
  tensor.add_int32(fields::value::element, static_cast<int32_t>(value.type));
  Writer shape(tensor, fields::value::shape);
  for (const OnnxDimension& dimension : value.shape) {
    Writer side(shape, fields::value::dimension);
    if (dimension.name.empty())
      side.add_int64(fields::value::size, dimension.size);
    else
      side.add_string(fields::value::parameter, dimension.name);
  }
  return out;
}

// Writes the nodes, inputs and outputs, which are small.
std::string graph_without_weights(const OnnxGraph& graph) {
  std::string out;
  Writer writer(out);
  for (const OnnxNode& node : graph.nodes) writer.add_message(fields::graph::node, node_message(node));
  writer.add_string(fields::graph::name, graph.name);
  for (const OnnxValue& value : graph.inputs) writer.add_message(fields::graph::input, value_message(value));
  for (const OnnxValue& value : graph.outputs)
    writer.add_message(fields::graph::output, value_message(value));
  return out;
}

std::string graph_message(const OnnxGraph& graph) {
  std::string out = graph_without_weights(graph);
  Writer writer(out);
  for (const OnnxTensor& tensor : graph.weights)
    writer.add_message(fields::graph::initializer, tensor_message(tensor));
  return out;
}

std::string model_without_graph(const OnnxModel& model) {
  constexpr int64_t kIrVersion = 9;
  std::string out;
  Writer writer(out);
  writer.add_int64(fields::model::ir_version, kIrVersion);
  writer.add_string(fields::model::producer, model.producer);
  writer.add_string(fields::model::producer_version, model.producer_version);
  writer.add_string(fields::model::description, model.description);
  {
    Writer opset(writer, fields::model::opset);
    opset.add_string(fields::opset::domain, "");
    opset.add_int64(fields::opset::version, model.opset);
  }
  for (const auto& [key, value] : model.metadata) {
    Writer entry(writer, fields::model::metadata);
    entry.add_string(fields::entry::key, key);
    entry.add_string(fields::entry::value, value);
  }
  return out;
}

// Returns the tag and the length of a field of bytes.
std::string field_head(uint32_t field, uint64_t length) {
  constexpr uint32_t kLengthDelimited = 2;
  std::string out;
  protozero::write_varint(std::back_inserter(out), field << 3 | kLengthDelimited);
  protozero::write_varint(std::back_inserter(out), length);
  return out;
}

// The messages of the weights, without their bytes.
struct WeightHead {
  std::string head;
  const OnnxTensor* tensor;
  bool inline_bytes;
  uint64_t length() const {
    return head.size() +
           (inline_bytes ? field_head(fields::tensor::raw, tensor->bytes.size()).size() + tensor->bytes.size()
                         : 0);
  }
};

// Writes the bytes of the weights one after another, each at a multiple of a page.
std::vector<External> write_external(AtomicFile& file, const std::string& location,
                                     const std::vector<OnnxTensor>& weights) {
  std::vector<External> places;
  for (const OnnxTensor& tensor : weights) {
    const uint64_t padding = (kAlignment - file.size() % kAlignment) % kAlignment;
    file.write(std::string(padding, '\0'));
    places.push_back({location, file.size()});
    file.write(tensor.bytes);
  }
  return places;
}

}  // namespace

void write_onnx(const std::string& path, const OnnxModel& model, uint64_t most_bytes) {
  uint64_t bytes = 0;
  for (const OnnxTensor& tensor : model.graph.weights) bytes += tensor.bytes.size();
  const std::string data_path = path + ".data";
  std::unique_ptr<AtomicFile> data;
  std::vector<External> places;
  if (bytes > most_bytes) {
    data = std::make_unique<AtomicFile>(data_path);
    places = write_external(*data, std::filesystem::path(data_path).filename().string(), model.graph.weights);
  }
  std::vector<WeightHead> weights;
  const std::string graph = graph_without_weights(model.graph);
  uint64_t length = graph.size();
  for (size_t i = 0; i < model.graph.weights.size(); ++i) {
    const OnnxTensor& tensor = model.graph.weights[i];
    weights.push_back({tensor_head(tensor, data ? &places[i] : nullptr), &tensor, !data});
    length +=
        field_head(fields::graph::initializer, weights.back().length()).size() + weights.back().length();
  }
  AtomicFile file(path);
  file.write(model_without_graph(model));
  file.write(field_head(fields::model::graph, length));
  file.write(graph);
  for (const WeightHead& weight : weights) {
    file.write(field_head(fields::graph::initializer, weight.length()));
    file.write(weight.head);
    if (!weight.inline_bytes) continue;
    file.write(field_head(fields::tensor::raw, weight.tensor->bytes.size()));
    file.write(weight.tensor->bytes);
  }
  file.finish();
  if (data) data->finish(), data->commit();
  file.commit();
}

}  // namespace tessera
