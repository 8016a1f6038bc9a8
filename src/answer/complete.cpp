#include "answer/complete.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "core/text.h"
#include "tasks/base/report_blocks.h"

namespace tessera::answer {
namespace {

constexpr int64_t kMostCompletions = 64;  // images of a request

struct PreparedCompletions : Prepared {
  CompletionOptions options;
  torch::Tensor beginnings;
};

class Completer final : public Answerer {
 public:
  explicit Completer(AnswerSetup setup)
      : setup_(std::move(setup)),
        drawing_(*setup_.model),
        transform_(data::make_eval_transform(setup_.model->info().preprocess)) {
    description_.kind = "complete";
    description_.summary = "images drawn patch by patch, from nothing or from a part of the given images";
    description_.inputs = prepared_inputs(transform_->fields().at(0).shape);
    description_.outputs = {{"images", Datatype::uint8, {-1, -1, -1, 3}, "[images, height, width, 3]"},
                            {"of", Datatype::int64, {-1}, "the given image of each"},
                            {"seed", Datatype::int64, {-1}, "the seed of each"}};
    description_.options = describe_options<CompletionOptions>();
    description_.slow = true;
    description_.details = details_of(*setup_.model);
  }
  const Description& description() const override { return description_; }

  std::unique_ptr<Prepared> prepare(const Request& request) const override {
    const torch::InferenceMode inference;
    check_inputs(request, description_);
    if (request.inputs.size() > 1)
      fail_usage("inputs image, pixels and prepared are alternatives: give one of them, or none");
    auto prepared = std::make_unique<PreparedCompletions>();
    prepared->options = read_options<CompletionOptions>(request.options);
    drawing_.check_temperature(prepared->options.temperature);
    const int64_t images = request.inputs.empty() ? 0 : request.inputs[0].shape.at(0);
    prepared->rows = images == 0 ? prepared->options.count
                                 : std::min(images, prepared->options.count) * prepared->options.samples;
    if (prepared->rows > kMostCompletions)
      throw TooLarge(text("a request draws ", prepared->rows, " images, must be at most ", kMostCompletions));
    if (images > 0) {
      prepared->beginnings = read_prepared(request, *transform_, setup_.max_pixels, prepared->options.count);
      prepared->bytes = prepared->beginnings.nbytes();
    }
    static std::atomic<uint64_t> numbers = 0;
    prepared->key = std::to_string(++numbers);  // drawn alone
    return prepared;
  }

  std::vector<Reply> answer(std::span<Prepared* const> requests, const Control& control) override {
    const torch::InferenceMode inference;
    std::vector<Reply> replies;
    for (const Prepared* one : requests)
      replies.push_back(draw(static_cast<const PreparedCompletions&>(*one), control));
    return replies;
  }

 private:
  Reply draw(const PreparedCompletions& asked, const Control& control) const {
    const Completions completions(drawing_, asked.options, asked.beginnings);
    const int64_t total = completions.count() * drawing_.patches();
    const std::vector<Image> images = completions.draw(setup_.batch, [&](int64_t done) {
      if (control.progress) control.progress(done, total, {});
      let_others(control);
      return !control.stopped();
    });
    Reply reply;
    Array pixels{.name = "images", .type = Datatype::uint8}, of{.name = "of", .type = Datatype::int64},
        seeds{.name = "seed", .type = Datatype::int64};
    for (int64_t i = 0; i < std::ssize(images); ++i) {
      const Image& image = images[static_cast<size_t>(i)];
      const int64_t seed = asked.options.seed + i, beginning = completions.beginning_of(i);
      pixels.shape = {std::ssize(images), image.height, image.width, 3};
      pixels.data.append(reinterpret_cast<const char*>(image.pixels.data()), image.pixels.size());
      of.data.append(reinterpret_cast<const char*>(&beginning), sizeof beginning);
      seeds.data.append(reinterpret_cast<const char*>(&seed), sizeof seed);
      nlohmann::ordered_json result = {{"seed", seed}, {"image", to_base64(encode_png(image))}};
      if (!completions.from_nothing()) result["of"] = beginning;
      reply.results.push_back(std::move(result));
    }
    of.shape = seeds.shape = {std::ssize(images)};
    reply.outputs = {std::move(pixels), std::move(of), std::move(seeds)};
    return reply;
  }

  AnswerSetup setup_;
  PatchDrawing drawing_;
  std::shared_ptr<const data::Transform> transform_;
  Description description_;
};

}  // namespace

PatchDrawing::PatchDrawing(const train::ReadyTask& model)
    : model_(model), drawer_(model.require<tasks::DrawsPatches>("a drawing patch by patch")) {
  if (const std::string why = drawer_.drawing_refusal(); !why.empty())
    fail_usage(model.file(), ": these weights draw no images: ", why);
}

void PatchDrawing::check_temperature(double temperature) const {
  if (temperature != 1 && !drawer_.draws_tokens())
    fail_usage("--temperature is for weights that draw tokens; '", model_.file(), "' draws pixels");
}

torch::Tensor PatchDrawing::draw(tasks::DrawRequest request) const {
  request.given = model_.moved(request.given);
  const tasks::AutocastScope autocast = model_.autocast();
  const torch::Tensor images = drawer_.draw(request).to(torch::kCPU, torch::kFloat32);
  if (!images.isfinite().all().item<bool>())
    fail("the drawn pixels are not finite: the training of these weights went astray");
  return images;
}

torch::Tensor PatchDrawing::known_part(const torch::Tensor& images, int64_t known) const {
  return drawer_.known_part(images, known);
}

Image PatchDrawing::picture(const torch::Tensor& image) const {
  return tasks::picture_of(image, model_.info().preprocess);
}

Completions::Completions(const PatchDrawing& drawing, const CompletionOptions& options,
                         torch::Tensor beginnings)
    : drawing_(drawing), options_(options), beginnings_(std::move(beginnings)) {
  const bool free = from_nothing();
  known_ = free ? 0 : std::lround(options.given * static_cast<double>(drawing_.patches()));
  for (int64_t i = 0; i < (free ? options.count : beginnings_.size(0)); ++i)
    for (int64_t s = 0; s < (free ? 1 : options.samples); ++s) of_.push_back(i);
}

std::vector<Image> Completions::draw(int64_t batch, const std::function<bool(int64_t done)>& progress) const {
  std::vector<Image> drawn;
  for (int64_t first = 0; first < count(); first += batch) {
    const int64_t rows = std::min(batch, count() - first);
    std::vector<uint64_t> seeds;
    for (int64_t i = 0; i < rows; ++i) seeds.push_back(static_cast<uint64_t>(options_.seed + first + i));
    const torch::Tensor images = drawing_.draw(
        {.given = given(first, rows),
         .known = known_,
         .steps = options_.steps,
         .temperature = options_.temperature,
         .seeds = seeds,
         .progress = [&](int64_t done) { return progress(first * drawing_.patches() + done * rows); }});
    for (int64_t i = 0; i < rows; ++i) drawn.push_back(drawing_.picture(images[i]));
  }
  return drawn;
}

Image Completions::whole(int64_t beginning) const { return drawing_.picture(beginnings_[beginning]); }

Image Completions::given_part(int64_t beginning) const {
  return drawing_.picture(drawing_.known_part(beginnings_.slice(0, beginning, beginning + 1), known_)[0]);
}

torch::Tensor Completions::given(int64_t first, int64_t count) const {
  const auto [height, width] = drawing_.image_size();
  if (from_nothing()) return torch::zeros({count, 3, height, width});
  const std::vector<int64_t> rows(of_.begin() + first, of_.begin() + first + count);
  return beginnings_.index_select(0, torch::tensor(rows, torch::kInt64));
}

std::shared_ptr<Answerer> open_completions(const AnswerSetup& setup) {
  const auto* drawer = ability_of<tasks::DrawsPatches>(setup.model->task());
  if (!drawer || !drawer->drawing_refusal().empty()) return nullptr;
  return std::make_shared<Completer>(setup);
}

}  // namespace tessera::answer
