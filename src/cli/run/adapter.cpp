// `tessera adapter save|merge`: saves LoRA as PEFT's files, or merges it into a model's weights.
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/base/command.h"
#include "cli/base/common.h"
#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"
#include "io/files/path.h"
#include "open/open_language.h"
#include "open/open_task.h"
#include "weights/adapter_config.h"

namespace tessera::cli {
namespace {

struct SaveOptions {
  std::string weights, output;
  bool json = false;

  template <class V>
  void visit(V& v) {
    v("weights", weights, {.names = "-w", .required = true},
      "run of task instruct, frozen or flamingo with LoRA");
    v("output", output, {.names = "-o", .required = true, .writes = Writes::file}, "folder to write");
    visit_json(v, json);
  }
};

struct MergeOptions {
  std::string weights, adapter, output;
  bool json = false;

  template <class V>
  void visit(V& v) {
    v("weights", weights, {.names = "-w", .required = true},
      "folder with config.json and weights of a language model");
    v("adapter", adapter, {.required = true},
      "folder with adapter_config.json and adapter_model.safetensors");
    v("output", output, {.names = "-o", .required = true, .writes = Writes::file},
      "folder to write, with configuration and tokeniser, or a single .safetensors file; published names");
    visit_json(v, json);
  }
};

// Returns the adapter settings of a run's recipe.
models::LoraConfig lora_of(const Value& task) {
  models::LoraConfig config;
  if (const Value* rank = task.find("lora_rank"); rank && rank->is_int()) config.rank = rank->as_int();
  if (const Value* alpha = task.find("lora_alpha"); alpha && alpha->is_number())
    config.alpha = alpha->as_double();
  if (const Value* targets = task.find("lora_targets"); targets && targets->is_array()) {
    config.targets.clear();
    for (const Value& name : targets->as_array()) config.targets.push_back(name.as_string());
  }
  return config;
}

void save(const SaveOptions& options) {
  const train::OpenedTask opened = train::open_task(options.weights);
  const auto language = train::require_answers(opened).answering_model().language;
  if (!language) fail_usage(opened.file, " is an encoder-decoder: adapters are for decoders");
  train::write_adapter(*language, lora_of(opened.info.task), opened.file, options.output);
  people(options.json) << "written " << one_line(options.output)
                       << ": adapter_config.json, adapter_model.safetensors\n";
  print_outcome(options.json, {{"output", options.output},
                               {"files", {"adapter_config.json", "adapter_model.safetensors"}}});
}

// Files next to published weights that configure their use.
constexpr const char* kBesideWeights[] = {"config.json",         "generation_config.json",
                                          "chat_template.jinja", "tokenizer.json",
                                          "tokenizer.model",     "tokenizer_config.json",
                                          "spiece.model",        "special_tokens_map.json",
                                          "added_tokens.json",   "vocab.json",
                                          "merges.txt",          "bpe_simple_vocab_16e6.txt.gz"};

// Writes the weights, and the other files of the old folder; all of them or nothing.
void write_folder(const std::string& folder, const std::filesystem::path& from, const NamedTensors& tensors) {
  namespace fs = std::filesystem;
  const std::string unfinished = folder + ".writing";
  fs::remove_all(unfinished);
  try {
    make_directories(unfinished);
    for (const char* name : kBesideWeights)
      if (file_exists((from / name).string())) fs::copy_file(from / name, fs::path(unfinished) / name);
    train::save_tensors(unfinished + "/model.safetensors", tensors, {{"format", "pt"}});
    fs::rename(unfinished, folder);
  } catch (const std::exception& error) {
    std::error_code ignored;
    fs::remove_all(unfinished, ignored);
    fail("cannot write '", folder, "': ", error.what());
  }
}

void merge(const MergeOptions& options) {
  namespace fs = std::filesystem;
  const bool alone = options.output.ends_with(".safetensors");
  const fs::path given = without_cache(options.weights),
                 from = fs::is_directory(given) ? given : given.parent_path();
  if (!fs::exists(given)) fail("cannot open '", options.weights, "'");
  if (!file_exists((from / "config.json").string()))
    fail_usage("'", options.weights,
               "' has no config.json that names its model; the adapter of a run stays next to the "
               "weights, `tessera chat --adapter`");
  if (!alone && fs::exists(options.output) &&
      !(fs::is_directory(options.output) && fs::is_empty(options.output)))
    fail_usage("'", options.output, "' must be a .safetensors file, or a folder that is new or empty");
  const train::OpenedLanguage opened = train::open_decoder(options.weights, torch::kFloat32);
  if (opened.images)
    fail_usage(opened.file,
               " reads images too: `tessera chat --adapter` has its adapter next to the weights");
  const int64_t layers = train::read_adapter(*opened.language, options.adapter, /*merged=*/true);
  NamedTensors tensors;
  for (const auto& entry : opened.language->named_parameters())
    tensors.emplace_back(entry.key(), entry.value());
  if (alone)
    train::save_tensors(options.output, tensors, {{"format", "pt"}});
  else
    write_folder(options.output, from, tensors);
  people(options.json) << "written " << one_line(options.output) << ": " << counted(layers, "layer") << " of "
                       << one_line(opened.file) << " changed by " << one_line(options.adapter) << "\n";
  print_outcome(options.json, {{"output", options.output},
                               {"layers", layers},
                               {"tensors", tensors.size()},
                               {"weights", opened.file},
                               {"adapter", options.adapter}});
}

}  // namespace

void add_adapter_save(Arguments& command, Action& action) {
  action = with_options<SaveOptions>(command, save);
}

void add_adapter_merge(Arguments& command, Action& action) {
  action = with_options<MergeOptions>(command, merge);
}

}  // namespace tessera::cli
