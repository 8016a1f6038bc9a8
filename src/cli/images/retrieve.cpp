// `tessera retrieve TEXT --weights FILE --in FOLDER`: the images that fit a text, or another image, best first.
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "answer/retrieve.h"
#include "cli/base/command.h"
#include "cli/base/common.h"
#include "cli/base/paired_images.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "data/base/image_files.h"
#include "data/transforms/resize.h"
#include "io/files/file.h"
#include "io/images/image.h"
#include "report/grid.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

struct RetrieveOptions : PairedOptions {
  std::vector<std::string> words, folders;
  std::string image, output, index;
  int64_t top = 9, cell = 128;
  bool json = false, strict = false;

  template <class V>
  void visit(V& v) {
    v("text", words, {.argument = "TEXT"}, "description of the images to find");
    v("image", image, "find images similar to this one instead");
    v("in", folders, {.required = true}, "images or folders of images to search");
    v("top", top, between(1, 100'000), "images to print");
    v("output", output, {.names = "-o", .writes = Writes::file},
      "a grid of the images: .png, .jpg, .webp or .svg");
    v("cell", cell, between(16, 2048), "side of an image in the grid, in pixels");
    v("index", index, {.writes = Writes::cache}, "file that caches the images' vectors");
    v("json", json, "one JSON object for each image");
    v("strict", strict, "refuse a text longer than the context");
    PairedOptions::visit(v);
  }
};

torch::Tensor query_of(const RetrieveOptions& options, const PairedModel& model) {
  torch::Tensor row;
  if (options.image.empty()) {
    tasks::CutTexts cut;
    row = answer::text_vector(model, join(options.words, " "), &cut);
    tell_cut(cut, options.strict);
    return row;
  }
  model.for_each_batch(data::ImageFiles({options.image}), [&](const train::WalkedBatch& batch) {
    row = answer::picture_vectors(model, batch.images);
  });
  return row;
}

void write_grid(const RetrieveOptions& options, const data::ImageFiles& images,
                const std::vector<answer::Hit>& hits) {
  std::vector<report::Cell> cells;
  for (const answer::Hit& hit : hits)
    cells.push_back(
        {data::shrunk_to_fit(data::decode_sample(images.read(static_cast<int64_t>(hit.place))),
                             static_cast<int>(options.cell)),
         text(fixed(hit.cosine, 3), " ", fs::path(images.paths()[hit.place]).filename().string())});
  const report::GridOptions layout = {.cell = static_cast<int>(options.cell)};
  if (lower(options.output).ends_with(".svg"))
    write_text_atomic(options.output, report::svg_grid(cells, layout));
  else
    write_file_atomic(options.output, encode_image(report::image_grid(cells, layout), options.output));
}

void retrieve(const RetrieveOptions& options) {
  if (options.words.empty() == options.image.empty())
    fail_usage(options.image.empty() ? "nothing to look for: give a text, or an image with --image"
                                     : "a text and --image are both queries: give one");
  if (!options.output.empty() && !is_image_name(options.output) && !lower(options.output).ends_with(".svg"))
    fail_usage("'", options.output, "': the name must end in .png, .jpg, .webp or .svg");
  for (const std::string& file : {options.output, options.index})
    if (!file.empty()) require_folder_of(file);
  const data::ImageFiles images(options.folders);
  if (images.size() == 0) fail_usage("--in ", join(options.folders, " "), " holds no image");
  for (const std::string& note : images.notes()) std::cerr << one_line(note) << "\n";
  const PairedModel model(options);
  const torch::NoGradGuard no_grad;
  const Interruptible stretch;
  const torch::Tensor query = query_of(options, model);
  const answer::Gallery gallery(
      model, images, options.index,
      [&](const data::Source& unknown, const auto& see) { return model.for_each_batch(unknown, see); });
  const std::vector<answer::Hit> hits = gallery.best(query, options.top);
  for (const answer::Hit& hit : hits) {
    const std::string& file = gallery.path(hit);
    if (options.json)
      std::cout << json_text({{"file", file}, {"cosine", hit.cosine}}) << "\n";
    else
      std::cout << fixed(hit.cosine, 4) << "  " << one_line(file) << "\n";
  }
  if (!options.output.empty() && !hits.empty()) write_grid(options, images, hits);
  fail_for_broken(gallery.broken(), images.size());
}

}  // namespace

void add_retrieve(Arguments& command, Action& action) {
  action = with_options<RetrieveOptions>(command, retrieve);
}

}  // namespace tessera::cli
