#include "answer/generate.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "core/memory.h"
#include "core/text.h"
#include "data/transforms/resize.h"
#include "ops/inference.h"
#include "tasks/base/report_blocks.h"
#include "tasks/generate/generator_pictures.h"
#include "weights/diffusers_folder.h"

namespace tessera::answer {
namespace {

constexpr int64_t kMostOfRequest = 64, kMostScale = 4;  // number of images, and the side relative to training
constexpr int kPreviewSide = 128;

struct PreparedDrawing : Prepared {
  explicit PreparedDrawing(const Drawing& settings) : drawing(settings) {}
  std::vector<AskedImage> asked;
  Drawing drawing;
};

// The fields that a request to a network of task diffuse may set.
std::vector<OptionField> drawing_fields(DrawingOptions& options) {
  std::vector<OptionField> fields = option_fields(options);
  std::erase_if(fields, [](const OptionField& field) { return field.key == "temperature"; });
  return fields;
}

class Generation final : public Answerer {
 public:
  Generation(AnswerSetup setup, Drawing drawing) : setup_(std::move(setup)), drawing_(std::move(drawing)) {
    DrawingOptions options;
    description_ = {.kind = "generate",
                    .summary = "images out of noise",
                    .inputs = {},
                    .alternatives = {},
                    .outputs = {{"images", Datatype::uint8, {-1, -1, -1, 3}, "[images, height, width, 3]"},
                                {"class", Datatype::bytes, {-1}, "the class of each"},
                                {"seed", Datatype::int64, {-1}, "the seed of each"}},
                    .options = describe_options(drawing_fields(options)),
                    .slow = true,
                    .details = details_of(*setup_.model)};
  }
  const Description& description() const override { return description_; }

  std::unique_ptr<Prepared> prepare(const Request& request) const override {
    const torch::InferenceMode inference;
    check_inputs(request, description_);
    auto prepared = std::make_unique<PreparedDrawing>(drawing_);
    DrawingOptions options;
    set_options(drawing_fields(options), request.options);
    refuse_unread(request.options, options);
    prepared->asked = asked_images(options, drawing_.generator(), [](int64_t count) {
      if (count > kMostOfRequest)
        throw TooLarge(text("a request draws ", count, " images, must be at most ", kMostOfRequest));
    });
    Drawing& drawing = prepared->drawing;
    drawing.set_size(options.size);
    check_size(drawing.size());
    drawing.set_sampling(options, /*inverts=*/false);
    prepared->rows = std::ssize(prepared->asked);
    prepared->bytes = static_cast<size_t>(prepared->rows * drawing.size().height * drawing.size().width *
                                          drawing.factor() * drawing.factor() * 3);
    static std::atomic<uint64_t> numbers = 0;
    prepared->key = std::to_string(++numbers);  // drawn alone
    return prepared;
  }

  std::vector<Reply> answer(std::span<Prepared* const> requests, const Control& control) override {
    const torch::InferenceMode inference;
    std::vector<Reply> replies;
    for (Prepared* one : requests) replies.push_back(draw(static_cast<PreparedDrawing&>(*one), control));
    return replies;
  }

 private:
  void refuse_unread(const Value& given, const DrawingOptions& options) const {
    for (const auto& [key, value] : given.as_table())
      if (const std::string why = drawing_.unread(options.sampler, key); !why.empty())
        fail_usage("option '", key, "' ", why);
  }

  void check_size(models::Extent size) const {
    const models::Extent trained = trained_size(setup_.model->info());
    if (size.height > kMostScale * trained.height || size.width > kMostScale * trained.width)
      throw TooLarge(text("size ", size.height, "x", size.width, ", must be at most ", kMostScale,
                          " times the trained ", trained.height, "x", trained.width));
  }

  Reply draw(PreparedDrawing& prepared, const Control& control) {
    std::vector<Reply> pieces;
    for (int64_t first = 0; first < prepared.rows; first += setup_.batch) {
      const int64_t count = std::min(setup_.batch, prepared.rows - first);
      pieces.push_back(draw_batch(prepared, first, count, control));
    }
    return joined(std::move(pieces));
  }

  Reply draw_batch(PreparedDrawing& prepared, int64_t first, int64_t count, const Control& control) {
    const std::span<const AskedImage> asked(prepared.asked.data() + first, static_cast<size_t>(count));
    const int64_t batches = (prepared.rows + setup_.batch - 1) / setup_.batch, done = first / setup_.batch;
    const auto after = [&](int64_t step, int64_t steps, const torch::Tensor& x) {
      if (control.progress && step >= 0)
        control.progress(done * steps + step + 1, batches * steps, [&] { return preview(x); });
      let_others(control);
      return !control.stopped();
    };
    return reply_of(prepared.drawing.draw(asked, /*moments=*/0, after).generated.images, asked);
  }

  Reply reply_of(const torch::Tensor& images, std::span<const AskedImage> asked) const {
    Reply reply;
    Array pixels{.name = "images", .type = Datatype::uint8}, names{.name = "class", .type = Datatype::bytes},
        seeds{.name = "seed", .type = Datatype::int64};
    for (size_t i = 0; i < asked.size(); ++i) {
      const Image picture = drawing_.picture(images[static_cast<int64_t>(i)]);
      pixels.shape = {std::ssize(asked), picture.height, picture.width, 3};
      pixels.data.append(reinterpret_cast<const char*>(picture.pixels.data()), picture.pixels.size());
      names.texts.push_back(asked[i].caption);
      const auto seed = static_cast<int64_t>(asked[i].seed);
      seeds.data.append(reinterpret_cast<const char*>(&seed), sizeof seed);
      reply.results.push_back(
          {{"class", asked[i].caption}, {"seed", seed}, {"image", to_base64(encode_png(picture))}});
    }
    names.shape = seeds.shape = {std::ssize(asked)};
    reply.outputs = {std::move(pixels), std::move(names), std::move(seeds)};
    return reply;
  }

  // Returns a small version of a step's first image. Latents are not decoded: that takes longer than a step.
  Image preview(const torch::Tensor& x) const {
    if (!x.defined() || x.dim() != 4) return {};
    torch::Tensor first = x[0].to(torch::kCPU, torch::kFloat32).slice(0, 0, 3);
    if (first.size(0) < 3) first = first.slice(0, 0, 1).expand({3, -1, -1});
    first = first / std::max(1.0F, first.abs().max().item<float>());
    return data::shrunk_to_fit(tasks::picture_of(first, tasks::decoded_pixels()), kPreviewSide);
  }

  AnswerSetup setup_;
  Drawing drawing_;  // settings are those of each request
  Description description_;
};

}  // namespace

std::string vae_of_pipeline(const std::string& weights) {
  const std::string folder = train::pipeline_of(weights) + "/vae";
  return train::diffusers_weights(folder).empty() ? "" : folder;
}

Decoder::Decoder(train::OpenedCodec codec, const tasks::Generator& generator, const std::string& file,
                 torch::Device device, int64_t tile)
    : codec_(std::move(codec)), tile_(tile) {
  tasks::require_codec(generator, codec_, "'" + file + "'");
  if (tile % codec_.codec->factor() != 0)
    fail_usage("--tile ", tile, ": the VAE takes multiples of ", codec_.codec->factor(), " pixels");
  scale_ = generator.latents ? generator.latents->scale : codec_.require_scale();
  codec_.model->to(device);
}

torch::Tensor Decoder::decoded(const torch::Tensor& images) const {
  if (!codec_.codec) return images;
  const torch::Tensor latents = images.to(torch::kFloat32) / scale_;
  if (tile_ == 0) return codec_.codec->decode(latents);
  // Tiles are for little memory.
  return_freed_memory();
  ops::InferenceSettings sparing = ops::inference_settings();
  sparing.keep_packed = false;
  const ops::InferenceScope scope(sparing);
  return models::decode_in_tiles(*codec_.codec, latents,
                                 {.latent_side = tile_ / codec_.codec->factor(), .image_side = tile_});
}

Image Decoder::picture(const torch::Tensor& decoded, const tasks::Generator& generator) const {
  return tasks::picture_of(decoded, codec_.codec ? tasks::decoded_pixels() : generator.preprocess);
}

std::shared_ptr<Answerer> open_generation(const AnswerSetup& setup, const std::string& path,
                                          std::vector<std::string>& notes) {
  const tasks::Generator* generator = tasks::generator_of(setup.model->task());
  if (!generator) return nullptr;
  Drawing drawing(*setup.model);
  if (const std::string vae = vae_of_pipeline(path); !vae.empty()) {
    train::OpenedCodec codec = train::open_codec(vae);
    for (const std::string& note : codec.notes) notes.push_back(note);
    drawing.set_codec(std::move(codec), 0);
  }
  if (!drawing.decoder().codec().codec && drawing.channels() != 3) return nullptr;  // latents are no images
  return std::make_shared<Generation>(setup, std::move(drawing));
}

}  // namespace tessera::answer
