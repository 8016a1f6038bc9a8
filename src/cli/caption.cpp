// `tessera caption IMAGES… --weights FILE`: a text about each image.
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/common.h"
#include "cli/paired_images.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "data/image_files.h"

namespace tessera::cli {
namespace {

struct Options : PairedOptions {
  std::vector<std::string> images;
  tasks::CaptionRequest request;
  bool json = false;
};

void caption(const Options& options) {
  const PairedModel model(options);
  tasks::Captioner& writer = model.captioner("caption");
  const data::ImageFiles images(options.images);
  for (const std::string& note : images.notes()) std::cerr << one_line(note) << "\n";
  const torch::NoGradGuard no_grad;
  const Interruptible stretch;
  std::vector<std::string> broken;
  model.run(images, [&](int64_t first, const torch::Tensor& batch, const std::vector<std::string>& errors) {
    const std::vector<std::string> captions = writer.caption(batch, options.request);
    for (size_t i = 0; i < errors.size(); ++i) {
      const std::string& file = images.paths()[static_cast<size_t>(first) + i];
      if (!errors[i].empty())
        broken.push_back(errors[i]);
      else if (options.json)
        std::cout << json_text({{"file", file}, {"caption", captions[i]}}) << "\n";
      else
        std::cout << (images.size() > 1 ? one_line(file) + ": " : "") << one_line(captions[i]) << "\n";
    }
  });
  fail_for_broken(broken, images.size());
}

}  // namespace

void add_caption(Arguments& command, Action& action) {
  auto options = std::make_shared<Options>();
  command.add("IMAGES", options->images, "images, or folders of images").required();
  command
      .add("--beams", options->request.beams,
           "texts that are followed at a time; 1 = the best token each time")
      .show_default()
      .range(1, 64);
  command.add("--longest", options->request.longest, "tokens at most (default: as many as the model reads)")
      .range(2, 65536);
  command
      .add("--repetition-penalty", options->request.repetition_penalty,
           "what scores of tokens that are there already are divided by")
      .show_default()
      .range(1.0, 100.0);
  command.add("--prompt", options->request.prompt, "words that the text begins with (SimVLM)");
  command.flag("--json", options->json, "one JSON object an image");
  add_paired_options(command, *options);
  action = [options] { caption(*options); };
}

}  // namespace tessera::cli
