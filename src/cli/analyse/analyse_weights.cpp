// `tessera analyse weights`: norms and spectra of all tensors, and the distance between two checkpoints.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>

#include "cli/base/analysis_output.h"
#include "cli/base/command.h"
#include "core/error.h"
#include "core/text.h"
#include "io/weights/weight_file.h"
#include "open/open_task.h"
#include "open/weights.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

struct AnalyseWeightsOptions {
  std::string weights, other;
  AnalysisOutput output;
  int64_t largest = 4096;
  bool raw = false;

  template <class V>
  void visit(V& v) {
    v("weights", weights, {.names = "-w", .required = true},
      "weights file of any format, checkpoint or run directory");
    v("other", other, "second checkpoint, for the change of every tensor");
    v("largest", largest, between(1, 1000000),
      "no singular values of matrices with a longer shorter side than this");
    v("raw", raw, "checkpoints: the raw weights instead of their moving average");
    v("output", output, "");
  }
};

std::map<std::string, torch::Tensor> tensors_of(const std::string& file) {
  const WeightFile weights(file);
  std::map<std::string, torch::Tensor> out;
  for (const TensorView& view : weights.tensors()) {
    const torch::Tensor tensor = train::to_tensor(view);
    if (tensor.is_floating_point() && tensor.numel() > 0) out[view.name] = tensor.to(torch::kFloat64);
  }
  return out;
}

struct Spectrum {
  double largest = NAN, stable_rank = NAN;  // |W|_F^2 / s_max^2
};

// Returns the spectrum of a tensor flattened to a matrix. Skips matrices with both sides above `largest`,
// which would take minutes.
Spectrum spectrum_of(const torch::Tensor& tensor, int64_t largest) {
  if (tensor.dim() < 2) return {};
  const torch::Tensor matrix = tensor.flatten(1);
  if (std::min(matrix.size(0), matrix.size(1)) > largest) return {};
  const torch::Tensor values = torch::linalg_svdvals(matrix);
  const double first = values[0].item<double>();
  return {first, first > 0 ? values.square().sum().item<double>() / (first * first) : 0};
}

std::string number(double value) { return std::isfinite(value) ? fixed(value, 4) : ""; }

// Returns table, curve and JSON of a file's tensors, compared with those of another file if there is one.
struct TensorTable {
  const AnalyseWeightsOptions& options;
  const std::map<std::string, torch::Tensor> others =
      options.other.empty() ? std::map<std::string, torch::Tensor>()
                            : tensors_of(train::weights_file_of(options.other, options.raw));
  bool paired = !options.other.empty();
  AnalysisSection section{.heading = "Tensors",
                          .note = "Stable rank: the squared norm over the squared largest singular value.",
                          .table = {.name = "weights",
                                    .columns = {{"tensor"},
                                                {"shape"},
                                                {"norm", true},
                                                {"deviation", true},
                                                {"largest singular value", true},
                                                {"stable rank", true}}}};
  report::Curve norms{.name = "norm / root of the count"}, changes{.name = "change"};
  Json json = Json::array();
  int64_t place = 0, shared = 0;

  void add(const std::string& name, const torch::Tensor& tensor) {
    const Spectrum spectrum = spectrum_of(tensor, options.largest);
    const double norm = tensor.norm().item<double>(),
                 deviation = tensor.numel() > 1 ? tensor.std().item<double>() : 0;
    std::vector<std::string> cells = {name,
                                      text(tensor.sizes()),
                                      number(norm),
                                      number(deviation),
                                      number(spectrum.largest),
                                      number(spectrum.stable_rank)};
    Json line = {{"tensor", name}, {"shape", tensor.sizes().vec()}, {"norm", norm}, {"deviation", deviation}};
    if (std::isfinite(spectrum.largest))
      line["largest_singular_value"] = spectrum.largest, line["stable_rank"] = spectrum.stable_rank;
    norms.points.push_back(
        {static_cast<double>(++place), norm / std::sqrt(static_cast<double>(tensor.numel()))});
    if (paired) add_change(name, tensor, norm, cells, line);
    section.table.rows.push_back(std::move(cells));
    json.push_back(std::move(line));
  }
  void add_change(const std::string& name, const torch::Tensor& tensor, double norm,
                  std::vector<std::string>& cells, Json& line) {
    const auto other = others.find(name);
    double change = NAN, cosine = NAN;
    if (other != others.end() && other->second.sizes() == tensor.sizes()) {
      ++shared;
      const double length = other->second.norm().item<double>();
      change = norm > 0 ? (other->second - tensor).norm().item<double>() / norm : NAN;
      cosine = norm > 0 && length > 0 ? (other->second * tensor).sum().item<double>() / (norm * length) : NAN;
      line["change"] = change, line["cosine"] = cosine;
      changes.points.push_back({static_cast<double>(place), change});
    }
    cells.push_back(number(change)), cells.push_back(number(cosine));
  }
};

void analyse(const AnalyseWeightsOptions& options) {
  AnalysisWriter writer(options.output);
  const std::string file = train::weights_file_of(options.weights, options.raw);
  const auto own = tensors_of(file);
  TensorTable tensors{options};
  const bool paired = tensors.paired;
  AnalysisSection& section = tensors.section;
  if (paired) section.table.columns.insert(section.table.columns.end(), {{"change", true}, {"cosine", true}});
  for (const auto& [name, tensor] : own) tensors.add(name, tensor);
  if (own.empty()) fail(file, ": holds no weights");
  if (paired && tensors.shared == 0)
    fail_usage(file, " and ", options.other,
               " share no tensor of one name and shape: both must be one architecture");
  section.drawings = {line_drawing(
      {paired ? tensors.changes : tensors.norms},
      {.title = paired ? "Change by tensor, |other - own| / |own|" : "Root mean square by tensor",
       .x_label = "tensor, in the order of the table",
       .y_label = ""})};
  AnalysisFindings out;
  out.title = "Weights";
  out.subtitle = paired ? file + " next to " + options.other : file;
  out.json = {{"weights", file}, {"other", options.other}, {"tensors", tensors.json}};
  out.sections = {std::move(section)};
  writer.write(out);
}

}  // namespace

void add_analyse_weights(Arguments& command, Action& action) {
  action = with_options<AnalyseWeightsOptions>(command, analyse);
}

}  // namespace tessera::cli
