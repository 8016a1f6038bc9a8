// `tessera fid SAMPLES --reference DATA --weights F`: Fréchet distance between generated and real images.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/base/command.h"
#include "cli/base/common.h"
#include "cli/measure/fid_checkpoints.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "data/base/source.h"
#include "eval/statistics_file.h"
#include "io/files/file.h"
#include "open/device.h"
#include "open/image_walk.h"
#include "open/ready_task.h"
#include "tasks/generate/generative_meter.h"
#include "tasks/generate/generator_fid.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

struct FidOptions : ComputeOptions {
  static constexpr const char *kMeasured = "images and statistics", *kDrawn = "--checkpoints";
  std::string samples, reference, weights, out, model, key;
  std::string split = "all", reference_split = "all", protocol, metrics = "fid,sfid,is";
  int64_t count = 0, reference_count = 0, splits = 10, neighbours = 3, keep = 10000;
  int64_t subsets = 100, subset_size = 1000, seed = 0, batch = 32;
  bool json = false, checkpoints = false, in_order = false;
  CheckpointDrawing drawing;

  template <class V>
  void visit(V& v) {
    v("samples", samples, {.argument = "SAMPLES", .required = true},
      "generated images: a folder, shards, an .npz batch in ADM's format, any data source; or statistics of "
      "them");
    v("reference", reference,
      "real images, in the same forms; or statistics of them (.npz with mu and sigma)");
    v("weights", weights, {.names = "-w"},
      "Inception-v3 of FID (pt_inception-2015-12-05), or a model that gives the features");
    v("protocol", protocol, {.choices = {"tf", "pytorch", "clean"}, .only_for = kMeasured},
      "Inception-v3: preprocessing of the images (default: tf)");
    v("metrics", metrics, {.only_for = kMeasured},
      "some of fid, sfid, is, kid, pr (precision, recall, density, coverage), all");
    v("output", out, {.names = "-o", .only_for = kMeasured, .writes = Writes::file},
      "OUT.npz gets the statistics of SAMPLES, a reference for later");
    v("split", split, {.choices = {"train", "validation", "all"}, .only_for = kMeasured},
      "split of SAMPLES; all of a set without splits, else its training images");
    v("reference_split", reference_split, {.choices = {"train", "validation", "all"}},
      "the same of the reference");
    v("count", count, {.range = between(0, 1'000'000'000), .names = "-n"}, "only the first samples (0: all)");
    v("reference_count", reference_count, between(0, 1'000'000'000), "the same of the reference (0: all)");
    v("splits", splits, {.range = between(1, 1000), .only_for = kMeasured}, "splits of the Inception Score");
    v("splits_in_order", in_order, {.only_for = kMeasured},
      "splits of the Inception Score: the samples in their order, as OpenAI's evaluator (default: shuffled)");
    v("neighbours", neighbours, {.range = between(1, 1000), .only_for = kMeasured},
      "precision, recall, density, coverage: radius to the k-th neighbour");
    v("compared", keep, {.range = between(2, 1'000'000), .only_for = kMeasured},
      "KID, precision and recall: images of each set, at even distances");
    v("kid_subsets", subsets, {.range = between(1, 100'000), .only_for = kMeasured}, "random subsets of KID");
    v("kid_subset_size", subset_size, {.range = between(2, 100'000), .only_for = kMeasured},
      "images of a subset");
    v("seed", seed, {.only_for = kMeasured},
      "seed of the subsets of KID and of the splits of the Inception Score");
    v("checkpoints", checkpoints,
      "SAMPLES is a run of task diffuse: FID of images that each of its checkpoints draws");
    v("drawing", drawing, {.only_for = kDrawn}, "");
    v("model", model, {.only_for = kMeasured}, "model name, if weights of other programs do not name it");
    v("key", key, {.only_for = kMeasured}, "PyTorch archives: name of the dictionary, such as model_ema");
    v("json", json, "one JSON object");
    v("batch_size", batch, {.range = between(1, 4096), .only_for = kMeasured}, "images at a time");
    ComputeOptions::visit(v);
  }

  // True if a metric was requested by its name.
  bool asks(const std::string& metric) const {
    const std::vector<std::string> names = tessera::split(metrics, ',');
    return metrics != FidOptions().metrics &&
           std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return trim(name) == metric; });
  }
};

struct Metrics {
  bool fid = false, sfid = false, score = false, kernel = false, manifold = false;
  bool compares_samples() const { return kernel || manifold; }
};

Metrics parse_metrics(const std::string& names) {
  static const std::vector<std::string> known = {"fid", "sfid", "is", "kid", "pr", "all"};
  Metrics out;
  for (const std::string& name : split(names, ',')) {
    const std::string word(trim(name));
    if (std::find(known.begin(), known.end(), word) == known.end())
      fail_usage("--metrics: there is no metric '", printable(word),
                 "', it must be of fid, sfid, is, kid, pr, all", did_you_mean(word, known));
    out.fid = out.fid || word == "fid" || word == "all";
    out.sfid = out.sfid || word == "sfid" || word == "all";
    out.score = out.score || word == "is" || word == "all";
    out.kernel = out.kernel || word == "kid" || word == "all";
    out.manifold = out.manifold || word == "pr" || word == "all";
  }
  return out;
}

struct Measured {
  std::string described;
  eval::FeatureStatistics statistics;
  std::optional<eval::InceptionScore> score;
  std::unique_ptr<tasks::GenerativeMeter> meter;  // null where statistics were read
};

Measured measure(const FidOptions& options, const Metrics& metrics, tasks::FeatureExtractor& extractor,
                 const data::Source& source, const char* label, int workers, bool wants_score) {
  Measured out;
  out.described = source.describe();
  tasks::MeterOptions wanted{
      .samples = source.size(),
      .splits = wants_score && metrics.score ? options.splits : 0,
      .shuffle_seed = options.in_order ? std::nullopt : std::optional(static_cast<uint64_t>(options.seed)),
      .keep = metrics.compares_samples() ? options.keep : 0,
      .spatial = metrics.sfid};
  if (extractor.classes() == 0) wanted.splits = 0;
  out.meter = std::make_unique<tasks::GenerativeMeter>(extractor, wanted);
  ProgressLine progress(std::cerr, {.label = label, .total = source.size()});
  const auto transform = extractor.transform();
  const train::ImageWalk walk{
      .batch = batch_that_fits(options.batch, transform->fields().at(0).shape.at(1)),
      .workers = workers,
      .broken = [](const std::string& error) { fail(error, "; `tessera data check` lists all such images"); },
      .progress = [&](int64_t done) { progress.update(done, {}); },
      .interruption = "interrupted: nothing is measured or written"};
  train::for_each_batch(source, *transform, walk, [&](const train::WalkedBatch& batch) {
    out.meter->add(extractor.extract(batch.images));
  });
  progress.finish();
  out.statistics = out.meter->statistics();
  out.score = out.meter->score();
  return out;
}

// A result: its key in JSON, and its line in words.
struct Line {
  std::string key, words;
  double value = 0;
};

std::string plus_minus(double mean, double deviation, int digits) {
  return text(fixed(mean, digits), " +- ", fixed(deviation, digits));
}

void add_distances(std::vector<Line>& lines, const Metrics& metrics, const Measured& fake,
                   const Measured& real) {
  if (metrics.fid) {
    const double value = eval::frechet_distance(real.statistics.pooled, fake.statistics.pooled);
    lines.push_back({"fid", text("FID  ", fixed(value, 4)), value});
  }
  if (metrics.sfid && real.statistics.spatial && fake.statistics.spatial) {
    const double value = eval::frechet_distance(*real.statistics.spatial, *fake.statistics.spatial);
    lines.push_back({"sfid", text("sFID  ", fixed(value, 4)), value});
  }
}

void add_comparisons(std::vector<Line>& lines, const Metrics& metrics, const FidOptions& options,
                     const Measured& fake, const Measured& real) {
  if (!metrics.compares_samples()) return;
  const std::span<const float> a = real.meter->kept(), b = fake.meter->kept();
  const int64_t width = fake.statistics.pooled.width(), reals = std::ssize(a) / width,
                fakes = std::ssize(b) / width;
  if (metrics.kernel) {
    const int64_t size = std::min({options.subset_size, reals, fakes});
    const eval::KernelDistance distance = eval::kernel_distance_of_subsets(
        a, b, width, options.subsets, size, static_cast<uint64_t>(options.seed));
    lines.push_back({"kid",
                     text("KID  ", plus_minus(distance.mean, distance.deviation, 6), "  (", options.subsets,
                          " subsets of ", size, ")"),
                     distance.mean});
    lines.push_back({"kid_std", "", distance.deviation});
    if (size < options.subset_size)
      std::cerr << "KID: subsets of " << size << " images, all of the smaller set, not of --kid-subset-size "
                << options.subset_size << "\n";
  }
  if (!metrics.manifold) return;
  const eval::ManifoldScores scores = eval::manifold_scores(a, b, width, options.neighbours);
  lines.push_back(
      {"precision",
       text("precision  ", fixed(scores.precision, 4), "  recall  ", fixed(scores.recall, 4), "  density  ",
            fixed(scores.density, 4), "  coverage  ", fixed(scores.coverage, 4),
            "  (k = ", options.neighbours, ", ", fakes, " samples, ", reals, " of the reference)"),
       scores.precision});
  lines.push_back({"recall", "", scores.recall});
  lines.push_back({"density", "", scores.density});
  lines.push_back({"coverage", "", scores.coverage});
}

void add_score(std::vector<Line>& lines, const FidOptions& options, const Measured& fake) {
  if (!fake.score) return;
  lines.push_back({"is",
                   text("IS  ", plus_minus(fake.score->mean, fake.score->deviation, 4), "  (", options.splits,
                        " splits)"),
                   fake.score->mean});
  lines.push_back({"is_std", "", fake.score->deviation});
}

// Fewer images than feature dimensions span only a subspace: distances between such sets are biased upwards.
void warn_of_bias(int64_t samples, int64_t width, const std::string& name, std::vector<std::string>& notes) {
  if (samples > width || samples == 0) return;
  notes.push_back(text(
      name, " has ", counted(samples, "sample"), samples < width ? ", fewer than the " : ", as many as the ",
      width, " dimensions of a feature: its covariance is singular, and FID is biased upwards; compare only ",
      "with FIDs of as many samples"));
}

void print_origin(const eval::FeatureOrigin& origin) {
  const auto said = [&](const std::string& words) { return origin.known() ? one_line(words) : "unknown"; };
  std::cout << "extractor  " << said(origin.extractor) << "\n"
            << "protocol   " << said(origin.protocol) << "\n";
}

void print(const FidOptions& options, const std::vector<Line>& lines, const Measured& fake,
           const Measured& real, const std::vector<std::string>& notes) {
  const eval::FeatureOrigin& origin = fake.statistics.origin;
  if (!options.json) {
    for (const Line& line : lines)
      if (!line.words.empty()) std::cout << line.words << "\n";
    std::cout << "samples    " << one_line(fake.described) << "\n";
    if (!real.described.empty()) std::cout << "reference  " << one_line(real.described) << "\n";
    print_origin(origin);
    if (!options.out.empty()) std::cout << "statistics of the samples in " << one_line(options.out) << "\n";
    return;
  }
  nlohmann::ordered_json json;
  for (const Line& line : lines) json[line.key] = line.value;
  json["samples"] = {{"description", fake.described}, {"images", fake.statistics.pooled.samples}};
  if (!real.described.empty())
    json["reference"] = {{"description", real.described}, {"images", real.statistics.pooled.samples}};
  json["extractor"] = origin.known() ? nlohmann::ordered_json(origin.extractor) : nullptr;
  json["protocol"] = origin.known() ? nlohmann::ordered_json(origin.protocol) : nullptr;
  json["dimensions"] = fake.statistics.pooled.width();
  json["notes"] = notes;
  std::cout << json_text(json, 2) << "\n";
}

Measured read_statistics_of(const std::string& path, const FidOptions& options, const Metrics& metrics) {
  Measured out;
  out.statistics = eval::read_statistics(path);
  const int64_t samples = out.statistics.pooled.samples;
  out.described = text("statistics ", path, samples > 0 ? text(" of ", counted(samples, "image")) : "");
  if (metrics.compares_samples() && (!holds_images(path) || options.weights.empty()))
    fail_usage("--metrics ", options.metrics, ": KID, precision and recall compare images, and '", path,
               "' holds statistics",
               holds_images(path) ? ": features of its images need --weights" : " alone");
  return out;
}

void require_spatial(const FidOptions& options, const Measured& read, const std::string& path) {
  if (!read.statistics.spatial && options.asks("sfid"))
    fail_usage("--metrics ", options.metrics, ": '", path, "' holds no statistics of spatial features");
}

void note_bias(const FidOptions& options, const Measured& fake, const Measured& real,
               std::vector<std::string>& notes) {
  const eval::Gaussian &drawn = fake.statistics.pooled, &truth = real.statistics.pooled;
  warn_of_bias(drawn.samples, drawn.width(), "the set of samples", notes);
  if (!options.reference.empty()) warn_of_bias(truth.samples, truth.width(), "the reference", notes);
  for (const std::string& note : notes) std::cerr << "tessera: " << one_line(note) << "\n";
}

// Statistics of other programs do not record their extractor; `fake` then gets the extractor of `real`.
void note_origins(const FidOptions& options, Measured& fake, const Measured& real,
                  std::vector<std::string>& notes) {
  eval::FeatureOrigin& drawn = fake.statistics.origin;
  const eval::FeatureOrigin& truth = real.statistics.origin;
  const auto taken = [](const std::string& file, const std::string& other) {
    return text("'", file, "' names no extractor and protocol: taken for those of '", other, "'");
  };
  if (!drawn.known() && !truth.known())
    notes.push_back(text("neither '", options.samples, "' nor '", options.reference,
                         "' names its extractor and protocol: the distance means something only where both ",
                         "were made by the same"));
  else if (!truth.known())
    notes.push_back(taken(options.reference, options.samples));
  else if (!drawn.known())
    notes.push_back(taken(options.samples, options.reference)), drawn = truth;
}

// The distance between two files of statistics, which needs no network.
void compare_statistics(const FidOptions& options, Metrics metrics) {
  if (options.reference.empty() || !holds_statistics(options.reference) || !options.out.empty())
    fail_usage("'", options.samples,
               "' holds statistics: they are compared with other statistics alone, --reference FILE.npz");
  if (metrics.score && options.metrics != FidOptions().metrics)
    fail_usage("--metrics ", options.metrics, ": the Inception Score needs images, and '", options.samples,
               "' holds statistics alone");
  Measured fake = read_statistics_of(options.samples, options, metrics);
  const Measured real = read_statistics_of(options.reference, options, metrics);
  require_spatial(options, fake, options.samples);
  require_spatial(options, real, options.reference);
  eval::require_same_origin(fake.statistics.origin, options.samples, real.statistics.origin,
                            options.reference);
  if (fake.statistics.pooled.width() != real.statistics.pooled.width())
    fail("'", options.samples, "' holds features of ", fake.statistics.pooled.width(), " dimensions, '",
         options.reference, "' of ", real.statistics.pooled.width());
  std::vector<std::string> notes;
  note_origins(options, fake, real, notes);
  note_bias(options, fake, real, notes);
  std::vector<Line> lines;
  add_distances(lines, metrics, fake, real);
  print(options, lines, fake, real, notes);
}

void check_request(const FidOptions& options, const Metrics& metrics) {
  if (fs::is_directory(options.samples) && fs::is_empty(options.samples))
    fail_usage("'", options.samples, "' is an empty folder, must hold images");
  if (options.reference.empty() && options.out.empty() && !metrics.score)
    fail_usage(
        "no reference: give real images or their statistics with --reference, or -o FILE.npz to write "
        "statistics");
  if (!options.out.empty() && !options.out.ends_with(".npz"))
    fail_usage("'", options.out, "' must end in .npz");
  if (!options.out.empty()) require_folder_of(options.out);
  if (options.weights.empty())
    fail_usage("--weights is missing: features of images are compared, by Inception-v3 or another model");
}

// If the extractor lacks a metric, throws if it was requested by name; with the default and "all" it is left
// out.
void check_extractor(const FidOptions& options, const tasks::FeatureExtractor& extractor) {
  if (options.asks("sfid") && extractor.spatial_width() == 0)
    fail_usage("--metrics ", options.metrics, ": sFID compares spatial features of Inception-v3, '",
               options.weights, "' holds another model");
  if (options.asks("is") && extractor.classes() == 0)
    fail_usage("--metrics ", options.metrics, ": the Inception Score needs classes, '", options.weights,
               "' has none");
}

// The radius to the k-th neighbour needs more images than that.
void check_neighbours(const FidOptions& options, const Metrics& metrics, const data::Source& source) {
  const int64_t compared = std::min(options.keep, source.size());
  if (metrics.manifold && compared <= options.neighbours)
    fail_usage("--neighbours ", options.neighbours, ": only ", counted(compared, "image"), " of ",
               source.describe(), " are compared, must be more than that");
}

// FID of the images that each checkpoint of a run generates.
void fid_over_checkpoints(const FidOptions& options, const Given& given) {
  if (options.reference.empty() || options.weights.empty())
    fail_usage("--checkpoints needs --reference, real images, and --weights, the model of the features");
  if (holds_statistics(options.reference) && !holds_images(options.reference))
    fail_usage("--checkpoints compares with images, '", options.reference, "' holds statistics");
  given.refuse_others(
      FidOptions::kDrawn, "--checkpoints draws images and measures FID alone",
      trim(options.metrics) == "fid" ? std::vector<std::string>{"metrics"} : std::vector<std::string>());
  train::use_threads(options.threads);
  const tasks::Precision precision = tasks::parse_precision(options.precision);
  const int64_t count = options.count > 0 ? options.count : tasks::GeneratorFidConfig().samples;
  const std::shared_ptr<const data::Source> reference =
      open_measured_images(options.reference, options.reference_split, options.reference_count);
  const CheckpointFids found = measure_checkpoints(options.samples, options.drawing, count, reference,
                                                   options.weights, train::choose_device(options.device),
                                                   precision, options.json ? std::cerr : std::cout);
  std::vector<std::string> notes;
  if (const std::string line = record_checkpoints(options.samples, found, count); !line.empty())
    std::cerr << one_line(line) << "\n";
  warn_of_bias(count, found.width, "the set of samples", notes);
  warn_of_bias(reference->size(), found.width, "the reference", notes);
  for (const std::string& note : notes) std::cerr << "tessera: " << one_line(note) << "\n";
  if (!options.json) return print_origin(found.origin);
  nlohmann::ordered_json json = {{"run", options.samples}, {"checkpoints", nlohmann::ordered_json::array()}};
  for (const CheckpointFid& one : found.checkpoints)
    json["checkpoints"].push_back({{"step", one.step}, {"fid", one.fid}});
  json["extractor"] = found.origin.extractor;
  json["protocol"] = found.origin.protocol;
  json["dimensions"] = found.width;
  json["notes"] = notes;
  std::cout << json_text(json) << "\n";
}

// Opens the extractor of --weights and prints its notes.
train::OpenedExtractor open_extractor_of(const FidOptions& options) {
  train::ExtractorOptions place{
      .model = options.model,
      .key = options.key,
      .place = {train::choose_device(options.device), tasks::parse_precision(options.precision)}};
  place.protocol = options.protocol == "pytorch" ? models::FidProtocol::pytorch
                   : options.protocol == "clean" ? models::FidProtocol::clean
                                                 : models::FidProtocol::tf;
  train::OpenedExtractor opened = train::open_extractor(options.weights, place);
  for (const std::string& note : opened.notes) std::cerr << one_line(note) << "\n";
  if (!opened.inception && !options.protocol.empty())
    fail_usage("--protocol ", options.protocol, " prepares images for Inception-v3, '", options.weights,
               "' is another model: its images are prepared as it was trained");
  check_extractor(options, *opened.extractor);
  return opened;
}

// Throws unless the statistics of the reference come from the same kind of features.
void check_statistics(const FidOptions& options, const Measured& real,
                      const tasks::FeatureExtractor& extractor) {
  require_spatial(options, real, options.reference);
  eval::require_same_origin(extractor.origin(), "the samples", real.statistics.origin, options.reference);
  if (real.statistics.pooled.width() != extractor.width())
    fail("'", options.reference, "' holds features of ", real.statistics.pooled.width(), " dimensions, ",
         options.weights, " makes ", extractor.width());
  if (!real.statistics.origin.known())
    std::cerr << one_line(options.reference)
              << " names no extractor and protocol: taken for those of the samples\n";
}

void fid(const FidOptions& options, const Given& given) {
  if (options.checkpoints) return fid_over_checkpoints(options, given);
  given.refuse_others(FidOptions::kMeasured, "SAMPLES are measured as they are");
  const Metrics metrics = parse_metrics(options.metrics);
  const bool images =
      !holds_statistics(options.samples) || (holds_images(options.samples) && !options.weights.empty());
  if (!images) return compare_statistics(options, metrics);
  check_request(options, metrics);
  const int workers = train::use_threads_for_walk(options.threads);
  const bool from_statistics = !options.reference.empty() && holds_statistics(options.reference);
  // Checks all files before the work.
  const auto samples = open_measured_images(options.samples, options.split, options.count);
  if (metrics.score && samples->size() < options.splits)
    fail_usage("--splits ", options.splits, ": there are ", counted(samples->size(), "sample"));
  Measured real;
  if (from_statistics) real = read_statistics_of(options.reference, options, metrics);
  std::unique_ptr<data::Source> reference;
  if (!options.reference.empty() && (!from_statistics || metrics.compares_samples()))
    reference = open_measured_images(options.reference, options.reference_split, options.reference_count);
  check_neighbours(options, metrics, *samples);
  if (reference) check_neighbours(options, metrics, *reference);
  const train::OpenedExtractor opened = open_extractor_of(options);
  if (from_statistics) check_statistics(options, real, *opened.extractor);

  const torch::InferenceMode inference;
  const Measured fake = measure(options, metrics, *opened.extractor, *samples, "samples", workers, true);
  if (reference) {
    Measured measured = measure(options, metrics, *opened.extractor, *reference, "reference", workers, false);
    if (from_statistics)
      real.meter = std::move(measured.meter);  // distances are to the statistics, which cover more images
    else
      real = std::move(measured);
  }
  std::vector<std::string> notes;
  note_bias(options, fake, real, notes);
  std::vector<Line> lines;
  if (!options.reference.empty()) {
    add_distances(lines, metrics, fake, real);
    add_comparisons(lines, metrics, options, fake, real);
  }
  add_score(lines, options, fake);
  if (!options.out.empty()) eval::write_statistics(options.out, fake.statistics);
  print(options, lines, fake, real, notes);
}

}  // namespace

void add_fid(Arguments& command, Action& action) { action = with_options<FidOptions>(command, fid); }

}  // namespace tessera::cli
