#include "laws/points.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "core/value.h"
#include "io/files/file.h"
#include "io/files/json.h"
#include "io/weights/safetensors.h"

namespace tessera::laws {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepest = 6;
constexpr size_t kMostRuns = 10000;

bool is_embedding(const std::string& name) {
  for (const char* part : {"embed", "wte", "wpe"})
    if (name.find(part) != std::string::npos) return true;
  return false;
}

void find_runs(const std::string& directory, int depth, std::vector<std::string>& found) {
  if (file_exists(directory + "/metrics.jsonl")) {
    found.push_back(directory);
    return;
  }
  if (depth == 0 || found.size() >= kMostRuns) return;
  std::vector<std::string> inside;
  for (const auto& entry : fs::directory_iterator(directory))
    if (entry.is_directory() && !entry.is_symlink()) inside.push_back(entry.path().string());
  std::sort(inside.begin(), inside.end());
  for (const std::string& path : inside) find_runs(path, depth - 1, found);
}

double parameters_of(const std::string& weights, bool without_embeddings) {
  const SafetensorsFile file(weights);
  double sum = 0;
  for (const TensorView& tensor : file.tensors()) {
    const bool buffer = tensor.name.ends_with("running_mean") || tensor.name.ends_with("running_var") ||
                        tensor.name.ends_with("num_batches_tracked");
    if (buffer || (without_embeddings && is_embedding(tensor.name))) continue;
    double numbers = 1;
    for (const int64_t size : tensor.shape) numbers *= static_cast<double>(size);
    sum += numbers;
  }
  return sum;
}

// The lines of metrics.jsonl, without a truncated last line.
std::vector<nlohmann::json> lines_of(const std::string& file) {
  const std::vector<std::string> lines = split(read_text(file, uint64_t{1} << 30), '\n');
  std::vector<nlohmann::json> parsed;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (trim(lines[i]).empty()) continue;
    try {
      parsed.push_back(parse_json(lines[i], text(file, " line ", i + 1)));
    } catch (const Error&) {
      if (i + 1 == lines.size()) break;
      throw;
    }
    check(parsed.back().is_object(), file, " line ", i + 1, " is no JSON object");
  }
  return parsed;
}

double number_of(const nlohmann::json& line, const std::string& key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>() : NAN;
}

// Returns a number from a JSON file in a run's directory; NaN if the file or the number is missing.
double measured_in(const std::string& file, const std::function<double(const nlohmann::json&)>& find) {
  if (!file_exists(file)) return NAN;
  const nlohmann::json found = parse_json(read_text(file, uint64_t{1} << 24), file);
  check(found.is_object(), file, " is no JSON object");
  return find(found);
}

// The best layer's ridge regression, as `tessera probe --json` prints it.
double best_probe(const nlohmann::json& probe) {
  double best = NAN;
  const auto layers = probe.find("layers");
  if (layers == probe.end() || !layers->is_array()) return best;
  for (const nlohmann::json& layer : *layers) best = std::fmax(best, number_of(layer, "ridge_top1"));
  return best;
}

// The content of a run's files.
struct Read {
  Point point{};
  Curve curve{};
  std::string fault{};  // why it is left out
  std::set<std::string> metrics{};
};

int64_t integer_at(const Value& recipe, const char* key) {
  const Value* value = recipe.find(key);
  return value && value->is_int() ? value->as_int() : 0;
}

void read_lines(Read& read, const std::vector<nlohmann::json>& lines, const RunOptions& options, double batch,
                double& last_epoch) {
  bool has_loss = false;
  for (const nlohmann::json& line : lines) {
    const std::string kind = line.value("kind", "");
    const double step = number_of(line, "step"), scale = number_of(line, "noise_scale");
    if (kind == "train" && std::isfinite(scale)) read.point.noise_scale = scale;
    if (kind != "eval") continue;
    for (const auto& [key, value] : line.items()) read.metrics.insert(key);
    if (!line.contains(options.loss)) continue;
    has_loss = true;
    read.point.loss = number_of(line, options.loss);
    read.point.samples = step * batch;
    read.point.flop = 2 * number_of(line, "training_macs");
    read.point.accuracy = std::fmax(number_of(line, "top1"), number_of(line, "accuracy"));
    last_epoch = number_of(line, "epoch");
    if (!(read.point.loss > 0) || !(step > 0)) continue;
    read.curve.samples.push_back(read.point.samples);
    read.curve.losses.push_back(read.point.loss);
  }
  if (!has_loss) read.fault = text("no evaluation has '", options.loss, "'");
}

// Adds the results of a run that is complete: sizes of its weights, and measurements after the training.
void add_finished(const std::string& directory, const RunOptions& options, double epochs, Read& read) {
  if (epochs > 0) read.point.unique_samples = read.point.samples / epochs;
  read.point.parameters = parameters_of(directory + "/model.safetensors", options.without_embeddings);
  if (!(read.point.flop > 0)) read.point.flop = 6 * read.point.parameters * read.point.samples;
  const double other =
      measured_in(directory + "/other.json", [&](const auto& json) { return number_of(json, options.loss); });
  if (other > 0) read.point.other_loss = other;
  const double probe = measured_in(directory + "/probe.json", best_probe);
  if (std::isfinite(probe)) read.point.accuracy = probe;
  read.curve.name = directory;
  read.curve.parameters = read.point.parameters;
  read.curve.flop_per_sample = read.point.flop / read.point.samples;
}

Read read_run(const std::string& directory, const RunOptions& options) {
  Read read{.point = {.name = directory}};
  const std::string recipe_file = directory + "/recipe.toml", weights = directory + "/model.safetensors";
  if (!file_exists(recipe_file)) {
    read.fault = "no recipe.toml";
    return read;
  }
  const Value recipe = parse_toml(read_text(recipe_file), recipe_file);
  double epoch = 0;
  const auto batch = static_cast<double>(integer_at(recipe, "train.batch_size"));
  read_lines(read, lines_of(directory + "/metrics.jsonl"), options, batch, epoch);
  if (!read.fault.empty()) return read;
  const bool finite = std::isfinite(read.point.loss) && read.point.loss > 0;
  if (!finite) {
    read.fault = "diverged";
    return read;
  }
  const int64_t steps = integer_at(recipe, "train.steps"), epochs = integer_at(recipe, "train.epochs");
  const bool all_steps = steps > 0 ? read.point.samples >= 0.999 * static_cast<double>(steps) * batch
                                   : epoch >= 0.999 * static_cast<double>(epochs);
  if (!file_exists(weights) || !all_steps) {
    read.fault = text("stopped early, in epoch ", fixed(epoch, 2));
    return read;
  }
  add_finished(directory, options, epoch, read);
  return read;
}

}  // namespace

Points read_runs(const std::vector<std::string>& directories, const RunOptions& options) {
  std::vector<std::string> found;
  for (const std::string& directory : directories) {
    if (!fs::is_directory(directory)) fail_usage(printable(directory), ": no such directory of runs");
    find_runs(directory, kDeepest, found);
  }
  if (found.empty())
    fail_usage(printable(join(directories, ", ")), ": no run below it (a directory with a metrics.jsonl)");
  Points out;
  std::set<std::string> metrics;
  for (const std::string& directory : found) {
    Read read = read_run(directory, options);
    metrics.insert(read.metrics.begin(), read.metrics.end());
    if (!read.fault.empty()) {
      out.left_out.push_back(directory + ": " + read.fault);
      continue;
    }
    out.points.push_back(std::move(read.point));
    if (read.curve.samples.size() >= 2) out.curves.push_back(std::move(read.curve));
  }
  const std::vector<std::string> names(metrics.begin(), metrics.end());
  if (out.points.empty() && !metrics.contains(options.loss) && !metrics.empty())
    fail_usage("no evaluation has '", printable(options.loss, 40), "'; they have ", join(names, ", "));
  return out;
}

}  // namespace tessera::laws
