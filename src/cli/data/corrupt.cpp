// `tessera data corrupt SET -o DIR`: a set under the corruptions of ImageNet-C or CIFAR-10-C.
#include <algorithm>
#include <iostream>
#include <memory>

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

// Names with commas between them; "all" is the benchmark's 15 and the 3 extra ones.
std::vector<std::string> parse_corruptions(const std::string& list) {
  if (list.empty()) return {};
  if (list == "all") return {data::corruption_names().begin(), data::corruption_names().end()};
  std::vector<std::string> out;
  for (const std::string& part : split(list, ','))
    if (std::find(out.begin(), out.end(), trim(part)) == out.end()) out.emplace_back(trim(part));
  return out;
}

void corrupt(CorruptOptions options) {
  set_num_threads(static_cast<int>(options.threads));
  options.corrupt.corruptions = parse_corruptions(options.corruptions);
  options.corrupt.severities = parse_severities(options.severities);
  if (options.split == "all") options.source.val_share = 0;
  // A set that names no split is taken whole, as --data of the analyses takes it.
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
  std::cout << one_line(options.corrupt.output) << ": " << counted(report.pictures, "image") << " of "
            << one_line(source->describe()) << ", parameters of "
            << (report.parameters == "cifar" ? "CIFAR-10-C" : "ImageNet-C") << "\n";
  if (report.drawn_frost) std::cout << data::kDrawnFrost << "\n";
}

}  // namespace

void add_data_corrupt(Arguments& command, Action& action) {
  auto options = std::make_shared<CorruptOptions>();
  command.add("SET", options->source.path, "a folder, shards, a table, CIFAR or IDX files, shapes:…")
      .required();
  command.add("-o,--output", options->corrupt.output, "folder for CORRUPTION/SEVERITY/CLASS; must not exist")
      .required();
  command.add("--val-data", options->source.val_path, "the validation set, where it is another path");
  command.add("--split", options->split, "validation, train, or all where the set names no split")
      .show_default()
      .one_of({"validation", "train", "all"});
  command.add(
      "--corruption", options->corruptions,
      "some as fog,frost; all: with speckle_noise, gaussian_blur, saturate (default: the benchmark's 15)");
  command.add("--severity", options->severities, "1 to 5, several with commas").show_default();
  command
      .add("--parameters", options->corrupt.parameters,
           "imagenet or cifar (default: cifar for images of at most 64 pixels)")
      .one_of({"imagenet", "cifar"});
  command
      .add("--size", options->corrupt.size,
           "cut the centre to this side first, as ImageNet-C's 224 (0: keep)")
      .show_default()
      .range(0, 8192);
  command.add("--frost", options->corrupt.frost, "folder of images of frost (default: frost is drawn)");
  command
      .add("--quality", options->corrupt.quality,
           "of JPEGs, as ImageNet-C's 85 (0: PNG, without further loss)")
      .show_default()
      .range(0, 100);
  command.add("--seed", options->corrupt.seed, "other seeds draw other corruptions").show_default();
  command.add("--class-names", options->source.class_names, "file with one class name a line");
  command.add("--threads", options->threads, "threads (0: as many as there are cores)")
      .show_default()
      .range(0, 1024);
  action = [options] { corrupt(*options); };
}

}  // namespace tessera::cli
