// `tessera caption IMAGES… --weights FILE`: a caption for each image.
#include <iostream>
#include <nlohmann/json.hpp>

#include "analysis/maps.h"
#include "answer/caption.h"
#include "cli/base/analysis_input.h"
#include "cli/base/command.h"
#include "cli/base/common.h"
#include "cli/base/paired_images.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "io/files/file.h"
#include "io/images/image.h"
#include "report/grid.h"

namespace tessera::cli {
namespace {

struct CaptionOptions : PairedOptions, answer::CaptionOptions {
  std::vector<std::string> images;
  std::string attention;
  bool json = false;

  template <class V>
  void visit(V& v) {
    v("images", images, {.argument = "IMAGES", .required = true}, "images or folders of images");
    answer::CaptionOptions::visit(v);
    v("attention", attention, {.writes = Writes::file},
      "file for the attention of each word, for one image: .png, .jpg, .webp or .svg");
    v("json", json, "one JSON object for each image");
    PairedOptions::visit(v);
  }
};

// Draws the image, and next to it the attention of each word.
void draw_attention(const CaptionOptions& options, const PairedModel& model, const torch::Tensor& image,
                    const std::string& caption) {
  const Image picture = picture_of(image[0], model.info().preprocess);
  std::vector<report::Cell> cells = {{picture, caption}};
  for (const auto& word : answer::word_attention(model, image, caption)) {
    const torch::Tensor map = analysis::enlarged(word.map.unsqueeze(0), picture.height, picture.width)[0];
    cells.push_back({analysis::overlay(picture, map), word.word});
  }
  if (lower(options.attention).ends_with(".svg"))
    write_text_atomic(options.attention, report::svg_grid(cells));
  else
    write_file_atomic(options.attention, encode_image(report::image_grid(cells), options.attention));
}

void caption(const CaptionOptions& options) {
  if (!options.attention.empty() && !is_image_name(options.attention) &&
      !lower(options.attention).ends_with(".svg"))
    fail_usage("'", options.attention, "': the name must end in .png, .jpg, .webp or .svg");
  answer::check_beams(options.request.search);
  const PairedModel model(options);
  model.require<tasks::Captioner>("caption");
  const data::ImageFiles images = given_images(options.images);
  if (!options.attention.empty() && images.size() != 1)
    fail_usage("--attention shows the words of one image, there are ", images.size());
  const torch::NoGradGuard no_grad;
  const int64_t broken = model.for_each_batch(images, [&](const train::WalkedBatch& batch) {
    const std::vector<std::string> captions = answer::captions_of(model, batch.images, options.request);
    for (int64_t i = 0; i < batch.size(); ++i) {
      if (!batch.readable(i)) continue;
      const std::string &file = images.name(batch.first + i), &caption = captions[static_cast<size_t>(i)];
      if (!options.attention.empty()) draw_attention(options, model, batch.images, caption);
      if (options.json)
        std::cout << json_text({{"file", file}, {"caption", caption}}) << "\n";
      else
        std::cout << (images.size() > 1 ? one_line(file) + ": " : "") << one_line(caption) << "\n";
    }
  });
  fail_for_broken(broken, images.size());
}

}  // namespace

void add_caption(Arguments& command, Action& action) {
  action = with_options<CaptionOptions>(command, caption);
}

}  // namespace tessera::cli
