#include "answer/features.h"

#include "core/text.h"

namespace tessera::answer {
namespace {

Reply vectors_reply(const torch::Tensor& rows) {
  Reply reply;
  const torch::Tensor flat = rows.flatten(1);
  for (int64_t i = 0; i < rows.size(0); ++i) {
    const torch::Tensor row = flat[i];
    const auto* value = row.const_data_ptr<float>();
    reply.results.push_back(
        {{"shape", rows[i].sizes().vec()}, {"features", std::vector<float>(value, value + row.numel())}});
  }
  reply.outputs.push_back(array_of("features", rows));
  return reply;
}

class BackboneVectors final : public ImageRows {
 public:
  explicit BackboneVectors(const AnswerSetup& setup) : ImageRows(setup) {
    description_.kind = "features";
    description_.summary = "a backbone's features of images";
    description_.options = describe_options<FeatureOptions>();
    description_.outputs = {
        {"features", Datatype::fp32, {-1, -1}, "[images, channels], or maps with `tokens`"}};
    rehearse(1);  // throws if the backbone does not read images
  }

 protected:
  void check_options(const Value& options) const override {
    Extractor(read_options<FeatureOptions>(options), model());
  }
  Reply rows(const torch::Tensor& images, const Value& options) override {
    const torch::Tensor out = Extractor(read_options<FeatureOptions>(options), model(), &graphs_)(images);
    require_finite(model(), out);
    return vectors_reply(out);
  }

 private:
  models::GraphedPass graphs_;
};

class TowerVectors final : public ImageRows {
 public:
  explicit TowerVectors(const AnswerSetup& setup)
      : ImageRows(setup), towers_(setup.model->require<tasks::PairedEmbedding>("features")) {
    description_.kind = "features";
    description_.summary = "vectors of images, which are compared with those of texts";
    description_.outputs = {{"features", Datatype::fp32, {-1, -1}, "[images, channels]"}};
  }

 protected:
  void check_options(const Value& options) const override { read_options<NoOptions>(options); }
  Reply rows(const torch::Tensor& images, const Value&) override {
    const torch::Tensor out = image_vectors(model(), towers_, images);
    require_finite(model(), out);
    return vectors_reply(out);
  }

 private:
  tasks::PairedEmbedding& towers_;
};

}  // namespace

Extractor::Extractor(const FeatureOptions& options, const train::ReadyTask& model,
                     models::GraphedPass* graphs)
    : model_(model),
      backbone_(*model.task().backbones().at(0).model),
      graphs_(graphs),
      tokens_(options.tokens) {
  const int64_t blocks = backbone_.block_count();
  if (options.layer >= blocks)
    fail_usage("--layer ", options.layer, ": ", model.info().model.name, " has the blocks 0 to ", blocks - 1);
  block_ = options.layer >= 0 ? options.layer : tokens_ ? blocks - 1 : -1;
}

torch::Tensor Extractor::embedded(const torch::Tensor& images) {
  if (!graphs_) return backbone_.embed(images);
  return graphs_->run(images, {&backbone_},
                      [&backbone = backbone_](const torch::Tensor& in) { return backbone.embed(in); });
}

torch::Tensor Extractor::operator()(const torch::Tensor& images) {
  const torch::Tensor moved = model_.moved(images);
  torch::Tensor out;
  {
    const tasks::AutocastScope autocast = model_.autocast();
    out = block_ < 0 ? embedded(moved) : backbone_.features(moved, {block_}).at(0);
  }
  if (block_ >= 0 && !tokens_) out = out.mean({2, 3});
  return out.to(torch::kCPU, torch::kFloat32).contiguous();
}

torch::Tensor image_vectors(const train::ReadyTask& model, tasks::PairedEmbedding& towers,
                            const torch::Tensor& images) {
  const tasks::AutocastScope autocast = model.autocast();
  return towers.embed_images(model.moved(images)).to(torch::kCPU, torch::kFloat32);
}

std::shared_ptr<Answerer> open_features(const AnswerSetup& setup) {
  if (ability_of<tasks::PairedEmbedding>(setup.model->task())) return std::make_shared<TowerVectors>(setup);
  if (setup.model->task().backbones().empty()) return nullptr;
  try {
    return std::make_shared<BackboneVectors>(setup);
  } catch (const std::exception&) {
    return nullptr;  // a backbone with other inputs than images
  }
}

}  // namespace tessera::answer
