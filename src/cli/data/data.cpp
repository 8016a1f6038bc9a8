// `tessera data info|check|pack|preview`: describe a set, check it, pack it into shards, draw samples.
#include <algorithm>
#include <iomanip>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/base/command.h"
#include "cli/base/common.h"
#include "cli/data/data_latents.h"
#include "cli/data/data_options.h"
#include "cli/data/data_texts.h"
#include "cli/data/preview_matches.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "core/threads.h"
#include "data/base/captions.h"
#include "data/base/info.h"
#include "data/base/objects.h"
#include "data/sources/interleaved.h"
#include "data/tools/check.h"
#include "data/tools/pack.h"
#include "data/tools/preview.h"
#include "data/transforms/mask_labels.h"
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
    v("threads", threads, between(0, 1024), "threads, 0 = all cores");
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

std::string numbers(const std::array<double, 3>& values) {
  return fixed(values[0], 4) + ", " + fixed(values[1], 4) + ", " + fixed(values[2], 4);
}

void print_captions(const data::CaptionStatistics& captions) {
  if (captions.images == 0) return;
  std::cout << "  text   " << counted(captions.captions, "caption") << ", " << captions.distinct
            << " distinct, " << fixed(captions.words, 1) << " words each (of "
            << counted(captions.images, "image") << ")\n";
}

void print_documents(const data::DocumentStatistics& documents) {
  std::cout << "  text   " << counted(documents.documents, "document") << ", " << fixed(documents.images, 1)
            << " images and " << fixed(documents.words, 1) << " words each\n";
}

void print_info(const data::Source& source, const data::PixelStatistics& pixels,
                const data::CaptionStatistics& captions, const char* split) {
  std::cout << split << ": " << one_line(source.describe()) << "\n";
  if (pixels.images == 0) {
    std::cout << "  no image could be read\n";
    return;
  }
  std::cout << "  sizes  " << pixels.width.least << "x" << pixels.height.least << " to " << pixels.width.most
            << "x" << pixels.height.most << ", median " << pixels.width.median << "x" << pixels.height.median
            << " (of " << counted(pixels.images, "image") << ")\n"
            << "  mean   [" << numbers(pixels.mean) << "]\n  std    [" << numbers(pixels.std)
            << "]  (each image counts alike)\n";
  if (const auto documents = data::document_statistics(source); documents.documents > 0)
    print_documents(documents);
  else
    print_captions(captions);
}

// Prints for each class of the masks its share of the pixels, over `sample` samples.
void print_masks(const data::Source& source, int64_t sample) {
  const std::vector<std::string>& classes = data::mask_labels(source)->mask_classes();
  const std::vector<int64_t> pixels = data::mask_pixels(source, sample);
  int64_t total = 0;
  for (const int64_t count : pixels) total += count;
  if (total == 0) return;
  size_t width = 7;
  for (const std::string& name : classes) width = std::max(width, one_line(name).size());
  for (size_t c = 0; c < pixels.size(); ++c)
    std::cout << "  " << std::right << std::setw(4) << (c < classes.size() ? std::to_string(c) : "") << "  "
              << std::left << std::setw(static_cast<int>(width))
              << (c < classes.size() ? one_line(classes[c]) : "(none)") << std::right << std::setw(9)
              << percent(static_cast<double>(pixels[c]) / static_cast<double>(total)) << "\n";
}

// Empty if samples have no classes.
std::vector<std::string> class_names_of(const data::Source& source) {
  if (const data::ObjectLabels* objects = data::object_labels(source)) return objects->object_classes();
  const data::ClassLabels* labels = source.class_labels();
  return labels ? labels->class_names() : std::vector<std::string>();
}

// Returns the images of each class, or its objects if images have objects.
std::vector<int64_t> counts_of(const data::Source& source) {
  return data::object_labels(source) ? data::object_counts(source) : data::class_counts(source);
}

ordered_json info_json(const data::Source& source, const data::PixelStatistics& pixels,
                       const data::CaptionStatistics& captions) {
  const auto images = data::document_images(source);
  ordered_json json = {{"description", source.describe()},
                       {"images", images ? images->size() : source.size()},
                       {"multi_label", source.class_labels() && source.class_labels()->multi_label()},
                       {"class_counts", counts_of(source)}};
  if (const data::MaskLabels* masks = data::mask_labels(source)) json["mask_classes"] = masks->mask_classes();
  json["sample"] = {{"images", pixels.images},
                    {"mean", pixels.mean},
                    {"std", pixels.std},
                    {"width", {pixels.width.least, pixels.width.most}},
                    {"height", {pixels.height.least, pixels.height.most}},
                    {"median_width", pixels.width.median},
                    {"median_height", pixels.height.median}};
  if (const auto documents = data::document_statistics(source); documents.documents > 0)
    json["documents"] = {
        {"documents", documents.documents}, {"images", documents.images}, {"words", documents.words}};
  else if (captions.images > 0)
    json["captions"] = {{"images", captions.images},
                        {"captions", captions.captions},
                        {"distinct", captions.distinct},
                        {"words", captions.words}};
  return json;
}

// A line a class with its images in each split.
void print_classes(const std::vector<std::string>& classes, const std::vector<std::vector<int64_t>>& counts) {
  size_t width = 5;
  for (const std::string& name : classes) width = std::max(width, one_line(name).size());
  for (size_t i = 0; i < classes.size(); ++i) {
    std::cout << "  " << std::right << std::setw(4) << i << "  " << std::left
              << std::setw(static_cast<int>(width)) << one_line(classes[i]) << std::right;
    for (const auto& of_split : counts) std::cout << std::setw(9) << of_split[i];
    std::cout << "\n";
  }
}

void info(const InfoOptions& options) {
  set_num_threads(static_cast<int>(options.threads));
  const data::OpenSplits splits = data::open_splits(options.source);
  if (!splits.train && !splits.validation)
    fail(splits.errors.empty() ? options.source.path + " has no images" : splits.errors[0]);
  ordered_json json = {{"kind", data::source_kind(options.source.path)}};
  if (!options.json) std::cout << "kind: " << data::source_kind(options.source.path) << "\n";
  const data::Source& first = splits.train ? *splits.train : *splits.validation;
  const std::vector<std::string> classes = class_names_of(first);
  json["classes"] = classes;
  std::vector<std::vector<int64_t>> counts;
  const size_t problems = splits.problems().size();
  const bool masks = data::mask_labels(first) != nullptr;
  for (const auto* source : {splits.train.get(), splits.validation.get()}) {
    if (source == nullptr) continue;
    const char* split = source == splits.train.get() ? "train" : "validation";
    if (class_names_of(*source) == classes) counts.push_back(counts_of(*source));
    if (const auto* latents = data::as_latents(source)) {
      const LatentStatistics statistics = latent_statistics(*latents, options.sample);
      if (options.json)
        json[split] = latents_info_json(*latents, statistics);
      else
        print_latents(*latents, statistics, split);
      continue;
    }
    if (json["kind"] == "texts") {
      const TextStatistics statistics = text_statistics(*source);
      if (options.json)
        json[split] = texts_info_json(*source, statistics);
      else
        print_texts(*source, statistics, split);
      continue;
    }
    const auto images = data::document_images(*source);
    const auto pixels = data::pixel_statistics(images ? *images : *source, options.sample);
    const auto captions = data::caption_statistics(*source, options.sample);
    if (options.json) {
      json[split] = info_json(*source, pixels, captions);
      if (masks) json[split]["mask_pixels"] = data::mask_pixels(*source, options.sample);
    } else {
      print_info(*source, pixels, captions, split);
      if (masks) print_masks(*source, options.sample);
    }
  }
  json["problems"] = problems;
  if (options.json) {
    std::cout << json_text(json, 2) << "\n";
    return;
  }
  if (!classes.empty())
    std::cout << "classes (" << (data::object_labels(first) ? "objects" : "images") << " in each split):\n";
  print_classes(classes, counts);
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
  if (split.class_counts.empty()) return;
  const auto [least, most] = std::minmax_element(split.class_counts.begin(), split.class_counts.end());
  std::cout << "  classes  " << split.classes.size() << ", of " << *least << " ('"
            << one_line(split.classes[static_cast<size_t>(least - split.class_counts.begin())]) << "') to "
            << *most << " ('"
            << one_line(split.classes[static_cast<size_t>(most - split.class_counts.begin())]) << "') "
            << (split.counts_objects ? "objects" : "images") << "\n";
}

ordered_json findings_json(const data::Lines& findings) {
  return {{"count", findings.count}, {"lines", findings.lines}};
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
                              {"shorter_sides", sides}});
  }
  json["set"] = findings_json(report.set);
  json["unreadable"] = findings_json(report.unreadable);
  json["duplicates"] = findings_json(report.duplicates);
  json["leaks"] = findings_json(report.leaks);
  if (report.captions.count > 0) json["captions"] = findings_json(report.captions);
  return json;
}

void check_set(const CheckOptions& options) {
  set_num_threads(static_cast<int>(options.threads));
  const std::string kind = data::source_kind(options.source.path);
  if (!options.weights.empty() && (kind == "latents" || kind == "texts"))
    fail_usage("--weights: '", options.source.path, "' holds no images with texts");
  if (kind == "latents") return check_latents(options.source, options.show, options.json);
  if (kind == "texts") return check_texts(options.source, options.show, options.json);
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
    print_findings("the set", report.set, options.show);
    print_findings("unreadable images", report.unreadable, options.show);
    print_findings("the same image in training and validation data", report.leaks, options.show);
    print_findings("captions", report.captions, options.show);
    print_findings("the same image twice", report.duplicates, options.show);
    if (report.problems() == 0) std::cout << "nothing wrong found\n";
  }
  if (report.problems() > 0) fail(options.source.path, ": ", counted(report.problems(), "problem"), " found");
}

// --- pack ---

struct PackOptions : DataOptions {
  data::PackConfig pack;

  template <class V>
  void visit(V& v) {
    DataOptions::visit(v);
    v("output", pack.output, {.names = "-o", .required = true}, "folder for the shards; must not exist");
    v("shard_size", pack.shard_size, "images in a shard");
    v("resize", pack.resize, "shrink images to this shorter side (0: keep)");
    v("quality", pack.quality, "JPEG quality of shrunk images");
    v("gzip", pack.gzip, "write .tar.gz");
    v("skip_bad", pack.skip_bad, "leave out images that cannot be read");
  }
};

void pack(const PackOptions& options) {
  set_num_threads(static_cast<int>(options.threads));
  Watch watch("pack");
  const data::PackReport report = data::pack_data(options.source, options.pack, watch.callback());
  watch.finish();
  for (const std::string& line : report.skipped.lines) std::cerr << "left out: " << one_line(line) << "\n";
  std::cout << one_line(options.pack.output) << ": " << counted(report.pictures, "image") << " in "
            << counted(static_cast<int64_t>(report.files.size()) - 1, "shard") << ", "
            << human_bytes(static_cast<uint64_t>(report.bytes));
  if (report.skipped.count > 0) std::cout << ", " << report.skipped.count << " left out";
  std::cout << "\n";
}

// --- preview ---

struct PreviewOptions : DataOptions {
  std::string output, split = "train", matches;
  int64_t count = 64, columns = 0, cell = 96, seed = 0;

  template <class V>
  void visit(V& v) {
    DataOptions::visit(v);
    v("out", output, {.argument = "OUT", .required = true},
      "file to write: .png, .jpg, .webp, .svg or .html");
    v("split", split, {.choices = {"train", "validation"}}, "split of the set");
    v("count", count, {.range = between(1, 10000), .names = "-n"}, "images");
    v("columns", columns, between(0, 1000), "columns of the grid (0: square)");
    v("cell", cell, between(16, 1024), "side of an image in the grid");
    v("seed", seed, "seed of the choice of images");
    v("matches", matches,
      "recipe of task detect: its augmented images, with the anchors assigned to each object");
  }
};

// Returns "image", "svg" or "html"; throws before the work.
std::string preview_kind(const std::string& path) {
  if (is_image_name(path)) return "image";
  for (const char* kind : {"svg", "html"})
    if (lower(path).ends_with(std::string(".") + kind)) return kind;
  fail_usage("'", path, "': the name must end in .png, .jpg, .webp, .svg or .html");
}

// The file as it is named in the result: "samples.png, 320x320".
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
    std::cout << one_line(write_preview(options.output, kind, matched, layout, options.source.path)) << ": "
              << counted(std::ssize(matched), "image") << "\n";
    return;
  }
  if (data::source_kind(options.source.path) == std::string("texts"))
    fail_usage("'", options.source.path, "' holds texts without images: `tessera data info` describes them");
  const auto source = data::open_source(options.source, parse_split(options.split));
  if (data::as_latents(source.get()))
    fail_usage("'", options.source.path,
               "' holds latents, which are no images: `tessera data info` describes them");
  std::vector<report::Cell> cells;
  bool by_number = false;
  for (data::PreviewCell& cell : data::preview_cells(
           *source, options.count, static_cast<uint64_t>(options.seed), static_cast<int>(options.cell))) {
    if (cell.error.empty()) {
      const bool drawn = kind != "image" || report::has_glyphs(cell.caption);
      by_number = by_number || !drawn;
      cells.push_back({std::move(cell.picture), drawn ? std::move(cell.caption) : std::move(cell.numbers)});
    } else {
      std::cerr << "left out: " << one_line(cell.error) << "\n";
    }
  }
  if (cells.empty()) fail(options.source.path, ": none of ", options.count, " images could be read");
  std::cout << one_line(write_preview(options.output, kind, cells, layout, source->describe())) << ": "
            << cells.size() << " of " << counted(source->size(), "image") << "\n";
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
