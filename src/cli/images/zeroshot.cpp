// `tessera zeroshot IMAGES… --weights FILE --classes FILE`: classes given only by name.
#include <iostream>
#include <nlohmann/json.hpp>

#include "answer/zero_shot.h"
#include "cli/base/command.h"
#include "cli/base/common.h"
#include "cli/base/paired_images.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "data/base/class_names.h"
#include "io/files/file.h"

namespace tessera::cli {
namespace {

struct ZeroShotOptions : PairedOptions, answer::ZeroShotOptions {
  std::vector<std::string> images;
  std::string classes;
  bool json = false, strict = false;

  template <class V>
  void visit(V& v) {
    v("images", images, {.argument = "IMAGES", .required = true}, "images or folders of images");
    v("classes", classes, "file with one class name in a line");
    answer::ZeroShotOptions::visit(v);
    v("json", json, "one JSON object for each image");
    v("strict", strict, "refuse texts longer than the context");
    PairedOptions::visit(v);
  }
};

std::vector<std::string> class_names_of(const ZeroShotOptions& options) {
  if (options.classes.empty() == options.names.empty())
    fail_usage(options.classes.empty() ? "no classes: name a file with --classes, or each with --class"
                                       : "--classes and --class both name the classes: give one");
  const std::vector<std::string> names =
      options.classes.empty() ? options.names : data::read_class_names(options.classes);
  if (names.size() == 1)
    std::cerr << "one class, '" << one_line(names[0]) << "': its share is 100 % of any image"
              << (options.classes.empty() ? "" : "; a class is a line of --classes") << "\n";
  return names;
}

void print(const ZeroShotOptions& options, const std::string& file, const torch::Tensor& shares,
           const torch::Tensor& best, const std::vector<std::string>& names, bool single) {
  if (options.json) {
    std::cout << json_text({{"file", file}, {"predictions", answer::json_of(shares, best, names)}}) << "\n";
    return;
  }
  if (!single) std::cout << one_line(file) << "\n";
  for (int64_t rank = 0; rank < best.size(0); ++rank) {
    const auto place = static_cast<size_t>(best[rank].item<int64_t>());
    std::cout << fixed(100 * shares[rank].item<double>(), 2) << " %  " << one_line(names[place]) << "\n";
  }
}

void zeroshot(const ZeroShotOptions& options) {
  const std::vector<std::string> names = class_names_of(options);
  const PairedModel model(options);
  auto& towers = model.require<tasks::PairedEmbedding>("zeroshot");
  const data::ImageFiles images = given_images(options.images);
  const torch::InferenceMode inference;
  tasks::CutTexts cut;
  const answer::NamedClassRows classes(model, towers, names, options.templates, &cut);
  tell_cut(cut, options.strict);
  const int64_t broken = model.for_each_batch(images, [&](const train::WalkedBatch& batch) {
    const auto [shares, best] = classes.best(batch.images, options.top);
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
