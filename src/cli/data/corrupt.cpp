// `tessera data corrupt SET -o DIR`: a set under the corruptions of ImageNet-C or CIFAR-10-C.
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/base/command.h"
#include "cli/base/common.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "core/threads.h"
#include "data/tools/corrupt_set.h"

namespace tessera::cli {
namespace {

struct CorruptOptions {
  data::SourceConfig source;
  data::CorruptConfig corrupt;
  std::string split = "validation", corruptions, severities = "1,2,3,4,5";
  int64_t threads = 0;
  bool json = false;

  template <class V>
  void visit(V& v) {
    v("set", source.path, {.argument = "SET", .required = true},
      "a folder, shards, a table, CIFAR or IDX files, shapes:…");
    v("output", corrupt.output, {.names = "-o", .required = true, .writes = Writes::file},
      "folder for CORRUPTION/SEVERITY/CLASS; must not exist");
    v("val_data", source.val_path, "the validation set, if it has a path of its own");
    v("split", split, {.choices = {"validation", "train", "all"}},
      "split of the set; all of a set without splits");
    v("corruption", corruptions,
      "corruptions: fog,frost; all: with speckle_noise, gaussian_blur, saturate (default: the benchmark's "
      "15)");
    v("severity", severities, "1 to 5, comma-separated");
    v("parameters", corrupt.parameters, {.choices = {"imagenet", "cifar"}},
      "parameters of the benchmark (default: cifar for images of at most 64 pixels)");
    v("size", corrupt.size, between(0, 8192),
      "crop the centre to this side first, 224 for ImageNet-C (0: keep)");
    v("frost", corrupt.frost, "folder of images of frost (default: synthetic frost)");
    v("quality", corrupt.quality, between(0, 100),
      "JPEG quality, 85 for ImageNet-C (0: PNG, without further loss)");
    v("seed", corrupt.seed, "seed of the corruptions");
    v("class_names", source.class_names, "file with one class name in a line");
    v("threads", threads, between(0, 1024), "threads, 0 = OMP_NUM_THREADS or all cores");
    visit_json(v, json);
  }
};

std::vector<int64_t> parse_severities(const std::string& list) {
  std::vector<int64_t> out;
  for (const std::string& part : split(list, ',')) {
    const auto severity = parse_int(trim(part));
    if (!severity || *severity < 1 || *severity > data::kSeverities)
      fail_usage("--severity: '", part, "' is none, there are 1 to ", data::kSeverities, ", as in 1,3,5");
    if (std::find(out.begin(), out.end(), *severity) == out.end()) out.push_back(*severity);
  }
  return out;
}

// Parses comma-separated names; "all" is the benchmark's 15 and the 3 extra ones.
std::vector<std::string> parse_corruptions(const std::string& list) {
  if (list.empty()) return {};
  if (list == "all") return {data::corruption_names().begin(), data::corruption_names().end()};
  std::vector<std::string> out;
  for (const std::string& part : split(list, ','))
    if (std::find(out.begin(), out.end(), trim(part)) == out.end()) out.emplace_back(trim(part));
  return out;
}

void corrupt(const CorruptOptions& asked) {
  CorruptOptions options = asked;
  require_apart(options.corrupt.output, {options.source.path, options.source.val_path});
  set_num_threads(static_cast<int>(options.threads));
  options.corrupt.corruptions = parse_corruptions(options.corruptions);
  options.corrupt.severities = parse_severities(options.severities);
  if (options.split == "all") options.source.val_share = 0;
  // If a set has no split, all of it is used, as with --data of the analyses.
  if (options.split == "validation" && options.source.val_path.empty())
    options.source.val_path = options.source.path;
  const std::shared_ptr<const data::Source> source = data::open_source(
      options.source, options.split == "validation" ? data::Split::validation : data::Split::train);
  std::unique_ptr<ProgressLine> line;
  const data::CorruptReport report =
      data::corrupt_set(source, options.corrupt, [&](int64_t done, int64_t total) {
        if (!line) {
          ProgressLine::Options bar;
          bar.label = "corrupt", bar.total = total;
          line = std::make_unique<ProgressLine>(std::cerr, bar);
        }
        line->update(done, {});
      });
  if (line) line->finish();
  std::ostream& out = people(options.json);
  out << one_line(options.corrupt.output) << ": " << counted(report.pictures, "image") << " of "
      << one_line(source->describe()) << ", parameters of "
      << (report.parameters == "cifar" ? "CIFAR-10-C" : "ImageNet-C") << "\n";
  if (report.drawn_frost) out << data::kDrawnFrost << "\n";
  print_outcome(options.json, {{"output", options.corrupt.output},
                               {"images", report.pictures},
                               {"set", source->describe()},
                               {"parameters", report.parameters},
                               {"drawn_frost", report.drawn_frost}});
}

}  // namespace

void add_data_corrupt(Arguments& command, Action& action) {
  action = with_options<CorruptOptions>(command, corrupt);
}

}  // namespace tessera::cli
