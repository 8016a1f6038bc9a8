#include "weights/language_files.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"
#include "io/files/json.h"
#include "nn/init.h"
#include "weights/tensors.h"

namespace tessera::train {
namespace {

using models::TensorPlace;

constexpr JsonLimits kLanguageConfigLimits = {
    .max_bytes = uint64_t{16} << 20, .max_depth = 16, .max_keys = 200'000};

// A configuration without its nulls, which say "as usual".
nlohmann::json without_nulls(const nlohmann::json& tree) {
  if (!tree.is_object()) return tree;
  nlohmann::json out = nlohmann::json::object();
  for (const auto& [key, value] : tree.items())
    if (!value.is_null()) out[key] = without_nulls(value);
  return out;
}

}  // namespace

Value read_language_config(const std::string& path) {
  const nlohmann::json tree =
      parse_json(read_text(path, kLanguageConfigLimits.max_bytes), path, kLanguageConfigLimits);
  check(tree.is_object(), path, " is ", tree.type_name(), ", must be an object");
  nlohmann::json plain = without_nulls(tree);
  for (const char* key : {"task_specific_params", "label2id", "id2label", "quantization_config", "auto_map"})
    plain.erase(key);
  return parse_json_value(plain.dump(), path);
}

std::string word_in(const Value& tree, const char* key) {
  const Value* found = tree.find(key);
  return found && found->is_string() ? found->as_string() : "";
}

int64_t number_in(const Value& tree, const char* key, int64_t otherwise) {
  const Value* found = tree.find(key);
  return found && found->is_int() ? found->as_int() : otherwise;
}

double real_in(const Value& tree, const char* key, double otherwise) {
  const Value* found = tree.find(key);
  return found && found->is_number() ? found->as_double() : otherwise;
}

void load_language(torch::nn::Module& module, const WeightFile& file,
                   const std::function<TensorPlace(const std::string&)>& place,
                   std::vector<std::string>& notes, const std::function<bool(const std::string&)>& there,
                   const std::string& misfit) {
  const torch::NoGradGuard no_grad;
  auto parameters = module.named_parameters();
  std::map<std::string, int64_t> reached;
  std::vector<std::string> left_over, missing;
  for (const TensorView& view : file.tensors()) {
    const TensorPlace to = place(view.name);
    if (to.name.empty()) continue;
    torch::Tensor* parameter = parameters.find(to.name);
    if (!parameter) {
      left_over.push_back(view.name);
      continue;
    }
    const auto parts = parameter->chunk(to.parts, 0);
    torch::Tensor target = parts.at(static_cast<size_t>(to.part));
    int64_t numbers = 1;
    for (const int64_t side : view.shape) numbers *= side;
    if (numbers != target.numel() ||
        (std::ssize(view.shape) == target.dim() && c10::IntArrayRef(view.shape) != target.sizes()))
      fail("'", file.path(), "': tensor '", printable(view.name), "' is ", c10::IntArrayRef(view.shape),
           ", the model's is ", target.sizes());
    target.copy_(to_tensor(view).view(target.sizes()));
    file.forget(view);
    reached[to.name] += 1;
  }
  for (const auto& entry : parameters)
    if (!reached.contains(entry.key()) && !(there && there(entry.key()))) missing.push_back(entry.key());
  if (!missing.empty())
    fail("'", file.path(), "' ", misfit, ": ", counted(std::ssize(missing), "tensor"), " missing (",
         some_of(missing, 4, 100), ")",
         left_over.empty() ? ""
                           : text(", ", left_over.size(), " left over (", some_of(left_over, 4, 100), ")"));
  if (!left_over.empty())
    notes.push_back(
        text("not used: ", counted(std::ssize(left_over), "tensor"), " (", some_of(left_over, 4, 100), ")"));
}

void check_language_size(const WeightFile& file, const std::function<int64_t()>& count,
                         const std::string& misfit) {
  int64_t stored = 0;
  for (const TensorView& view : file.tensors())
    stored += static_cast<int64_t>(view.bytes.size() / size_of(view.dtype));
  const nn::ShapesOnly shapes_only;
  const int64_t needed = count();
  if (needed / 4 > stored)
    fail("'", file.path(), "' ", misfit, ": it holds ", human_count(static_cast<double>(stored)),
         " numbers, the model has ", human_count(static_cast<double>(needed)), " parameters");
}

std::vector<int64_t> end_tokens_of(const std::string& folder, const Value& config, int64_t vocabulary) {
  const std::string file = (std::filesystem::path(folder) / "generation_config.json").string();
  const Value generation = file_exists(file) ? read_language_config(file) : Value(Value::Table());
  const Value* named = generation.find("eos_token_id");
  if (!named) named = config.find("eos_token_id");
  std::vector<int64_t> ends;
  const auto add = [&](const Value& id) {
    if (id.is_int() && id.as_int() >= 0 && id.as_int() < vocabulary) ends.push_back(id.as_int());
  };
  if (named && named->is_array())
    std::ranges::for_each(named->as_array(), add);
  else if (named)
    add(*named);
  return ends;
}

}  // namespace tessera::train
