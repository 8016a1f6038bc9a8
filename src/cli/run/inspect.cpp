// `tessera inspect FILE`: contents of a weights file or a checkpoint, without building a model.
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/base/command.h"
#include "cli/base/common.h"
#include "core/error.h"
#include "core/text.h"
#include "io/files/path.h"
#include "io/onnx/onnx_model.h"
#include "io/weights/weight_file.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct InspectOptions {
  std::string path, filter;
  bool json = false, stats = false;

  template <class V>
  void visit(V& v) {
    v("file", path, {.argument = "FILE", .required = true},
      "weights file of any format, checkpoint or run directory");
    v("filter", filter, "only tensors with this text in their name");
    v("stats", stats, "minimum, maximum, mean and deviation of every tensor");
    v("json", json, "JSON, one object for each file");
  }
};

std::string shape_text(const std::vector<int64_t>& shape) {
  std::vector<std::string> sides;
  for (const int64_t side : shape) sides.push_back(std::to_string(side));
  return "[" + join(sides, ", ") + "]";
}

double element(const TensorView& tensor, size_t i) {
  const std::byte* at = tensor.bytes.data() + i * size_of(tensor.dtype);
  const auto load = [at]<class T>(T value) {
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  switch (tensor.dtype) {
    case DType::f64:
      return load(double{});
    case DType::f32:
      return load(float{});
    case DType::bf16: {
      const uint32_t bits = static_cast<uint32_t>(load(uint16_t{})) << 16;
      float value;
      std::memcpy(&value, &bits, sizeof value);
      return value;
    }
    case DType::f16: {
      const uint16_t bits = load(uint16_t{});
      const int exponent = bits >> 10 & 31, fraction = bits & 1023;
      const double sign = bits >> 15 ? -1 : 1;
      if (exponent == 31) return fraction ? std::numeric_limits<double>::quiet_NaN() : sign * INFINITY;
      return sign * (exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24));
    }
    case DType::i64:
      return static_cast<double>(load(int64_t{}));
    case DType::i32:
      return load(int32_t{});
    case DType::i16:
      return load(int16_t{});
    case DType::i8:
      return load(int8_t{});
    default:
      return load(uint8_t{});
  }
}

struct Stats {
  double min = INFINITY, max = -INFINITY, mean = 0, deviation = 0;
  size_t not_finite = 0;
};

Stats stats_of(const TensorView& tensor) {
  Stats stats;
  const size_t count = tensor.bytes.size() / size_of(tensor.dtype);
  double sum = 0, squares = 0;
  for (size_t i = 0; i < count; ++i) {
    const double value = element(tensor, i);
    if (!std::isfinite(value)) {
      ++stats.not_finite;
      continue;
    }
    stats.min = std::min(stats.min, value);
    stats.max = std::max(stats.max, value);
    sum += value;
    squares += value * value;
  }
  const auto finite = static_cast<double>(count - stats.not_finite);
  if (finite > 0) {
    stats.mean = sum / finite;
    stats.deviation = std::sqrt(std::max(0.0, squares / finite - stats.mean * stats.mean));
  } else {
    stats.min = stats.max = 0;
  }
  return stats;
}

std::string shape_text(const std::vector<OnnxDimension>& shape) {
  std::vector<std::string> sides;
  for (const OnnxDimension& side : shape)
    sides.push_back(side.name.empty() ? std::to_string(side.size) : printable(side.name));
  return "[" + join(sides, ", ") + "]";
}

Json values_json(const std::vector<OnnxValue>& values) {
  Json out = Json::array();
  for (const OnnxValue& value : values)
    out.push_back({{"name", value.name}, {"dtype", name_of(value.type)}, {"shape", shape_text(value.shape)}});
  return out;
}

// Prints inputs, outputs, operations and sizes of an ONNX model.
void inspect_onnx(const InspectOptions& options) {
  const OnnxModel model = read_onnx(options.path);
  std::map<std::string, int64_t> operations;
  for (const OnnxNode& node : model.graph.nodes) ++operations[node.operation];
  uint64_t bytes = 0;
  for (const OnnxTensor& tensor : model.graph.weights) bytes += tensor.bytes.size();
  if (options.json) {
    std::cout << Json{{"file", options.path},
                      {"form", "ONNX"},
                      {"opset", model.opset},
                      {"producer", model.producer + " " + model.producer_version},
                      {"inputs", values_json(model.graph.inputs)},
                      {"outputs", values_json(model.graph.outputs)},
                      {"operations", operations},
                      {"weight_bytes", bytes},
                      {"metadata", model.metadata}}
                     .dump(2)
              << "\n";
    return;
  }
  std::cout << options.path << " (ONNX, opset " << model.opset << ", " << printable(model.producer) << " "
            << printable(model.producer_version)
            << "): " << counted(std::ssize(model.graph.nodes), "operation") << ", " << human_bytes(bytes)
            << " of weights\n";
  for (const OnnxValue& value : model.graph.inputs)
    std::cout << "  in   " << printable(value.name) << " " << name_of(value.type) << " "
              << shape_text(value.shape) << "\n";
  for (const OnnxValue& value : model.graph.outputs)
    std::cout << "  out  " << printable(value.name) << " " << name_of(value.type) << " "
              << shape_text(value.shape) << "\n";
  for (const auto& [operation, count] : operations)
    std::cout << std::setw(6) << count << "  " << printable(operation) << "\n";
  for (const auto& [key, value] : model.metadata)
    std::cout << printable(key) << ": " << printable(value, 500) << "\n";
}

void print_json(const WeightFile& file, const InspectOptions& options) {
  Json out;
  out["file"] = file.path();
  out["form"] = file.form();
  out["metadata"] = file.metadata();
  out["tensors"] = Json::array();
  for (const TensorView& tensor : file.tensors()) {
    if (tensor.name.find(options.filter) == std::string::npos) continue;
    Json row = {{"name", tensor.name}, {"dtype", safetensors_name(tensor.dtype)}, {"shape", tensor.shape}};
    if (options.stats) {
      const Stats stats = stats_of(tensor);
      row["min"] = stats.min;
      row["max"] = stats.max;
      row["mean"] = stats.mean;
      row["std"] = stats.deviation;
      row["not_finite"] = stats.not_finite;
    }
    out["tensors"].push_back(row);
  }
  std::cout << json_text(out, 2) << "\n";
}

void print_table(const WeightFile& file, const InspectOptions& options) {
  size_t width = 6, bytes = 0, shown = 0;
  int64_t elements = 0;
  for (const TensorView& tensor : file.tensors()) width = std::max(width, tensor.name.size());
  std::cout << one_line(file.path()) << ": " << file.form() << "\n";
  for (const auto& [key, value] : file.metadata()) {
    const std::string line = value.substr(0, value.find('\n'));
    std::cout << "  " << printable(key) << ": " << printable(line, 100)
              << (line.size() < value.size() ? " …" : "") << "\n";
  }
  for (const TensorView& tensor : file.tensors()) {
    if (tensor.name.find(options.filter) == std::string::npos) continue;
    const size_t count = tensor.bytes.size() / size_of(tensor.dtype);
    ++shown;
    elements += static_cast<int64_t>(count);
    bytes += tensor.bytes.size();
    std::cout << "  " << std::left << std::setw(static_cast<int>(width) + 2) << tensor.name << std::setw(6)
              << safetensors_name(tensor.dtype) << std::setw(options.stats ? 22 : 0)
              << shape_text(tensor.shape);
    if (options.stats) {
      const Stats stats = stats_of(tensor);
      std::cout << " min " << fixed(stats.min, 4) << "  max " << fixed(stats.max, 4) << "  mean "
                << fixed(stats.mean, 4) << "  std " << fixed(stats.deviation, 4);
      if (stats.not_finite) std::cout << "  NOT FINITE: " << stats.not_finite;
    }
    std::cout << "\n";
  }
  if (shown < file.tensors().size()) std::cout << shown << " of ";
  std::cout << counted(std::ssize(file.tensors()), "tensor") << ", " << counted(elements, "element") << ", "
            << human_bytes(bytes) << "\n";
}

// Lists the weights files in a checkpoint or run directory.
std::vector<std::string> files_of(const std::string& path) {
  if (!fs::is_directory(path)) return {path};
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(path)) {
    const bool torch = entry.path().extension() == ".bin" &&
                       entry.path().filename().string().find("pytorch_model") != std::string::npos;
    if (entry.path().extension() == ".safetensors" || torch) files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  if (const std::string newest = path + "/checkpoints/latest"; files.empty() && fs::is_directory(newest))
    return files_of(newest);
  if (const std::string snapshot = snapshot_in(path); files.empty() && !snapshot.empty())
    return files_of(snapshot);
  if (files.empty()) fail(path, ": no .safetensors file or pytorch_model.bin in this folder");
  return files;
}

void inspect(const InspectOptions& options) {
  if (is_onnx_name(options.path)) return inspect_onnx(options);
  for (const std::string& path : files_of(options.path)) {
    const WeightFile file(path);
    options.json ? print_json(file, options) : print_table(file, options);
  }
}

}  // namespace

void add_inspect(Arguments& command, Action& action) {
  action = with_options<InspectOptions>(command, inspect);
}

}  // namespace tessera::cli
