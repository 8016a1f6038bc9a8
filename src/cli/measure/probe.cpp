// `tessera probe`: quality of a model's features, layer by layer, without training it.
#include <ATen/DeviceAccelerator.h>

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/base/command.h"
#include "cli/base/common.h"
#include "cli/base/measure_options.h"
#include "core/config.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/random.h"
#include "core/text.h"
#include "data/base/chosen_samples.h"
#include "io/files/file.h"
#include "open/device.h"
#include "open/open_task.h"
#include "optim/linear_probe.h"
#include "report/charts.h"
#include "report/html.h"
#include "tasks/base/layer_features.h"
#include "tasks/base/registry.h"
#include "tasks/base/representation.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kRankImages = 2048;  // images for RankMe
constexpr double kTemperature = 0.07;  // of DINO's votes
constexpr int64_t kDraws = 5;          // of few labels

struct ProbeOptions : MeasureOptions {
  std::string weights;
  std::string features = "mean", labels, report;
  int64_t neighbours = 20, per_class = 0, images = 0, size = 0, seed = 0;
  double cache = 4, lars_rate = 0.1, lars_smoothing = 0;
  bool json = false, lars = false, every_layer = false;

  template <class V>
  void visit(V& v) {
    v("weights", weights, {.names = "-w,--pretrained", .required = true},
      "weights file of any format, checkpoint or run directory");
    MeasureOptions::visit(v);
    v("features", features, "mean, last, class, or several: mean,class");
    v("neighbours", neighbours, between(1, 10000), "neighbours of the k-NN classifier");
    v("every_layer", every_layer, "neighbours of every layer instead of the best only");
    v("lars", lars, "linear probe of every layer by LARS, as in MAE, VisionLLaMA and DARL: 90 epochs");
    v("lars_rate", lars_rate, between(1e-6, 1000), "--lars: learning rate for batches of 256");
    v("lars_smoothing", lars_smoothing, between(0, 0.99), "--lars: label smoothing (DARL: 0.1)");
    v("labels", labels, "accuracy with n labels for each class, 1,5,20,100: the best layer, five draws");
    v("per_class", per_class, between(0, 1000000), "training images for each class, 0 = all");
    v("images", images, between(0, 1000000000), "most training images, 0 = all");
    v("seed", seed, between(0, 1000000000), "seed of the choice of training images");
    v("size", size, between(0, 8192), "input side in pixels (0: as trained)");
    v("cache", cache, between(0.001, 100000), "largest temporary file of features, in GB");
    v("json", json, "one JSON object");
    v("report", report, {.writes = Writes::file}, "write an HTML page to this file");
  }
};

// The images to learn from: at most `images` in total, and `per_class` of each class, drawn by the seed.
std::shared_ptr<const data::Source> choose(std::shared_ptr<const data::Source> source,
                                           const ProbeOptions& options) {
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
  const std::string described = text(chosen.size(), " images of ", source->describe());
  return std::make_shared<data::ChosenSamples>(std::move(source), std::move(chosen), described);
}

data::SourceConfig data_of(const ProbeOptions& options, const train::WeightsInfo& info) {
  data::SourceConfig config = data_of_run(options.weights, info);
  if (!options.data.path.empty()) config = options.data;
  if (!options.data.val_path.empty()) config.val_path = options.data.val_path;
  if (config.path.empty()) fail_usage(options.weights, ": has no record of its data; give --data");
  return tasks::data_for(tasks::find_task(tasks::task_name(info.task)), config);
}

std::vector<tasks::FeatureToken> tokens_of(const ProbeOptions& options) {
  std::vector<tasks::FeatureToken> tokens;
  for (const std::string& name : split(options.features, ','))
    tokens.push_back(parse_enum<tasks::FeatureToken>(std::string(trim(name)), "--features"));
  return tokens;
}

// Parses numbers of labels per class, "1,5,20".
std::vector<int64_t> label_counts(const ProbeOptions& options) {
  std::vector<int64_t> counts;
  if (options.labels.empty()) return counts;
  for (const std::string& part : split(options.labels, ',')) {
    const auto count = parse_int(trim(part));
    if (!count || *count < 1 || *count > 100000)
      fail_usage("--labels: '", part, "' is no number of labels a class, as in 1,5,20,100");
    counts.push_back(*count);
  }
  return counts;
}

// Share of validation images classified correctly; NaN: not measured.
struct LayerResult {
  std::string layer, token;
  double ridge = 0, lambda = 0, rank = 0;  // at its best lambda; RankMe
  double knn = NAN, knn_weighted = NAN, lars = NAN;
};
// Accuracy of the best layer with `n` labels per class: mean and standard deviation over draws.
struct FewLabels {
  int64_t labels = 0;
  double ridge = 0, ridge_std = 0, knn = 0, knn_std = 0;
};
struct Result {
  int64_t train = 0, validation = 0;
  std::vector<LayerResult> layers = {};
  std::vector<FewLabels> few = {};
  size_t best = 0;
  double seconds = 0, forward_seconds = 0;
};

double share_right(const torch::Tensor& classes, const torch::Tensor& labels) {
  return classes.eq(labels).to(torch::kFloat64).mean().item<double>();
}

tasks::FeatureSet features_of(const ProbeOptions& options, const train::OpenedTask& opened,
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

std::vector<double> lambdas() {
  std::vector<double> out;
  for (int i = -12; i <= 4; ++i) out.push_back(std::pow(10.0, i / 2.0));
  return out;
}

// The parts of a probe that are the same for every layer.
struct Probe {
  const ProbeOptions& options;
  const tasks::FeatureSet &train, &validation;
  int64_t classes;
  torch::Device device = train::choose_device(options.device);

  double ridge(size_t layer, const torch::Tensor& rows, const torch::Tensor& labels, double* lambda) const {
    const tasks::Ridge fitted = tasks::fit_ridge(rows, labels, classes, lambdas(), true);
    if (lambda) *lambda = fitted.lambda;
    return share_right(fitted.scores(validation.layers[layer].rows).argmax(1), validation.labels);
  }
  // Returns features as float32 on the device of --device if they take less than a fifth of its free memory.
  torch::Tensor there(const torch::Tensor& rows) const {
    if (device.is_cpu()) return rows;
    const size_t bytes = static_cast<size_t>(rows.numel()) * sizeof(float),
                 free = at::accelerator::getMemoryInfo(device.has_index() ? device.index() : 0).first;
    return bytes < free / 5 ? rows.to(device, torch::kFloat32) : rows;
  }
  double neighbours(size_t layer, const torch::Tensor& rows, const torch::Tensor& labels,
                    double temperature) const {
    const tasks::NeighbourVote vote{.neighbours = std::min(options.neighbours, rows.size(0)),
                                    .temperature = temperature};
    return share_right(tasks::neighbour_classes(there(rows), labels, validation.layers[layer].rows, vote),
                       validation.labels);
  }
  double lars(size_t layer) const {
    train::LinearProbe probe{.rate = options.lars_rate, .label_smoothing = options.lars_smoothing};
    probe.seed = static_cast<uint64_t>(options.seed);
    probe.progress = [] { return !interrupted(); };
    return share_right(train::linear_probe_classes(probe, there(train.layers[layer].rows), train.labels,
                                                   classes, validation.layers[layer].rows),
                       validation.labels);
  }
  // `count` training images per class, sampled again in every draw.
  torch::Tensor few(int64_t count, int64_t draw) const {
    std::vector<int64_t> left(static_cast<size_t>(classes), count), chosen;
    const auto order =
        RandomStream(static_cast<uint64_t>(options.seed), "few labels", static_cast<uint64_t>(draw))
            .permutation(train.labels.size(0));
    const int64_t* label = train.labels.const_data_ptr<int64_t>();
    for (const int64_t index : order)
      if (left[static_cast<size_t>(label[index])]-- > 0) chosen.push_back(index);
    if (std::ssize(chosen) < count * classes)
      fail_usage("--labels ", count, ": some class has fewer training images");
    return torch::tensor(chosen, torch::kInt64);
  }
};

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}
double deviation_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += (value - mean_of(values)) * (value - mean_of(values));
  return std::sqrt(sum / static_cast<double>(std::max<size_t>(1, values.size() - 1)));
}

FewLabels measure_few(const Probe& probe, size_t layer, int64_t labels) {
  std::vector<double> ridge, knn;
  for (int64_t draw = 0; draw < kDraws; ++draw) {
    if (interrupted()) throw Error(ErrorKind::interrupted, "interrupted");
    const torch::Tensor chosen = probe.few(labels, draw);
    const torch::Tensor rows = probe.train.layers[layer].rows.index_select(0, chosen),
                        classes = probe.train.labels.index_select(0, chosen);
    ridge.push_back(probe.ridge(layer, rows, classes, nullptr));
    knn.push_back(probe.neighbours(layer, rows, classes, kTemperature));
  }
  return {labels, mean_of(ridge), deviation_of(ridge), mean_of(knn), deviation_of(knn)};
}

void measure(const ProbeOptions& options, const tasks::FeatureSet& train, const tasks::FeatureSet& validation,
             int64_t classes, Result& result) {
  const Probe probe{options, train, validation, classes};
  for (size_t l = 0; l < train.layers.size(); ++l) {
    if (interrupted()) throw Error(ErrorKind::interrupted, "interrupted");
    const tasks::LayerFeatures& from = train.layers[l];
    LayerResult one{.layer = from.layer, .token = from.token};
    one.ridge = probe.ridge(l, from.rows, train.labels, &one.lambda);
    one.rank = tasks::rankme(validation.layers[l].rows.slice(0, 0, kRankImages));
    if (options.lars) one.lars = probe.lars(l);
    result.layers.push_back(one);
    if (one.ridge > result.layers[result.best].ridge) result.best = l;
  }
  for (size_t l = 0; l < train.layers.size(); ++l) {
    if (!options.every_layer && l != result.best) continue;
    if (interrupted()) throw Error(ErrorKind::interrupted, "interrupted");
    result.layers[l].knn = probe.neighbours(l, train.layers[l].rows, train.labels, 0);
    result.layers[l].knn_weighted = probe.neighbours(l, train.layers[l].rows, train.labels, kTemperature);
  }
  for (const int64_t labels : label_counts(options))
    result.few.push_back(measure_few(probe, result.best, labels));
}

std::string percent(double share) { return std::isnan(share) ? "" : fixed(100 * share, 1) + " %"; }

// "41.2 +- 1.3 %".
std::string with_spread(double mean, double deviation) {
  return fixed(100 * mean, 1) + " +- " + fixed(100 * deviation, 1) + " %";
}

// Columns of the measured values: their heads, and one layer's values.
struct Columns {
  explicit Columns(const ProbeOptions& options) {
    add("ridge top-1", [](const LayerResult& one) { return percent(one.ridge); });
    add("lambda", [](const LayerResult& one) { return text(one.lambda); });
    if (options.lars) add("LARS top-1", [](const LayerResult& one) { return percent(one.lars); });
    if (options.every_layer) {
      add("k-NN", [](const LayerResult& one) { return percent(one.knn); });
      add("weighted k-NN", [](const LayerResult& one) { return percent(one.knn_weighted); });
    }
    add("RankMe", [](const LayerResult& one) { return fixed(one.rank, 1); });
  }
  using Show = std::string (*)(const LayerResult&);
  void add(const char* head, Show show) { all.emplace_back(head, show); }
  std::vector<std::pair<std::string, Show>> all;
};

void print_table(const ProbeOptions& options, const Result& result) {
  const Columns columns(options);
  const auto width = [](const std::string& head) { return std::setw(static_cast<int>(head.size()) + 4); };
  std::cout << "layer     features ";
  for (const auto& [head, show] : columns.all) std::cout << std::right << width(head) << head;
  std::cout << "\n";
  for (size_t l = 0; l < result.layers.size(); ++l) {
    const LayerResult& layer = result.layers[l];
    std::cout << std::left << std::setw(10) << layer.layer << std::setw(9) << layer.token << std::right;
    for (const auto& [head, show] : columns.all) std::cout << width(head) << show(layer);
    std::cout << (l == result.best ? "  best" : "") << "\n";
  }
  const LayerResult& best = result.layers[result.best];
  std::cout << options.neighbours << " nearest neighbours on " << best.layer << ", " << best.token << ": "
            << percent(best.knn) << ", weighted by similarity " << percent(best.knn_weighted) << "\n";
  for (const FewLabels& few : result.few)
    std::cout << counted(few.labels, "label") << " a class on " << best.layer << ", " << best.token
              << ": ridge " << with_spread(few.ridge, few.ridge_std) << ", weighted neighbours "
              << with_spread(few.knn, few.knn_std) << "\n";
}

Json as_json(const ProbeOptions& options, const Result& result, const std::string& data) {
  Json layers = Json::array(), few = Json::array();
  for (const LayerResult& layer : result.layers) {
    Json one = {{"layer", layer.layer},
                {"features", layer.token},
                {"ridge_top1", layer.ridge},
                {"lambda", layer.lambda},
                {"rankme", layer.rank}};
    if (!std::isnan(layer.lars)) one["lars_top1"] = layer.lars;
    if (options.every_layer) one["knn_top1"] = layer.knn, one["knn_weighted_top1"] = layer.knn_weighted;
    layers.push_back(one);
  }
  for (const FewLabels& one : result.few)
    few.push_back({{"labels", one.labels},
                   {"ridge_top1", one.ridge},
                   {"ridge_std", one.ridge_std},
                   {"knn_weighted_top1", one.knn},
                   {"knn_weighted_std", one.knn_std}});
  const LayerResult& best = result.layers[result.best];
  Json out = {{"weights", options.weights},
              {"data", data},
              {"train_images", result.train},
              {"validation_images", result.validation},
              {"layers", layers},
              {"best", result.best},
              {"neighbours", options.neighbours},
              {"knn_top1", best.knn},
              {"knn_weighted_top1", best.knn_weighted}};
  if (!few.empty()) out["few_labels"] = few;
  out["forward_seconds"] = result.forward_seconds;
  out["seconds"] = result.seconds;
  return out;
}

// Draws one curve for each kind of features over the depth of the network.
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

void write_few(report::Page& page, const Result& result) {
  if (result.few.empty()) return;
  page.section("Few labels", text("On the best layer; means and deviations of ", kDraws, " draws."));
  std::vector<std::vector<std::string>> rows;
  for (const FewLabels& few : result.few)
    rows.push_back(
        {text(few.labels), with_spread(few.ridge, few.ridge_std), with_spread(few.knn, few.knn_std)});
  page.table({{"labels a class", true}, {"ridge top-1", true}, {"weighted k-NN", true}}, rows);
}

void write_report(AtomicFile& file, const ProbeOptions& options, const Result& result,
                  const std::string& data) {
  report::Page page("Probe of " + options.weights, data);
  const LayerResult& best = result.layers[result.best];
  page.facts({{"ridge top-1", percent(best.ridge), best.layer + ", " + best.token},
              {"k-NN top-1", percent(best.knn), text(options.neighbours, " neighbours")},
              {"weighted k-NN", percent(best.knn_weighted), "votes exp(similarity / 0.07)"},
              {"training images", text(result.train), ""},
              {"validation images", text(result.validation), ""}});
  page.section("Layer by layer", "Ridge regression on standardised features, lambda by leave-one-out.");
  page.drawings({depth_chart(result)});
  const Columns columns(options);
  std::vector<report::Column> heads = {{"layer"}, {"features"}};
  for (const auto& [head, show] : columns.all) heads.push_back({head, true});
  std::vector<std::vector<std::string>> rows;
  for (const LayerResult& layer : result.layers) {
    rows.push_back({layer.layer, layer.token});
    for (const auto& [head, show] : columns.all) rows.back().push_back(show(layer));
  }
  page.table(heads, rows);
  write_few(page, result);
  file.write(page.finish());
  file.commit();
}

void check_neighbours(const ProbeOptions& options, int64_t images) {
  if (options.neighbours > images)
    fail_usage("--neighbours ", options.neighbours, ": there are ", images, " training images");
}

train::OpenedTask open_probed(const ProbeOptions& options, const train::WeightsInfo& info) {
  train::OpenOptions how{.model = options.model, .key = options.key, .raw = options.raw};
  how.size = options.size == info.preprocess.size ? 0 : options.size;
  train::OpenedTask opened = train::open_task(options.weights, how);
  for (const std::string& note : opened.notes) std::cerr << one_line(note) << "\n";
  tasks::move(opened.task->parts(), train::choose_device(options.device),
              train::parameter_type(tasks::parse_precision(options.precision)));
  return opened;
}

void probe(const ProbeOptions& options) {
  train::use_threads_beside(options.loader_threads, options.threads);
  label_counts(options);  // checks them before the work
  const std::string weights = train::weights_file_of(options.weights, options.raw);
  const train::WeightsInfo info = train::describe_weights(WeightFile(weights, options.key), options.model);
  const data::SourceConfig config = data_of(options, info);
  const std::shared_ptr<const data::Source> train = choose(data::open_source(config, data::Split::train),
                                                           options),
                                            validation = data::open_source(config, data::Split::validation);
  data::require_labels(*validation, "tessera probe");
  data::require_same_classes(*train, *validation);
  check_neighbours(options, train->size());
  std::optional<AtomicFile> page;  // opened before the work
  if (!options.report.empty()) page.emplace(options.report);
  const train::OpenedTask opened = open_probed(options, info);
  const Interruptible stretch;
  const double start = steady_seconds();
  const tasks::FeatureSet from = features_of(options, opened, *train, "training images"),
                          to = features_of(options, opened, *validation, "validation images");
  Result result{.train = from.labels.size(0), .validation = to.labels.size(0)};
  result.forward_seconds = steady_seconds() - start;
  check_neighbours(options, result.train);
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
  data::BadImages broken = from.broken;
  broken.count += to.broken.count;
  broken.lines.insert(broken.lines.end(), to.broken.lines.begin(), to.broken.lines.end());
  fail_on_broken(broken, train->size() + validation->size());
}

}  // namespace

void add_probe(Arguments& command, Action& action) { action = with_options<ProbeOptions>(command, probe); }

}  // namespace tessera::cli
