#include "answer/zero_shot.h"

#include <algorithm>
#include <cmath>
#include <list>

#include "answer/features.h"
#include "core/text.h"
#include "data/base/class_names.h"

namespace tessera::answer {
namespace {

constexpr size_t kMostNames = 10'000, kMostKept = 16;
constexpr double kMostTexts = 200'000, kMostTextBytes = 64 << 20;

// True for the word that names OpenAI's templates; among others it would be a template without {}.
bool is_imagenet(const std::vector<std::string>& templates) {
  return templates.size() == 1 && templates[0] == "imagenet";
}

class ZeroShot final : public ImageRows {
 public:
  explicit ZeroShot(const AnswerSetup& setup)
      : ImageRows(setup), towers_(setup.model->require<tasks::PairedEmbedding>("zeroshot")) {
    description_.kind = "zeroshot";
    description_.summary = "which of some classes, given by their names, images have";
    description_.options = describe_options<ZeroShotOptions>();
    description_.outputs = {{"class", Datatype::bytes, {-1, -1}, "[images, best first]"},
                            {"share", Datatype::fp64, {-1, -1}, "shares of the classes, best first"}};
  }

 protected:
  void check_options(const Value& options) const override {
    const auto read = read_options<ZeroShotOptions>(options);
    if (read.names.empty()) fail_usage("option 'class' is missing: name the classes, a list of strings");
    if (read.names.size() > kMostNames || read.templates.size() > kMostNames)
      throw TooLarge(text("options 'class' and 'templates' have at most ", kMostNames, " texts each"));
    check_texts(read, own_);
    if (!is_imagenet(read.templates))
      for (const std::string& pattern : read.templates) tasks::fill_template(pattern, "x");
  }

  Reply rows(const torch::Tensor& images, const Value& options) override {
    ZeroShotOptions read = read_options<ZeroShotOptions>(options);
    if (read.names.empty()) read.names = {"a", "b"};  // a rehearsal
    const NamedClassRows& classes = kept(read);
    const auto [shares, best] = classes.best(images, read.top);
    Reply reply;
    std::vector<std::string> words;
    for (int64_t i = 0; i < images.size(0); ++i) {
      reply.results.push_back({{"predictions", json_of(shares[i], best[i], classes.names())}});
      for (int64_t rank = 0; rank < best.size(1); ++rank)
        words.push_back(classes.names()[static_cast<size_t>(best[i][rank].item<int64_t>())]);
    }
    reply.outputs = {texts_of("class", best.sizes().vec(), std::move(words)),
                     array_of("share", shares.to(torch::kFloat64))};
    return reply;
  }

 private:
  // Caches the classes of recent requests, since texts take longer to embed than an image.
  const NamedClassRows& kept(const ZeroShotOptions& options) {
    const std::string key = join(options.names, "\n") + "\n\n" + join(options.templates, "\n");
    const auto found = std::ranges::find(kept_, key, &Kept::key);
    if (found != kept_.end()) {
      kept_.splice(kept_.begin(), kept_, found);
      return *kept_.front().rows;
    }
    kept_.push_front(
        {key, std::make_unique<NamedClassRows>(model(), towers_, options.names, options.templates)});
    if (kept_.size() > kMostKept) kept_.pop_back();
    return *kept_.front().rows;
  }

  struct Kept {
    std::string key;
    std::unique_ptr<NamedClassRows> rows;
  };
  tasks::PairedEmbedding& towers_;
  const std::vector<std::string> own_ =
      towers_.templates();  // the weights'; requests change them for a while
  std::list<Kept> kept_;
};

}  // namespace

void check_texts(const ZeroShotOptions& options, const std::vector<std::string>& own) {
  const auto names = static_cast<double>(options.names.size());
  double name_bytes = 0, texts = 0, bytes = 0;
  for (const std::string& name : options.names) name_bytes += static_cast<double>(name.size());
  const auto add = [&](const std::string& pattern) {
    size_t places = 0;
    for (size_t at = 0; (at = pattern.find("{}", at)) != std::string::npos; at += 2) ++places;
    texts += names;
    bytes += static_cast<double>(places) * name_bytes + names * static_cast<double>(pattern.size());
  };
  std::ranges::for_each(options.templates.empty()        ? own
                        : is_imagenet(options.templates) ? tasks::imagenet_templates()
                                                         : options.templates,
                        add);
  if (texts > kMostTexts || bytes > kMostTextBytes)
    throw TooLarge(text("options 'class' and 'templates' make ", std::llround(texts), " texts of ",
                        std::llround(bytes), " bytes, must be at most ", std::llround(kMostTexts), " of ",
                        std::llround(kMostTextBytes), " bytes"));
}

NamedClassRows::NamedClassRows(const train::ReadyTask& model, tasks::PairedEmbedding& towers,
                               std::vector<std::string> names, const std::vector<std::string>& templates,
                               tasks::CutTexts* cut)
    : model_(model), towers_(towers), names_(std::move(names)) {
  const std::vector<std::string> own = towers.templates();
  if (!templates.empty()) towers.set_templates(templates);
  const std::vector<std::string> used = towers.templates();
  if (!templates.empty()) towers.set_templates(own);
  const tasks::AutocastScope autocast = model.autocast();
  rows_ = tasks::class_rows(
      towers, data::spoken_names(names_), used,
      [&](const std::vector<std::string>& texts) { return towers.embed_texts(texts, cut); });
  rows_.rows = rows_.rows.to(torch::kCPU, torch::kFloat32);
}

NamedClassRows::Best NamedClassRows::best(const torch::Tensor& images, int64_t top) const {
  const torch::Tensor rows = image_vectors(model_, towers_, images);
  require_finite(model_, rows);
  const int64_t most = std::min<int64_t>(top, std::ssize(names_));
  const auto [shares, classes] =
      (towers_.similarity_scale() * rows_.similarities(towers_, rows)).softmax(1).topk(most, 1);
  return {shares, classes};
}

nlohmann::ordered_json json_of(const torch::Tensor& shares, const torch::Tensor& classes,
                               const std::vector<std::string>& names) {
  nlohmann::ordered_json lines = nlohmann::ordered_json::array();
  for (int64_t rank = 0; rank < classes.size(0); ++rank)
    lines.push_back({{"class", names[static_cast<size_t>(classes[rank].item<int64_t>())]},
                     {"share", shares[rank].item<double>()}});
  return lines;
}

std::shared_ptr<Answerer> open_zero_shot(const AnswerSetup& setup) {
  if (!ability_of<tasks::PairedEmbedding>(setup.model->task())) return nullptr;
  return std::make_shared<ZeroShot>(setup);
}

}  // namespace tessera::answer
