// `tessera analyse similarity`: linear CKA (Kornblith et al. 2019) between the blocks, or other taps, of one
// model or of two, on the same images.
#include <algorithm>
#include <optional>

#include "cli/analyse/model_places.h"
#include "cli/base/analysis_input.h"
#include "cli/base/analysis_output.h"
#include "cli/base/command.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "report/matrix_chart.h"
#include "tasks/base/representation.h"

namespace tessera::cli {
namespace {

struct AnalyseSimilarityOptions {
  AnalysisInput input = 256;
  AnalysisOutput output;
  PlaceOptions places;
  std::string other;

  template <class V>
  void visit(V& v) {
    v("input", input, "");
    v("other", other, "weights of a second model, for the columns");
    v("places", places, "");
    v("output", output, "");
  }
};

// Features of a block, or at a tap of --tap: the mean over its positions, [images, channels].
struct NamedFeatures {
  std::vector<std::string> names;
  std::vector<torch::Tensor> values;
};

NamedFeatures features_of_all(const AnalyseSimilarityOptions& options, const AnalysedModel& model,
                              const AnalysedImages& images) {
  const torch::NoGradGuard no_grad;
  const bool by_name = !options.places.taps.empty();
  std::optional<ModelPlaces> places;
  if (by_name) places.emplace(model);
  NamedFeatures out;
  if (by_name) out.names = places->chosen(options.places.taps);
  std::vector<int64_t> blocks;
  for (int64_t i = 0; !by_name && i < model.backbone().block_count(); ++i)
    blocks.push_back(i), out.names.push_back(text("block ", i));
  std::vector<std::vector<torch::Tensor>> parts(out.names.size());
  for (int64_t first = 0; first < images.count(); first += options.input.batch) {
    if (interrupted()) throw Error(ErrorKind::interrupted, "interrupted");
    const torch::Tensor batch = images.images.slice(0, first, first + options.input.batch);
    std::vector<torch::Tensor> means;
    if (by_name)
      for (const PlaceFeatures& place : places->look(batch, out.names)) means.push_back(place.mean);
    else
      for (const torch::Tensor& map : model.backbone().features(batch, blocks))
        means.push_back(map.mean({2, 3}));
    for (size_t i = 0; i < means.size(); ++i) parts[i].push_back(means[i].to(torch::kCPU, torch::kFloat64));
  }
  for (const auto& part : parts) out.values.push_back(torch::cat(part));
  return out;
}

// Throws unless both models saw the same images, which CKA needs. Compares checksums: two draws of the
// built-in set, or two folders, may have the same names.
void check_same_images(const AnalysedModel& model, const AnalysedImages& images, const AnalysedModel& second,
                       const AnalysedImages& others) {
  if (images.checksums == others.checksums) return;
  const auto [one, other] = std::mismatch(images.checksums.begin(), images.checksums.end(),
                                          others.checksums.begin(), others.checksums.end());
  const auto name = [](const AnalysedImages& set, auto at) {
    return at == set.checksums.end() ? std::string("missing")
                                     : "'" + set.names[static_cast<size_t>(at - set.checksums.begin())] + "'";
  };
  fail_usage("the sets of ", model.file(), " (", images.source, ") and ", second.file(), " (", others.source,
             ") hold different images, the first of them ", name(images, one), " and ", name(others, other),
             ", and only models of the same images can be compared: give one set to both by --data");
}

// Returns the CKA of all pairs as a table and a chart; `json` gets its rows.
AnalysisSection cka_section(const NamedFeatures& rows, const NamedFeatures& columns, const char* row_kind,
                            const std::string& row_label, const std::string& column_label,
                            nlohmann::ordered_json& json) {
  report::Matrix matrix{rows.names, columns.names, {}};
  report::TableBlock table{.name = "similarity", .columns = {{row_kind}}};
  for (const std::string& name : matrix.columns) table.columns.push_back({name, true});
  json = nlohmann::ordered_json::array();
  for (size_t r = 0; r < rows.values.size(); ++r) {
    std::vector<std::string> cells = {matrix.rows[r]};
    auto line = nlohmann::ordered_json::array();
    for (const torch::Tensor& column : columns.values) {
      const double value = tasks::linear_cka(rows.values[r], column);
      matrix.values.push_back(value);
      cells.push_back(fixed(value, 3));
      line.push_back(value);
    }
    table.rows.push_back(cells);
    json.push_back(line);
  }
  AnalysisSection section{.heading = "Linear CKA",
                          .note =
                              "From the mean over each block's places: 1 if one is a rotation of the other, "
                              "0 if they share nothing.",
                          .table = std::move(table)};
  section.drawings.push_back(same_drawing(report::matrix_chart(matrix, {.title = "Linear CKA",
                                                                        .row_label = row_label,
                                                                        .column_label = column_label,
                                                                        .low = 0,
                                                                        .high = 1,
                                                                        .whole_range = false})));
  return section;
}

void analyse(const AnalyseSimilarityOptions& options) {
  const AnalysedModel model(options.input);
  AnalysisInput second_input = options.input;
  if (!options.other.empty()) second_input.weights = options.other;
  const AnalysedModel second(second_input);
  AnalysisWriter writer(options.output);
  if (options.places.list) return writer.write(ModelPlaces(model).findings());
  const AnalysedImages images = read_images(options.input, model);
  if (images.count() < 4)
    fail_usage("CKA of ", counted(images.count(), "image"), ": take at least 4 by --images");
  // Preprocessed for the second model.
  const AnalysedImages others = options.other.empty() ? images : read_images(second_input, second);
  check_same_images(model, images, second, others);
  const bool by_name = !options.places.taps.empty();
  if (by_name && !options.other.empty())
    ModelPlaces(second).chosen(options.places.taps);  // checked before the first model runs
  const Interruptible stretch;
  const NamedFeatures rows = features_of_all(options, model, images);
  const NamedFeatures columns = options.other.empty() ? rows : features_of_all(options, second, others);

  AnalysisFindings out;
  out.title =
      options.other.empty()
          ? (by_name ? "Similarity of places of " : "Similarity of the blocks of ") + model.info().model.name
          : "Similarity of " + model.info().model.name + " and " + second.info().model.name;
  out.subtitle = text(model.file(), options.other.empty() ? "" : " and " + second.file(), "; ",
                      counted(images.count(), "image"), " of ", images.source);
  nlohmann::ordered_json json;
  out.sections.push_back(cka_section(rows, columns, by_name ? "place" : "block", model.info().model.name,
                                     second.info().model.name, json));
  out.json = {{"weights", model.file()},
              {"other", second.file()},
              {"data", images.source},
              {"images", images.count()},
              {"rows", rows.names},
              {"columns", columns.names},
              {"cka", json}};
  writer.write(out);
}

}  // namespace

void add_analyse_similarity(Arguments& command, Action& action) {
  action = with_options<AnalyseSimilarityOptions>(command, analyse);
}

}  // namespace tessera::cli
