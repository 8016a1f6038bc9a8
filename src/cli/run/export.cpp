// `tessera export WEIGHTS -o OUT.onnx`: the computation of a task, for other programs.
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/base/command.h"
#include "cli/base/common.h"
#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"
#include "onnx/export.h"
#include "open/open_task.h"
#include "tasks/base/exported.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct ExportCommand {
  std::string weights, out, model, key;
  int64_t size = 0, opset = 20, max_tokens = 4096;
  bool features = false, int8 = false, half = false, raw = false, json = false;

  template <class V>
  void visit(V& v) {
    v("weights", weights, {.argument = "WEIGHTS", .required = true},
      "weights file of any format, checkpoint or run directory");
    v("output", out, {.names = "-o", .required = true, .writes = Writes::file},
      "OUT.onnx; for weights with several parts a folder, which gets PART.onnx of each");
    v("features", features, "the backbone alone: its vector and the map of its last block");
    v("size", size, between(1, 8192), "side of the images in pixels (default: from the weights)");
    v("opset", opset, between(17, 20), "version of the operations");
    v("int8", int8,
      "linear layers with step sizes of at most 8 bits in int8, after `convert --calibrate` or training with "
      "`model.quantise`");
    v("half", half, "weights in float16; other programs compute with them in float32");
    v("max_tokens", max_tokens, between(1, 1 << 24),
      "longest sequence in the parallel form of the mLSTM; longer ones are written in chunks");
    v("model", model, "model name, if weights of other programs do not name it");
    v("key", key, "dictionary of a PyTorch archive (default: the usual one)");
    v("raw", raw, "checkpoints: the raw weights instead of their moving average");
    v("json", json, "JSON");
  }
};

// The traces use different image sides; a backbone with a fixed grid refuses them.
void free_sides(onnx::Function& function) {
  const std::vector<int64_t> shape = function.inputs[0].shape;
  if (shape.size() != 4) return;
  constexpr int64_t kStep = 32;
  for (const auto& [name, dimension] : {std::pair{"height", size_t{2}}, {"width", size_t{3}}}) {
    const int64_t side = shape[dimension];
    function.free.push_back(
        {.name = name, .places = {{0, dimension}}, .other_sizes = {side + kStep, side + 3 * kStep}});
  }
}

struct Written {
  std::string path;
  onnx::Exported exported;
  std::string fixed;  // why the sides of the images are fixed; "" if they are dynamic
};

// Exports with free sides if the model can be traced so, else with those that it is used at.
Written export_part(const tasks::ExportedPart& part, const NamedTensors& weights,
                    const onnx::ExportOptions& options) {
  Written out;
  onnx::Function free = part.function;
  free_sides(free);
  if (free.free.size() > part.function.free.size()) {
    try {
      out.exported = onnx::export_function(free, weights, options);
      return out;
    } catch (const std::exception& error) {
      out.fixed = one_line(std::string(error.what()).substr(0, 200));
    }
  }
  out.exported = onnx::export_function(part.function, weights, options);
  return out;
}

// Throws a usage error if int8 is requested for weights without step sizes.
void require_step_sizes(const NamedTensors& weights) {
  for (const auto& [name, tensor] : weights)
    if (name.ends_with("input_log_step")) return;
  fail_usage("--int8: these weights have no step sizes; `tessera convert --calibrate IMAGES` adds them");
}

// Throws a usage error if no layer was rounded: step sizes of more than 8 bits stay in float.
void require_int8(const std::vector<Written>& all) {
  for (const Written& written : all)
    for (const OnnxNode& node : written.exported.model.graph.nodes)
      if (node.operation == "QuantizeLinear") return;
  fail_usage("--int8: no layer of these weights has step sizes of at most 8 bits: export without --int8");
}

// Adds the metadata of the weights, and the scale and bias of pairs, which their vectors do not contain.
void add_metadata(OnnxModel& model, const train::OpenedTask& opened, const NamedTensors& weights) {
  for (const auto& [key, value] : train::weights_metadata(opened.info))
    model.metadata.emplace_back(key, value);
  for (const auto& [name, tensor] : weights)
    if (name == "logit_scale" || name == "logit_bias")
      model.metadata.emplace_back("tessera." + name, shortest(tensor.item<double>()));
  model.description = text("exported from ", fs::path(opened.file).filename().string());
}

void print(const Written& written) {
  const OnnxGraph& graph = written.exported.model.graph;
  std::cout << written.path << ": " << counted(std::ssize(graph.nodes), "operation") << ", opset "
            << written.exported.model.opset << ", within " << written.exported.difference
            << " of the model\n";
  for (const auto* values : {&graph.inputs, &graph.outputs})
    for (const OnnxValue& value : *values) {
      std::vector<std::string> sides;
      for (const OnnxDimension& side : value.shape)
        sides.push_back(side.name.empty() ? std::to_string(side.size) : side.name);
      std::cout << (values == &graph.inputs ? "  in   " : "  out  ") << value.name << " "
                << name_of(value.type) << " [" << join(sides, ", ") << "]\n";
    }
}

Json json_of(const Written& written) {
  return {{"file", written.path},
          {"operations", written.exported.model.graph.nodes.size()},
          {"opset", written.exported.model.opset},
          {"difference", written.exported.difference},
          {"fixed_sides", written.fixed}};
}

void export_weights(const ExportCommand& options) {
  require_folder_of(options.out);
  train::OpenedTask opened = train::open_task(
      options.weights,
      {.model = options.model, .key = options.key, .raw = options.raw, .size = options.size});
  const int64_t side = options.size > 0 ? options.size : opened.info.preprocess.size;
  tasks::Task& task = *opened.task;
  for (const auto& [name, tensor] : tasks::named_parameters(task.parts())) tensor.requires_grad_(false);
  std::vector<tasks::ExportedPart> parts;
  if (options.features)
    parts.push_back(tasks::exported_features(task.backbones().at(0), side));
  else
    parts = task.exported(side);
  const bool several = parts.size() > 1, is_file = is_onnx_name(options.out);
  if (several && is_file)
    fail_usage("--output ", options.out, ": these weights have ", parts.size(), " parts: name a folder");
  if (!several && !is_file) fail_usage("--output ", options.out, ": must end in .onnx");
  if (several) make_directories(options.out);
  const NamedTensors weights = tasks::named_state(task.parts());
  if (options.int8) require_step_sizes(weights);
  std::vector<Written> all;
  for (tasks::ExportedPart& part : parts) {
    part.function.settings.int8 = options.int8;
    part.function.settings.parallel_tokens = options.max_tokens;
    all.push_back(
        export_part(part, weights,
                    {.opset = options.opset, .producer_version = program_version(), .half = options.half}));
    all.back().path = several ? options.out + "/" + part.name + ".onnx" : options.out;
    add_metadata(all.back().exported.model, opened, weights);
  }
  if (options.int8) require_int8(all);
  Json lines = Json::array();
  for (const Written& written : all) {
    write_onnx(written.path, written.exported.model);
    if (options.json)
      lines.push_back(json_of(written));
    else
      print(written);
  }
  if (options.json) std::cout << lines.dump(2) << "\n";
}

}  // namespace

void add_export(Arguments& command, Action& action) {
  action = with_options<ExportCommand>(command, export_weights);
}

}  // namespace tessera::cli
