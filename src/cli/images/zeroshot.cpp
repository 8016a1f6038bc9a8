// `tessera zeroshot IMAGES… --weights FILE --classes FILE`: classes given by their names alone.
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/base/command.h"
#include "cli/base/common.h"
#include "cli/base/paired_images.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "data/base/class_names.h"
#include "io/files/file.h"
#include "tasks/base/zero_shot.h"

namespace tessera::cli {
namespace {

struct ZeroShotOptions : PairedOptions {
  std::vector<std::string> images, templates, names;
  std::string classes;
  int64_t top = 5;
  bool json = false, strict = false;

  template <class V>
  void visit(V& v) {
    v("images", images, {.argument = "IMAGES", .required = true}, "images or folders of images");
    v("classes", classes, "file with one class name in a line");
    v("class", names, "name of a class; may be repeated");
    v("templates", templates,
      "texts with {} for the name, \"a photo of a {}\", or imagenet for OpenAI's 80 (default: the weights')");
    v("top", top, between(1, 1'000'000), "classes to print for each image");
    v("json", json, "one JSON object for each image");
    v("strict", strict, "refuse texts longer than the context");
    PairedOptions::visit(v);
  }
};

std::vector<std::string> class_names_of(const ZeroShotOptions& options) {
  if (options.classes.empty() == options.names.empty())
    fail_usage(options.classes.empty() ? "no classes: name a file with --classes, or each with --class"
                                       : "--classes and --class both name the classes: give one");
  return options.classes.empty() ? options.names : data::read_class_names(options.classes);
}

void print(const ZeroShotOptions& options, const std::string& file, const torch::Tensor& shares,
           const torch::Tensor& best, const std::vector<std::string>& names, bool single) {
  nlohmann::ordered_json line = {{"file", file}, {"predictions", nlohmann::ordered_json::array()}};
  if (!options.json && !single) std::cout << one_line(file) << "\n";
  for (int64_t rank = 0; rank < best.size(0); ++rank) {
    const auto place = static_cast<size_t>(best[rank].item<int64_t>());
    const double share = shares[rank].item<double>();
    if (options.json)
      line["predictions"].push_back({{"class", names[place]}, {"share", share}});
    else
      std::cout << fixed(100 * share, 2) << " %  " << one_line(names[place]) << "\n";
  }
  if (options.json) std::cout << json_text(line) << "\n";
}

void zeroshot(const ZeroShotOptions& options) {
  const std::vector<std::string> names = class_names_of(options);
  const PairedModel model(options);
  auto& towers = model.require<tasks::PairedEmbedding>("zeroshot");
  const data::ImageFiles images = given_images(options.images);
  const torch::InferenceMode inference;
  if (!options.templates.empty()) towers.set_templates(options.templates);
  tasks::CutTexts cut;
  tasks::ClassRows classes;
  classes.rows = model.with_precision([&] {
    classes = tasks::class_rows(
        towers, names, towers.templates(),
        [&](const std::vector<std::string>& texts) { return towers.embed_texts(texts, &cut); });
    return classes.rows;
  });
  tell_cut(cut, options.strict);
  const double scale = towers.similarity_scale();
  const int64_t top = std::min<int64_t>(options.top, std::ssize(names));
  const int64_t broken = model.for_each_batch(images, [&](const train::WalkedBatch& batch) {
    const torch::Tensor rows =
        model.with_precision([&] { return towers.embed_images(model.moved(batch.images)); });
    if (!torch::isfinite(rows).all().item<bool>())
      fail(model.file(),
           ": the model's outputs are not finite: its training went astray, or the file is damaged");
    const auto [shares, best] = (scale * classes.similarities(towers, rows)).softmax(1).topk(top, 1);
    for (int64_t i = 0; i < batch.size(); ++i)
      if (batch.readable(i))
        print(options, images.name(batch.first + i), shares[i], best[i], names, images.size() == 1);
  });
  fail_for_broken(broken, images.size());
}

}  // namespace

void add_zeroshot(Arguments& command, Action& action) {
  action = with_options<ZeroShotOptions>(command, zeroshot);
}

}  // namespace tessera::cli
