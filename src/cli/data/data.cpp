// `tessera data info|check|pack|preview`: describe a set, check it, pack it into shards, show samples.
#include <algorithm>
#include <iomanip>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/base/command.h"
#include "cli/base/common.h"
#include "cli/base/measure_options.h"
#include "cli/data/data_models.h"
#include "core/control_characters.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "core/threads.h"
#include "data/base/annotations.h"
#include "data/base/source_kinds.h"
#include "data/tools/check.h"
#include "data/tools/pack.h"
#include "io/files/file.h"
#include "io/images/image.h"
#include "report/grid.h"
#include "report/html.h"

namespace tessera::cli {
namespace {

using nlohmann::ordered_json;

struct DataOptions {
  data::SourceConfig source;
  int64_t threads = 0;
  bool json = false;

  template <class V>
  void visit(V& v) {
    visit_set(v, source);
    visit_validation(v, source);
    v("class_names", source.class_names, "file with one class name in a line");
    v("threads", threads, between(0, 1024), "threads, 0 = OMP_NUM_THREADS or all cores");
  }
};

data::Split parse_split(const std::string& name) {
  return name == "train" ? data::Split::train : data::Split::validation;
}

// Progress on standard error, so that results can be piped.
class Watch {
 public:
  explicit Watch(std::string label) : label_(std::move(label)) {}
  data::Progress callback() {
    return [this](int64_t done, int64_t total) {
      if (!line_) {
        ProgressLine::Options options;
        options.label = label_;
        options.total = total;
        line_ = std::make_unique<ProgressLine>(std::cerr, options);
      }
      line_->update(done, {});
    };
  }
  void finish() {
    if (line_) line_->finish();
  }

 private:
  std::string label_;
  std::unique_ptr<ProgressLine> line_;
};

std::string percent(double share) { return fixed(100 * share, 1) + " %"; }

// --- info ---

struct InfoOptions : DataOptions {
  int64_t sample = 1000;

  template <class V>
  void visit(V& v) {
    DataOptions::visit(v);
    v("sample", sample, between(1, 100'000'000), "images for mean and std");
    v("json", json, "one JSON object");
  }
};

// Prints one line per class with the number of its images in each split.
void print_classes(const std::vector<std::string>& classes, const std::vector<std::vector<int64_t>>& counts) {
  size_t width = 5;
  for (const std::string& name : classes) width = std::max(width, display_width(one_line(name)));
  for (size_t i = 0; i < classes.size(); ++i) {
    std::cout << "  " << std::right << std::setw(4) << i << "  " << padded(one_line(classes[i]), width)
              << std::right;
    for (const auto& of_split : counts) std::cout << std::setw(9) << of_split[i];
    std::cout << "\n";
  }
}

// None if counting would require reading every sample.
data::Annotations::Classes classes_of(const data::Annotations& annotations) {
  data::Annotations::Classes classes = annotations.classes();
  if (classes.counts.empty()) classes.names.clear();
  return classes;
}

void info(const InfoOptions& options) {
  set_num_threads(static_cast<int>(options.threads));
  const data::OpenSplits splits = data::open_splits(options.source);
  if (!splits.train && !splits.validation)
    fail(splits.errors.empty() ? options.source.path + " has no images" : splits.errors[0]);
  ordered_json json = {{"kind", data::source_kind(options.source.path)}};
  if (!options.json) std::cout << "kind: " << data::source_kind(options.source.path) << "\n";
  const data::Source& first = splits.train ? *splits.train : *splits.validation;
  const data::Annotations::Classes classes = classes_of(*first.annotations());
  json["classes"] = classes.names;
  std::vector<std::vector<int64_t>> counts;
  const size_t problems = splits.problems().size();
  for (const auto* source : {splits.train.get(), splits.validation.get()}) {
    if (source == nullptr) continue;
    const char* split = source == splits.train.get() ? "train" : "validation";
    const auto annotations = source->annotations();
    if (data::Annotations::Classes own = classes_of(*annotations); own.names == classes.names)
      counts.push_back(std::move(own.counts));
    data::Annotations::Facts facts = annotations->facts(options.sample);
    if (options.json)
      json[split] = std::move(facts.json);
    else
      std::cout << split << ": " << one_line(source->describe()) << "\n" << facts.text;
  }
  json["problems"] = problems;
  if (options.json) {
    std::cout << json_text(json, 2) << "\n";
    return;
  }
  if (!classes.names.empty()) std::cout << "classes (" << classes.counted << " in each split):\n";
  print_classes(classes.names, counts);
  if (problems > 0)
    std::cout << counted(static_cast<int64_t>(problems), "problem") << ": `tessera data check "
              << options.source.path << "` lists " << (problems == 1 ? "it" : "them") << "\n";
}

// --- check ---

struct CheckOptions : DataOptions {
  int64_t show = 20;
  std::string weights;

  template <class V>
  void visit(V& v) {
    DataOptions::visit(v);
    v("show", show, between(0, 1000), "lines of each kind of problem");
    v("weights", weights, {.names = "-w"}, "weights of a model: list the texts longer than its context");
    v("json", json, "one JSON object with up to 1000 lines of each kind");
  }
};

void print_split(const data::SplitCheck& split) {
  std::cout << split.name << ": " << one_line(split.description) << "\n";
  if (split.readable == 0) return;
  std::cout << "  formats ";
  for (const auto& [format, count] : split.formats) std::cout << " " << format << " " << count;
  std::cout << "\n  sides    " << split.smallest_side << " to " << split.largest_side << " pixels\n";
  for (const auto& [power, count] : split.sides) {
    const double share = static_cast<double>(count) / static_cast<double>(split.readable);
    std::cout << "    shorter side " << std::setw(5) << (1 << power) << " to " << std::setw(5)
              << (2 << power) - 1 << std::setw(9) << count << "  "
              << std::string(static_cast<size_t>(40 * share + 0.5), '#') << " " << percent(share) << "\n";
  }
  if (split.oriented > 0)
    std::cout << "  exif     " << counted(split.oriented, "image")
              << " with an EXIF orientation, read as viewers show them\n";
  if (split.class_counts.empty()) return;
  const auto [least, most] = std::minmax_element(split.class_counts.begin(), split.class_counts.end());
  std::cout << "  classes  " << split.classes.size() << ", of " << *least << " ('"
            << one_line(split.classes[static_cast<size_t>(least - split.class_counts.begin())]) << "') to "
            << *most << " ('"
            << one_line(split.classes[static_cast<size_t>(most - split.class_counts.begin())]) << "') "
            << split.counted << "\n";
}

ordered_json check_json(const data::CheckReport& report) {
  ordered_json json = {{"ok", report.problems() == 0}, {"splits", ordered_json::array()}};
  for (const data::SplitCheck& split : report.splits) {
    ordered_json sides = ordered_json::array();
    for (const auto& [power, count] : split.sides)
      sides.push_back({{"from", 1 << power}, {"to", (2 << power) - 1}, {"images", count}});
    json["splits"].push_back({{"name", split.name},
                              {"description", split.description},
                              {"images", split.pictures},
                              {"readable", split.readable},
                              {"classes", split.classes},
                              {"class_counts", split.class_counts},
                              {"formats", split.formats},
                              {"shorter_sides", sides},
                              {"oriented", split.oriented}});
  }
  json["set"] = report.set.json();
  json["unreadable"] = report.unreadable.json();
  json["duplicates"] = report.duplicates.json();
  json["leaks"] = report.leaks.json();
  if (report.captions.count > 0) json["captions"] = report.captions.json();
  json["warnings"] = report.warnings.json();
  return json;
}

void fail_for_problems(const std::string& path, int64_t problems) {
  if (problems > 0) fail(path, ": ", counted(problems, "problem"), " found");
}

void check_set(const CheckOptions& options) {
  set_num_threads(static_cast<int>(options.threads));
  const data::SourceKind& kind = data::find_source_kind(options.source.path);
  if (!options.weights.empty() && kind.without_images)
    fail_usage("--weights: '", options.source.path, "' holds no images with texts");
  if (kind.check) {
    const data::CheckedSet checked = kind.check(options.source, options.show);
    std::cout << (options.json ? json_text(checked.json, 2) + "\n" : checked.text);
    return fail_for_problems(options.source.path, checked.problems);
  }
  std::optional<TextReader> reader;
  if (!options.weights.empty()) reader.emplace(options.weights);
  Watch watch("check");
  data::CheckReport report = data::check_data(options.source, watch.callback());
  watch.finish();
  if (reader) reader->add_long_texts(options.source, report);
  if (options.json) {
    std::cout << json_text(check_json(report), 2) << "\n";
  } else {
    for (const data::SplitCheck& split : report.splits) print_split(split);
    std::cout << report.set.text("the set", options.show);
    std::cout << report.unreadable.text("unreadable images", options.show);
    std::cout << report.leaks.text("the same image in training and validation data", options.show);
    std::cout << report.captions.text("captions", options.show);
    std::cout << report.duplicates.text("the same image twice", options.show);
    std::cout << report.warnings.text("warnings", options.show);
    if (report.problems() == 0)
      std::cout << (report.warnings.count == 0 ? "nothing wrong found\n" : "no errors found\n");
  }
  fail_for_problems(options.source.path, report.problems());
}

// --- pack ---

struct PackOptions : DataOptions {
  data::PackConfig pack;

  template <class V>
  void visit(V& v) {
    DataOptions::visit(v);
    v("output", pack.output, {.names = "-o", .required = true, .writes = Writes::file},
      "folder for the shards; must not exist");
    v("shard_size", pack.shard_size, "images in a shard");
    v("resize", pack.resize, "shrink images to this shorter side (0: keep)");
    v("quality", pack.quality, "JPEG quality of shrunk images");
    v("gzip", pack.gzip, "write .tar.gz");
    v("skip_bad", pack.skip_bad, "leave out images that cannot be read");
    visit_json(v, json);
  }
};

void pack(const PackOptions& options) {
  require_apart(options.pack.output, {options.source.path, options.source.val_path});
  set_num_threads(static_cast<int>(options.threads));
  Watch watch("pack");
  const data::PackReport report = data::pack_data(options.source, options.pack, watch.callback());
  watch.finish();
  for (const std::string& line : report.skipped.lines) std::cerr << "left out: " << one_line(line) << "\n";
  std::ostream& out = people(options.json);
  out << one_line(options.pack.output) << ": " << counted(report.pictures, "image") << " in "
      << counted(static_cast<int64_t>(report.files.size()) - 1, "shard") << ", "
      << human_bytes(static_cast<uint64_t>(report.bytes));
  if (report.skipped.count > 0) out << ", " << report.skipped.count << " left out";
  out << "\n";
  print_outcome(options.json, {{"output", options.pack.output},
                               {"images", report.pictures},
                               {"files", report.files},
                               {"bytes", report.bytes},
                               {"left_out", report.skipped.json()}});
}

// --- preview ---

struct PreviewOptions : DataOptions {
  std::string output, split = "train", matches;
  int64_t count = 64, columns = 0, cell = 96, seed = 0;

  template <class V>
  void visit(V& v) {
    DataOptions::visit(v);
    v("out", output, {.argument = "OUT", .required = true, .writes = Writes::file},
      "file to write: .png, .jpg, .webp, .svg or .html");
    v("split", split, {.choices = {"train", "validation"}}, "split of the set");
    v("count", count, {.range = between(1, 10000), .names = "-n"}, "images");
    v("columns", columns, between(0, 1000), "columns of the grid (0: square)");
    v("cell", cell, between(16, 1024), "side of an image in the grid");
    v("seed", seed, "seed of the choice of images");
    v("matches", matches,
      "recipe of task detect: its augmented images, with the anchors assigned to each object");
    visit_json(v, json);
  }
};

// Returns "image", "svg" or "html"; throws before the work.
std::string preview_kind(const std::string& path) {
  if (is_image_name(path)) return "image";
  for (const char* kind : {"svg", "html"})
    if (lower(path).ends_with(std::string(".") + kind)) return kind;
  fail_usage("'", path, "': the name must end in .png, .jpg, .webp, .svg or .html");
}

// Describes the file in the result: "samples.png, 320x320".
std::string write_preview(const std::string& path, const std::string& kind,
                          const std::vector<report::Cell>& cells, const report::GridOptions& layout,
                          const std::string& title) {
  if (kind == "image") {
    const Image grid = report::image_grid(cells, layout);
    write_file_atomic(path, encode_image(grid, path));
    return text(path, ", ", grid.width, "x", grid.height);
  }
  if (kind == "svg") {
    write_text_atomic(path, report::svg_grid(cells, layout));
    return path;
  }
  report::Page page("Samples", title);
  page.section("Samples");
  std::vector<report::Picture> pictures;
  for (const report::Cell& cell : cells) pictures.push_back({cell.picture, cell.caption});
  page.pictures(pictures);
  write_text_atomic(path, page.finish());
  return path;
}

// Sets `by_number` if a picture shows class numbers because it cannot show their names.
std::vector<report::Cell> sample_cells(const PreviewOptions& options, const data::Source& source,
                                       const std::string& kind, bool& by_number) {
  std::vector<report::Cell> cells;
  for (data::PreviewCell& cell : data::preview_cells(
           source, options.count, static_cast<uint64_t>(options.seed), static_cast<int>(options.cell))) {
    if (cell.error.empty()) {
      const bool drawn = kind != "image" || report::has_glyphs(cell.caption);
      by_number = by_number || !drawn;
      cells.push_back({std::move(cell.picture), drawn ? std::move(cell.caption) : std::move(cell.numbers)});
    } else {
      std::cerr << "left out: " << one_line(cell.error) << "\n";
    }
  }
  return cells;
}

void preview(const PreviewOptions& options) {
  set_num_threads(static_cast<int>(options.threads));
  constexpr int64_t kMostPixels = 500'000'000;  // of the sheet
  if (options.count * options.cell * options.cell > kMostPixels)
    fail_usage("--count ", options.count, " with --cell ", options.cell,
               " make too large an image: take fewer or smaller ones");
  const std::string kind = preview_kind(options.output);
  const report::GridOptions layout = {.columns = static_cast<int>(options.columns),
                                      .cell = static_cast<int>(options.cell)};
  if (!options.matches.empty()) {
    const auto matched = matched_cells(options.matches, options.source, options.count, options.seed,
                                       static_cast<int>(options.cell));
    people(options.json) << one_line(
                                write_preview(options.output, kind, matched, layout, options.source.path))
                         << ": " << counted(std::ssize(matched), "image") << "\n";
    return print_outcome(options.json, {{"output", options.output}, {"images", matched.size()}});
  }
  if (const char* others = data::find_source_kind(options.source.path).without_images)
    fail_usage("'", options.source.path, "' holds ", others, ": `tessera data info` describes them");
  const auto source = data::open_source(options.source, parse_split(options.split));
  bool by_number = false;
  const std::vector<report::Cell> cells = sample_cells(options, *source, kind, by_number);
  if (cells.empty()) fail(options.source.path, ": none of ", options.count, " images could be read");
  people(options.json) << one_line(write_preview(options.output, kind, cells, layout, source->describe()))
                       << ": " << cells.size() << " of " << counted(source->size(), "image") << "\n";
  print_outcome(options.json, {{"output", options.output}, {"images", cells.size()}, {"of", source->size()}});
  if (by_number)
    std::cerr << one_line(options.output)
              << ": names that are not in plain ASCII are shown as numbers; an .svg or .html shows "
              << "any script\n";
}

}  // namespace

void add_data_info(Arguments& command, Action& action) { action = with_options<InfoOptions>(command, info); }

void add_data_check(Arguments& command, Action& action) {
  action = with_options<CheckOptions>(command, check_set);
}

void add_data_pack(Arguments& command, Action& action) { action = with_options<PackOptions>(command, pack); }

void add_data_preview(Arguments& command, Action& action) {
  action = with_options<PreviewOptions>(command, preview);
}

}  // namespace tessera::cli
