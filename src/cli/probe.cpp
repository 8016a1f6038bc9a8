// `tessera probe`: what a model's features are worth, layer by layer, without training it.
#include <algorithm>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/command.h"
#include "cli/common.h"
#include "core/clock.h"
#include "core/config.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/progress.h"
#include "core/random.h"
#include "core/text.h"
#include "core/toml.h"
#include "io/file.h"
#include "report/charts.h"
#include "report/html.h"
#include "tasks/layer_features.h"
#include "tasks/representation.h"
#include "train/device.h"
#include "train/open_task.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kRankImages = 2048;  // whose features RankMe sees
constexpr double kTemperature = 0.07;  // of DINO's votes

struct Options {
  std::string weights, features = "mean", report, model, device = "auto", precision = "fp32";
  data::SourceConfig data;
  int64_t neighbours = 20, per_class = 0, images = 0, size = 0, batch = 64, threads = 0, loader_threads = 1;
  int64_t seed = 0;
  double cache = 4;
  bool json = false, raw = false;
};

// Some samples of another source.
class Chosen final : public data::LabelledSource {
 public:
  Chosen(std::shared_ptr<const data::Source> whole, std::vector<int64_t> indices)
      : whole_(std::move(whole)), indices_(std::move(indices)) {}
  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  data::RawSample read(int64_t index) const override { return whole_->read(at(index)); }
  int64_t label(int64_t index) const override { return labels().label(at(index)); }
  const std::vector<std::string>& class_names() const override { return labels().class_names(); }
  uint64_t fingerprint() const override { return whole_->fingerprint(); }
  std::string describe() const override { return text(size(), " images of ", whole_->describe()); }

 private:
  int64_t at(int64_t index) const { return indices_[static_cast<size_t>(index)]; }
  const data::ClassLabels& labels() const { return *whole_->class_labels(); }
  std::shared_ptr<const data::Source> whole_;
  std::vector<int64_t> indices_;
};

// The images to learn from: at most `images` in all, and `per_class` of each class, drawn by the seed.
std::shared_ptr<const data::Source> choose(std::shared_ptr<const data::Source> source,
                                           const Options& options) {
  const data::ClassLabels& labels = data::require_labels(*source, "tessera probe");
  if (labels.multi_label())
    fail_usage("tessera probe needs one class an image, ", source->describe(), " has several");
  if (options.per_class == 0 && options.images == 0) return source;
  const int64_t classes = static_cast<int64_t>(labels.class_names().size());
  std::vector<int64_t> left(static_cast<size_t>(classes),
                            options.per_class > 0 ? options.per_class : source->size());
  std::vector<int64_t> chosen;
  for (const int64_t index :
       RandomStream(static_cast<uint64_t>(options.seed), "probe").permutation(source->size())) {
    if (options.images > 0 && static_cast<int64_t>(chosen.size()) == options.images) break;
    if (left[static_cast<size_t>(labels.label(index))]-- > 0) chosen.push_back(index);
  }
  if (options.per_class > 0)
    for (int64_t c = 0; c < classes; ++c)
      if (left[static_cast<size_t>(c)] > 0 && options.images == 0)
        fail_usage("--per-class ", options.per_class, ": class '",
                   labels.class_names()[static_cast<size_t>(c)], "' has ",
                   options.per_class - left[static_cast<size_t>(c)], " training images");
  std::sort(chosen.begin(), chosen.end());
  return std::make_shared<Chosen>(std::move(source), std::move(chosen));
}

data::SourceConfig data_of(const Options& options, const train::WeightsInfo& info) {
  data::SourceConfig config;
  if (!info.recipe.empty()) {
    const Value recipe = parse_toml(info.recipe, options.weights);
    if (const Value* table = recipe.find("data")) config = read_config<data::SourceConfig>(*table, "data");
  }
  if (!options.data.path.empty()) config = options.data;
  if (!options.data.val_path.empty()) config.val_path = options.data.val_path;
  if (config.path.empty()) fail_usage(options.weights, ": says nothing about its data; give --data");
  return config;
}

std::vector<tasks::FeatureToken> tokens_of(const Options& options) {
  std::vector<tasks::FeatureToken> tokens;
  for (const std::string& name : split(options.features, ','))
    tokens.push_back(parse_enum<tasks::FeatureToken>(std::string(trim(name)), "--features"));
  return tokens;
}

struct LayerResult {
  std::string layer, token;
  double ridge = 0, lambda = 0, rank = 0;  // share of validation images, of its best lambda, RankMe
};
struct Result {
  int64_t train = 0, validation = 0;
  std::vector<LayerResult> layers = {};
  size_t best = 0;
  double knn = 0, knn_weighted = 0;  // of the best layer
  double seconds = 0, forward_seconds = 0;
};

double share_right(const torch::Tensor& classes, const torch::Tensor& labels) {
  return classes.eq(labels).to(torch::kFloat64).mean().item<double>();
}

tasks::FeatureSet features_of(const Options& options, const train::OpenedTask& opened,
                              const data::Source& source, const char* label) {
  tasks::FeatureOptions how{.tokens = tokens_of(options),
                            .batch = options.batch,
                            .loader_threads = options.loader_threads,
                            .precision = tasks::parse_precision(options.precision),
                            .device = train::choose_device(options.device)};
  how.most_bytes = static_cast<int64_t>(options.cache * 1e9);
  ProgressLine::Options bar;
  bar.label = label;
  bar.total = source.size();
  ProgressLine progress(std::cerr, bar);
  const double start = steady_seconds();
  how.progress = [&](int64_t done) {
    progress.update(done, {{"images/s", fixed(static_cast<double>(done) / (steady_seconds() - start), 0)}});
    return !interrupted();
  };
  data::Preprocess preprocess = opened.info.preprocess;
  if (options.size > 0) preprocess.size = options.size;
  tasks::FeatureSet set = tasks::collect_features(*opened.task->backbones().at(0).model, source,
                                                  data::make_eval_transform(preprocess), how);
  progress.finish();
  return set;
}

void measure(const Options& options, const tasks::FeatureSet& train, const tasks::FeatureSet& validation,
             int64_t classes, Result& result) {
  std::vector<double> lambdas;
  for (int i = -12; i <= 4; ++i) lambdas.push_back(std::pow(10.0, i / 2.0));
  for (size_t l = 0; l < train.layers.size(); ++l) {
    if (interrupted()) throw Error(ErrorKind::interrupted, "interrupted");
    const tasks::LayerFeatures &from = train.layers[l], &to = validation.layers[l];
    const tasks::Ridge ridge = tasks::fit_ridge(from.rows, train.labels, classes, lambdas, true);
    result.layers.push_back({from.layer, from.token,
                             share_right(ridge.scores(to.rows).argmax(1), validation.labels), ridge.lambda,
                             tasks::rankme(to.rows.slice(0, 0, kRankImages))});
    if (result.layers[l].ridge > result.layers[result.best].ridge) result.best = l;
  }
  const torch::Tensor &bank = train.layers[result.best].rows, &queries = validation.layers[result.best].rows;
  const auto vote = [&](double temperature) {
    return share_right(
        tasks::neighbour_classes(bank, train.labels, queries,
                                 {.neighbours = options.neighbours, .temperature = temperature}),
        validation.labels);
  };
  result.knn = vote(0), result.knn_weighted = vote(kTemperature);
}

std::string percent(double share) { return fixed(100 * share, 1) + " %"; }

void print_table(const Options& options, const Result& result) {
  std::cout << "layer     features    ridge top-1      lambda    RankMe\n";
  for (size_t l = 0; l < result.layers.size(); ++l) {
    const LayerResult& layer = result.layers[l];
    std::cout << std::left << std::setw(10) << layer.layer << std::setw(9) << layer.token << std::right
              << std::setw(14) << percent(layer.ridge) << std::setw(12) << text(layer.lambda) << std::setw(10)
              << fixed(layer.rank, 1) << (l == result.best ? "  best" : "") << "\n";
  }
  const LayerResult& best = result.layers[result.best];
  std::cout << options.neighbours << " nearest neighbours on " << best.layer << ", " << best.token << ": "
            << percent(result.knn) << ", weighted by similarity " << percent(result.knn_weighted) << "\n";
}

Json as_json(const Options& options, const Result& result, const std::string& data) {
  Json layers = Json::array();
  for (const LayerResult& layer : result.layers)
    layers.push_back({{"layer", layer.layer},
                      {"features", layer.token},
                      {"ridge_top1", layer.ridge},
                      {"lambda", layer.lambda},
                      {"rankme", layer.rank}});
  return {{"weights", options.weights},
          {"data", data},
          {"train_images", result.train},
          {"validation_images", result.validation},
          {"layers", layers},
          {"best", result.best},
          {"neighbours", options.neighbours},
          {"knn_top1", result.knn},
          {"knn_weighted_top1", result.knn_weighted},
          {"forward_seconds", result.forward_seconds},
          {"seconds", result.seconds}};
}

// A curve for each kind of features over the depth of the network.
report::Drawing depth_chart(const Result& result) {
  std::vector<report::Curve> curves;
  for (const LayerResult& layer : result.layers) {
    if (layer.layer == "head") continue;
    const auto same = std::find_if(curves.begin(), curves.end(),
                                   [&](const report::Curve& curve) { return curve.name == layer.token; });
    report::Curve& curve =
        same == curves.end() ? curves.emplace_back(report::Curve{.name = layer.token}) : *same;
    curve.points.push_back({static_cast<double>(curve.points.size() + 1), layer.ridge});
  }
  report::ChartOptions wide = {.title = "Ridge probe by depth", .x_label = "block", .y_label = "top-1"};
  wide.width = 720, wide.percent = true;
  report::ChartOptions narrow = wide;
  narrow.width = 320, narrow.height = 230;
  return {report::line_chart(curves, wide), report::line_chart(curves, narrow)};
}

void write_report(AtomicFile& file, const Options& options, const Result& result, const std::string& data) {
  report::Page page("Probe of " + options.weights, data);
  const LayerResult& best = result.layers[result.best];
  page.facts({{"ridge top-1", percent(best.ridge), best.layer + ", " + best.token},
              {"k-NN top-1", percent(result.knn), text(options.neighbours, " neighbours")},
              {"weighted k-NN", percent(result.knn_weighted), "votes exp(similarity / 0.07)"},
              {"training images", text(result.train), ""},
              {"validation images", text(result.validation), ""}});
  page.section("Layer by layer", "Ridge regression on standardised features, lambda by leave-one-out.");
  page.drawings({depth_chart(result)});
  std::vector<std::vector<std::string>> rows;
  for (const LayerResult& layer : result.layers)
    rows.push_back(
        {layer.layer, layer.token, percent(layer.ridge), text(layer.lambda), fixed(layer.rank, 1)});
  page.table({{"layer"}, {"features"}, {"ridge top-1", true}, {"lambda", true}, {"RankMe", true}}, rows);
  file.write(page.finish());
  file.commit();
}

void probe(const Options& options) {
  train::use_threads_beside(options.loader_threads, options.threads);
  const std::string weights = train::weights_file_of(options.weights, options.raw);
  const train::WeightsInfo info = train::describe_weights(WeightFile(weights), options.model);
  const data::SourceConfig config = data_of(options, info);
  const std::shared_ptr<const data::Source> train = choose(data::open_source(config, data::Split::train),
                                                           options),
                                            validation = data::open_source(config, data::Split::validation);
  data::require_labels(*validation, "tessera probe");
  data::require_same_classes(*train, *validation);
  if (options.neighbours > train->size())
    fail_usage("--neighbours ", options.neighbours, ": there are ", train->size(), " training images");
  std::optional<AtomicFile> page;  // what cannot be written is said before the work
  if (!options.report.empty()) page.emplace(options.report);
  train::OpenOptions how{.model = options.model, .raw = options.raw};
  how.size = options.size == info.preprocess.size ? 0 : options.size;
  const train::OpenedTask opened = train::open_task(options.weights, how);
  for (const std::string& note : opened.notes) std::cerr << one_line(note) << "\n";
  tasks::move(opened.task->parts(), train::choose_device(options.device),
              train::parameter_type(tasks::parse_precision(options.precision)));
  const Interruptible stretch;
  const double start = steady_seconds();
  const tasks::FeatureSet from = features_of(options, opened, *train, "training images"),
                          to = features_of(options, opened, *validation, "validation images");
  Result result{.train = from.labels.size(0), .validation = to.labels.size(0)};
  result.forward_seconds = steady_seconds() - start;
  if (options.neighbours > result.train)
    fail_usage("--neighbours ", options.neighbours, ": there are ", result.train, " training images");
  const auto classes = static_cast<int64_t>(train->class_labels()->class_names().size());
  measure(options, from, to, classes, result);
  result.seconds = steady_seconds() - start;
  if (options.json) {
    std::cout << json_text(as_json(options, result, train->describe())) << "\n";
  } else {
    std::cout << weights << ": " << info.model.name << "\n" << train->describe() << "\n";
    print_table(options, result);
  }
  if (page) write_report(*page, options, result, train->describe());
  for (const tasks::FeatureSet* set : {&from, &to})
    for (const std::string& line : set->broken.lines)
      std::cerr << "tessera: left out: " << one_line(line) << "\n";
}

}  // namespace

void add_probe(Arguments& command, Action& action) {
  auto options = std::make_shared<Options>();
  command
      .add("-w,--weights,--pretrained", options->weights,
           "a weights file of any form, a checkpoint or a run directory")
      .required();
  command.add("--data", options->data.path, "the images (default: the data of the run's recipe)");
  command.add("--val-data", options->data.val_path, "the validation set, where it is another path");
  command.add("--features", options->features, "mean, last, class, or several as mean,class").show_default();
  command.add("--neighbours", options->neighbours, "of the k-NN classifier").show_default().range(1, 10000);
  command.add("--per-class", options->per_class, "training images of each class, 0 = all").range(0, 1000000);
  command.add("--images", options->images, "training images at most, 0 = all").range(0, 1000000000);
  command.add("--seed", options->seed, "draws those").show_default().range(0, 1000000000);
  command.add("--size", options->size, "input side in pixels (default: as trained)").range(0, 8192);
  command.add("--cache", options->cache, "largest temporary file of features, in GB")
      .show_default()
      .range(0.001, 100000.0);
  command.flag("--raw", options->raw, "checkpoints: the raw weights instead of their moving average");
  command.add("--model", options->model, "model name, where weights of other programs do not tell");
  command.add("--batch-size", options->batch, "images at a time").show_default().range(1, 65536);
  command.add("--loader-threads", options->loader_threads, "decoding threads").show_default().range(1, 256);
  command.flag("--json", options->json, "one JSON object");
  command.add("--report", options->report, "write an HTML page to this file");
  add_compute_options(command, options->device, options->precision, options->threads);
  action = [options] { probe(*options); };
}

}  // namespace tessera::cli
