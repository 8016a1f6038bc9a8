#include "answer/caption.h"

#include "core/error.h"

namespace tessera::answer {
namespace {

class Captions final : public ImageRows {
 public:
  explicit Captions(const AnswerSetup& setup) : ImageRows(setup) {
    description_.kind = "caption";
    description_.summary = "texts about images";
    description_.options = describe_options<CaptionOptions>();
    description_.outputs = {{"caption", Datatype::bytes, {-1}, "a text for each image"}};
  }

 protected:
  void check_options(const Value& options) const override {
    check_beams(read_options<CaptionOptions>(options).request.search);
  }
  Reply rows(const torch::Tensor& images, const Value& options) override {
    std::vector<std::string> texts =
        captions_of(model(), images, read_options<CaptionOptions>(options).request);
    Reply reply;
    for (const std::string& one : texts) reply.results.push_back({{"caption", one}});
    reply.outputs = {texts_of("caption", {std::ssize(texts)}, std::move(texts))};
    return reply;
  }
};

}  // namespace

void check_beams(const tasks::CaptionBeams& beams) {
  if (beams.beams % beams.groups != 0)
    fail_usage("--beam-groups = ", beams.groups, ", must divide --beams = ", beams.beams);
  if (beams.raw_scores && beams.beams == 1) fail_usage("--raw-scores compares beams: give --beams");
}

std::vector<std::string> captions_of(const train::ReadyTask& model, const torch::Tensor& images,
                                     const tasks::CaptionRequest& request) {
  const tasks::AutocastScope autocast = model.autocast();
  return model.require<tasks::Captioner>("caption").caption(model.moved(images), request);
}

std::vector<tasks::WordAttention> word_attention(const train::ReadyTask& model, const torch::Tensor& image,
                                                 const std::string& caption) {
  const tasks::AutocastScope autocast = model.autocast();
  return model.require<tasks::Captioner>("caption").attention(model.moved(image), caption);
}

std::shared_ptr<Answerer> open_captions(const AnswerSetup& setup) {
  if (!ability_of<tasks::Captioner>(setup.model->task())) return nullptr;
  return std::make_shared<Captions>(setup);
}

}  // namespace tessera::answer
