// `tessera retrieve TEXT --weights FILE --in FOLDER`: the images most similar to a text or an image.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

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
#include "io/weights/safetensors.h"
#include "open/weights.h"
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

// A cache of image vectors by path, size and time of last change, with the checksum of the weights.
class Index {
 public:
  Index(const std::string& path, const std::string& weights) : path_(path), weights_(weights) {
    if (path.empty() || !file_exists(path)) return;
    const SafetensorsFile file(path);
    const auto found = file.metadata().find("tessera.index");
    if (found == file.metadata().end())
      fail_usage("--index ", path, " exists and is not an index: name another file");
    const auto made_by = file.metadata().find("tessera.weights");
    if (made_by == file.metadata().end() || made_by->second != weights)
      return;  // from other weights: rebuild
    const std::vector<std::string> keys = split(found->second, '\n');
    for (const auto& [name, tensor] : train::read_tensors(file))
      if (name == "vectors" && tensor.dim() == 2 && tensor.size(0) == std::ssize(keys))
        for (size_t i = 0; i < keys.size(); ++i) kept_[keys[i]] = tensor[static_cast<int64_t>(i)];
  }

  static std::string key(const std::string& path) {
    std::error_code error;
    const auto bytes = fs::file_size(path, error);
    const auto changed = fs::last_write_time(path, error);
    return text(fs::absolute(path).lexically_normal().string(), "|", bytes, "|",
                changed.time_since_epoch().count());
  }
  // Undefined if the image is not in the cache, or its path has a newline.
  torch::Tensor find(const std::string& path) const {
    const auto found = kept_.find(key(path));
    return found == kept_.end() ? torch::Tensor() : found->second;
  }
  void add(const std::string& path, const torch::Tensor& vector) {
    if (path.find('\n') == std::string::npos) kept_[key(path)] = vector.clone(), changed_ = true;
  }
  void write() const {
    if (path_.empty() || !changed_) return;
    std::vector<std::string> keys;
    std::vector<torch::Tensor> rows;
    for (const auto& [key, row] : kept_) keys.push_back(key), rows.push_back(row);
    train::save_tensors(path_, {{"vectors", torch::stack(rows)}},
                        {{"tessera.index", join(keys, "\n")}, {"tessera.weights", weights_}});
  }

 private:
  std::string path_, weights_;
  std::map<std::string, torch::Tensor> kept_;
  bool changed_ = false;
};

// Returns rows for all images, undefined for those that cannot be read.
std::vector<torch::Tensor> vectors_of(const PairedModel& model, const data::ImageFiles& images, Index& index,
                                      int64_t& broken) {
  std::vector<torch::Tensor> rows;
  std::vector<std::string> fresh;
  std::vector<size_t> places;
  for (const std::string& path : images.paths()) {
    rows.push_back(index.find(path));
    if (!rows.back().defined()) fresh.push_back(path), places.push_back(rows.size() - 1);
  }
  if (fresh.empty()) return rows;
  const data::ImageFiles unknown(fresh);
  auto& towers = model.require<tasks::PairedEmbedding>("retrieve");
  broken = model.for_each_batch(unknown, [&](const train::WalkedBatch& batch) {
    const torch::Tensor made =
        model.with_precision([&] { return towers.embed_images(model.moved(batch.images)); });
    for (int64_t i = 0; i < batch.size(); ++i) {
      if (!batch.readable(i)) continue;
      const auto place = static_cast<size_t>(batch.first + i);
      rows[places[place]] = made[i].clone();
      index.add(fresh[place], rows[places[place]]);
    }
  });
  index.write();
  return rows;
}

torch::Tensor query_of(const RetrieveOptions& options, const PairedModel& model) {
  auto& towers = model.require<tasks::PairedEmbedding>("retrieve");
  if (options.image.empty()) {
    tasks::CutTexts cut;
    torch::Tensor row =
        model.with_precision([&] { return towers.embed_texts({join(options.words, " ")}, &cut); });
    tell_cut(cut, options.strict);
    return row;
  }
  torch::Tensor row;
  model.for_each_batch(data::ImageFiles({options.image}), [&](const train::WalkedBatch& batch) {
    row = model.with_precision([&] { return towers.embed_images(model.moved(batch.images)); });
  });
  return row;
}

struct Hit {
  size_t place = 0;
  double cosine = 0;
};

void write_grid(const RetrieveOptions& options, const data::ImageFiles& images,
                const std::vector<Hit>& hits) {
  std::vector<report::Cell> cells;
  for (const Hit& hit : hits)
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

// Returns the `top` rows most similar to the query, best first; undefined rows are skipped.
std::vector<Hit> best_hits(const tasks::PairedEmbedding& towers, const torch::Tensor& query,
                           const std::vector<torch::Tensor>& rows, int64_t top) {
  std::vector<Hit> hits;
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows[i].defined())
      hits.push_back({i, towers.similarities(query, rows[i].unsqueeze(0)).item<double>()});
  const auto before = [](const Hit& a, const Hit& b) {
    return a.cosine != b.cosine ? a.cosine > b.cosine : a.place < b.place;
  };
  std::sort(hits.begin(), hits.end(), before);
  hits.resize(std::min(hits.size(), static_cast<size_t>(top)));
  return hits;
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
  Index index(options.index, checksum_of_weights(model.file()));
  int64_t broken = 0;
  const std::vector<torch::Tensor> rows = vectors_of(model, images, index, broken);
  const std::vector<Hit> hits =
      best_hits(model.require<tasks::PairedEmbedding>("retrieve"), query, rows, options.top);
  for (const Hit& hit : hits) {
    const std::string& file = images.paths()[hit.place];
    if (options.json)
      std::cout << json_text({{"file", file}, {"cosine", hit.cosine}}) << "\n";
    else
      std::cout << fixed(hit.cosine, 4) << "  " << one_line(file) << "\n";
  }
  if (!options.output.empty() && !hits.empty()) write_grid(options, images, hits);
  fail_for_broken(broken, images.size());
}

}  // namespace

void add_retrieve(Arguments& command, Action& action) {
  action = with_options<RetrieveOptions>(command, retrieve);
}

}  // namespace tessera::cli
