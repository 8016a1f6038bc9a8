// `tessera analyse cues`: shape bias of a classifier on images with conflicting shape and texture (Geirhos et
// al. 2019; Wang et al. 2024, Table 8 and Figure 8).
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <set>

#include "cli/base/analysis_output.h"
#include "cli/base/command.h"
#include "cli/base/common.h"
#include "cli/base/scored_set.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "data/base/image_files.h"
#include "data/sources/shapes.h"
#include "data/transforms/transform.h"
#include "eval/discrimination.h"
#include "eval/robustness.h"
#include "io/files/file.h"
#include "io/files/json.h"
#include "open/image_walk.h"
#include "report/dot_chart.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct AnalyseCuesOptions {
  AnalysisInput input = {0, 64};
  AnalysisOutput output;
  std::vector<std::string> weights;
  std::string mapping;

  template <class V>
  void visit(V& v) {
    input.visit_set(v, weights);
    v("mapping", mapping,
      "JSON file {\"category\": [classes]} (default: next to the images, or by the classes' names)");
    v("output", output, "");
  }
};

// The images, each with its two categories.
struct CueSet {
  std::shared_ptr<const data::Source> source;
  std::vector<std::string> shapes, textures;
};

// "knife" of "knife12".
std::string without_number(const std::string& word) {
  size_t end = word.size();
  while (end > 0 && std::isdigit(static_cast<unsigned char>(word[end - 1]))) --end;
  return word.substr(0, end);
}

// The published set: images called SHAPEi-TEXTUREj.
CueSet files_set(const std::string& folder) {
  auto files = std::make_shared<data::ImageFiles>(std::vector<std::string>{folder});
  CueSet set;
  for (const std::string& path : files->paths()) {
    const std::vector<std::string> words = split(fs::path(path).stem().string(), '-');
    if (words.size() != 2 || without_number(words[0]).empty() || without_number(words[1]).empty())
      fail(path, ": its name must be SHAPE-TEXTURE, as cat1-dog2, which names both cues");
    set.shapes.push_back(without_number(words[0])), set.textures.push_back(without_number(words[1]));
  }
  set.source = files;
  return set;
}

CueSet shapes_set(const std::string& path) {
  const data::ShapesConfig config = data::parse_shapes(path);
  if (config.cues != "conflict")
    fail_usage(path,
               ": its cues do not conflict: take shapes:cues=conflict, and a model of shapes:cues=agree");
  CueSet set;
  set.source = data::open_source({.path = path}, data::Split::validation);
  // In a model that learned shape i together with texture i, one class covers both.
  for (int64_t i = 0; i < set.source->size(); ++i) {
    const data::ShapesLabel label = data::shapes_label(config, data::Split::validation, i);
    set.shapes.push_back(data::shape_names()[static_cast<size_t>(label.shape)]);
    set.textures.push_back(data::shape_names()[static_cast<size_t>(label.texture)]);
  }
  return set;
}

// Reads the classes of each category, of a model with `classes` classes.
eval::CueMapping read_mapping(const std::string& file, int64_t classes) {
  eval::CueMapping mapping;
  const Json table = parse_json<Json>(read_text(file), file);
  check(table.is_object() && !table.empty(), file, ": must be {\"category\": [numbers of classes], …}");
  for (const auto& [category, numbers] : table.items()) {
    check(numbers.is_array() && !numbers.empty(), file, ": ", category, " must be a list of classes");
    mapping.categories.push_back(category);
    mapping.classes.emplace_back();
    for (const Json& number : numbers) {
      if (!number.is_number_integer() || number.get<int64_t>() < 0 || number.get<int64_t>() >= classes)
        fail_usage(file, ": ", category, " holds ", number.dump(), ", the weights have the classes 0 to ",
                   classes - 1);
      mapping.classes.back().push_back(number.get<int64_t>());
    }
  }
  return mapping;
}

// Reads the mapping from a file {"category": [classes]}, or for ImageNet's 1000 classes from the file next to
// the images; otherwise maps by class name.
eval::CueMapping mapping_of(const AnalyseCuesOptions& options, const AnalysedModel& model, bool shapes) {
  const int64_t classes = model.classifier().classes();
  std::string file = options.mapping;
  if (file.empty() && classes == 1000)
    for (const fs::path& folder : {fs::path(options.input.data), fs::path(options.input.data).parent_path()})
      if (file.empty() && file_exists((folder / "categories_to_imagenet1k.json").string()))
        file = (folder / "categories_to_imagenet1k.json").string();
  if (!file.empty()) return read_mapping(file, classes);
  eval::CueMapping mapping;
  const std::vector<std::string> names = model.class_names();
  if (!shapes) {
    mapping = eval::cue_mapping_of_names(names);
  } else {
    for (size_t i = 0; i < names.size(); ++i)
      mapping.categories.push_back(names[i]), mapping.classes.push_back({static_cast<int64_t>(i)});
  }
  if (mapping.categories.empty())
    fail_usage(model.file(), ": its ", classes,
               " classes are none of the 16 categories; name them by --mapping FILE.json: "
               "{\"cat\": [3, 4], …}");
  return mapping;
}

std::vector<eval::CueTrial> decide(const AnalysedModel& model, const CueSet& set,
                                   const eval::CueMapping& mapping, const AnalyseCuesOptions& options,
                                   const std::string& label) {
  const auto transform = data::make_eval_transform(model.info().preprocess);
  const torch::Tensor parameter = model.backbone().parameters().at(0);
  const auto known = [&](const std::string& category) {
    return std::find(mapping.categories.begin(), mapping.categories.end(), category) !=
           mapping.categories.end();
  };
  const torch::InferenceMode inference;
  ProgressLine progress(std::cerr, {.label = label, .total = set.source->size()});
  const train::ImageWalk walk{.batch = batch_that_fits(options.input.batch, model.info().preprocess.size),
                              .broken = [](const std::string& error) { fail(error); },
                              .progress = [&](int64_t done) { progress.update(done, {}); }};
  std::vector<eval::CueTrial> trials;
  train::for_each_batch(*set.source, *transform, walk, [&](const train::WalkedBatch& loaded) {
    const torch::Tensor scores = model.classifier()
                                     .forward(loaded.images.to(parameter.device(), parameter.scalar_type()))
                                     .to(torch::kCPU, torch::kFloat64)
                                     .softmax(-1)
                                     .contiguous();
    const double* rows = scores.const_data_ptr<double>();
    for (int64_t i = 0; i < loaded.size(); ++i) {
      const auto place = static_cast<size_t>(loaded.first + i);
      if (!known(set.shapes[place]) || !known(set.textures[place]))
        continue;  // the model has no class of this category
      const std::span<const double> row(rows + i * scores.size(1), static_cast<size_t>(scores.size(1)));
      trials.push_back(
          {set.shapes[place], set.textures[place], mapping.categories[eval::cue_decision(row, mapping)]});
    }
  });
  progress.finish();
  return trials;
}

Json counts_json(const eval::CueCounts& counts) {
  const eval::Interval interval = eval::wilson(counts.shape, counts.shape + counts.texture);
  return {{"shape", counts.shape}, {"texture", counts.texture},
          {"total", counts.total}, {"shape_bias", counts.shape_bias()},
          {"low", interval.low},   {"high", interval.high}};
}

std::string share_text(double share) { return std::isfinite(share) ? fixed(share, 4) : ""; }

// Geirhos et al. 2019, Figure 4: one row per category of any model, with "all shape" on the left.
AnalysisSection category_section(const std::vector<std::string>& weights,
                                 const std::vector<eval::ShapeBias>& found) {
  AnalysisSection section{
      .heading = "By category",
      .note = "Shape bias by the category of the shape; a line marks that of all images."};
  section.table = {.name = "categories", .columns = {{"category"}}};
  std::set<std::string> categories;
  for (const eval::ShapeBias& bias : found)
    for (const auto& [category, counts] : bias.by_category) categories.insert(category);
  std::vector<report::DotSeries> series;
  for (size_t m = 0; m < found.size(); ++m) {
    section.table.columns.push_back({weights[m], true});
    series.push_back({.name = weights[m], .mean = found[m].all.shape_bias()});
  }
  for (const std::string& category : categories) {
    std::vector<std::string> cells = {category};
    for (size_t m = 0; m < found.size(); ++m) {
      const auto own = found[m].by_category.find(category);
      const double share = own == found[m].by_category.end() ? NAN : own->second.shape_bias();
      series[m].shares.push_back(share);
      cells.push_back(share_text(share));
    }
    section.table.rows.push_back(std::move(cells));
  }
  report::DotOptions chart{.title = "Shape or texture by category",
                           .label = "share of decisions by shape",
                           .left = "all shape",
                           .right = "all texture",
                           .falling = true};
  const std::vector<std::string> rows(categories.begin(), categories.end());
  const std::string wide = report::dot_chart(rows, series, chart);
  chart.width = 320;
  section.drawings = {{wide, report::dot_chart(rows, series, chart)}};
  return section;
}

// True for the built-in images. Throws if any other path does not exist.
bool takes_shapes(const std::string& data) {
  if (data.empty()) fail_usage("--data: give the folder of the cue-conflict images, or shapes:cues=conflict");
  const bool shapes = data.starts_with("shapes");
  if (std::error_code error; !shapes && !fs::exists(data, error))
    fail("data path '", printable(data),
         "' does not exist: give the folder of the cue-conflict images, or shapes:cues=conflict");
  return shapes;
}

AnalysisSection bias_section() {
  AnalysisSection all{.heading = "Shape bias",
                      .note = "Decisions by shape among those for either cue, with Wilson's 95 % interval."};
  all.table = {.name = "shape bias",
               .columns = {{"weights"},
                           {"shape", true},
                           {"texture", true},
                           {"images", true},
                           {"shape bias", true},
                           {"low", true},
                           {"high", true},
                           {"decided", true}}};
  return all;
}

void analyse(const AnalyseCuesOptions& options) {
  const bool shapes = takes_shapes(options.input.data);
  const CueSet set = shapes ? shapes_set(options.input.data) : files_set(options.input.data);
  AnalysisWriter writer(options.output);
  const Interruptible stretch;
  AnalysisFindings out;
  AnalysisSection all = bias_section();
  std::vector<eval::ShapeBias> found;
  auto json = Json::array();
  for (const std::string& weights : options.weights) {
    AnalysisInput input = options.input;
    input.weights = weights;
    const AnalysedModel model(input);
    const eval::CueMapping mapping = mapping_of(options, model, shapes);
    const eval::ShapeBias bias = eval::shape_bias(decide(model, set, mapping, options, weights));
    if (bias.all.total == 0)
      fail(options.input.data, ": no image has two different categories among the ",
           counted(std::ssize(mapping.categories), "category", "categories"), " of ", weights);
    const eval::Interval interval = eval::wilson(bias.all.shape, bias.all.shape + bias.all.texture);
    all.table.rows.push_back({weights, std::to_string(bias.all.shape), std::to_string(bias.all.texture),
                              std::to_string(bias.all.total), share_text(bias.all.shape_bias()),
                              fixed(interval.low, 4), fixed(interval.high, 4), fixed(bias.decided(), 4)});
    Json line = {{"weights", weights},
                 {"model", model.info().model.name},
                 {"all", counts_json(bias.all)},
                 {"decided", bias.decided()}};
    for (const auto& [category, counts] : bias.by_category)
      line["categories"][category] = counts_json(counts);
    json.push_back(std::move(line));
    found.push_back(bias);
  }
  out.title = "Shape and texture";
  out.subtitle = text(set.source->describe(), "; trials whose two cues are one category are left out");
  out.json = {{"data", set.source->describe()}, {"models", json}};
  out.sections = {std::move(all), category_section(options.weights, found)};
  writer.write(out);
}

}  // namespace

void add_analyse_cues(Arguments& command, Action& action) {
  action = with_options<AnalyseCuesOptions>(command, analyse);
}

}  // namespace tessera::cli
