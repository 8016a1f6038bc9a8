#include "tasks/generate/feature_extractor.h"

#include <omp.h>

#include <algorithm>

#include "core/config.h"
#include "core/error.h"
#include "core/text.h"
#include "core/value.h"
#include "io/weights/weight_file.h"
#include "weights/load_tensors.h"

namespace tessera::tasks {
namespace {

torch::ScalarType parameter_type(Precision precision) {
  return precision == Precision::fp64 ? torch::kFloat64 : torch::kFloat32;
}

// Limits ATen's loops to this thread, because many of these run in parallel.
class SerialScope {
 public:
  SerialScope() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~SerialScope() { omp_set_num_threads(before_); }
  SerialScope(const SerialScope&) = delete;
  SerialScope& operator=(const SerialScope&) = delete;

 private:
  int before_;
};

class InceptionTransform final : public data::Transform {
 public:
  explicit InceptionTransform(models::FidProtocol protocol)
      : protocol_(protocol), fields_{{"image", DType::f32, {3, 299, 299}}} {}
  const std::vector<data::Field>& fields() const override { return fields_; }

  void apply(const data::RawSample& sample, RandomStream&, std::span<const data::Slot> out) const override {
    const Image image = data::decode_sample(sample);
    const SerialScope serial;
    const torch::Tensor bytes = torch::from_blob(const_cast<uint8_t*>(image.pixels.data()),
                                                 {1, image.height, image.width, 3}, torch::kUInt8)
                                    .permute({0, 3, 1, 2});
    const torch::Tensor pixels = models::fid_pixels(bytes, protocol_, torch::kFloat32).contiguous();
    std::copy_n(pixels.const_data_ptr<float>(), pixels.numel(), out[0].as<float>());
  }

 private:
  models::FidProtocol protocol_;
  std::vector<data::Field> fields_;
};

torch::Tensor floats(const torch::Tensor& x) { return x.to(torch::kFloat32).contiguous(); }
torch::Tensor shares(const torch::Tensor& logits) {
  return torch::softmax(logits.to(torch::kCPU, torch::kFloat64), 1).contiguous();
}

// Describes the preprocessing.
const char* words_of(models::FidProtocol protocol) {
  switch (protocol) {
    case models::FidProtocol::tf:
      return "tf: as torch-fidelity and ADM, TensorFlow 1's bilinear resizing to 299x299, (x - 128) / 128";
    case models::FidProtocol::pytorch:
      return "pytorch: as pytorch-fid, bilinear resizing without antialiasing to 299x299, 2 x / 255 - 1";
    default:
      return "clean: as clean-fid, Pillow's bicubic resizing to 299x299 on floats, (x - 128) / 128";
  }
}

class InceptionExtractor final : public FeatureExtractor {
 public:
  InceptionExtractor(std::shared_ptr<models::InceptionFid> network, models::FidProtocol protocol,
                     const std::string& checksum, const ExtractorPlace& place)
      : network_(std::move(network)), protocol_(protocol), checksum_(checksum), place_(place) {
    if (place.precision != Precision::fp32 && place.precision != Precision::fp64)
      fail_usage("--precision: Inception-v3 of FID computes in fp32 or fp64, as its published numbers do");
    network_->to(place.device, parameter_type(place.precision));
  }
  std::shared_ptr<const data::Transform> transform() const override {
    return std::make_shared<InceptionTransform>(protocol_);
  }
  ImageFeatures extract(const torch::Tensor& images) override {
    const models::InceptionFeatures found =
        network_->forward(images.to(place_.device, parameter_type(place_.precision)));
    return {floats(found.pooled), floats(found.flat_spatial()), shares(found.unbiased_logits)};
  }
  int64_t width() const override { return 2048; }
  int64_t spatial_width() const override { return 7 * 17 * 17; }
  int64_t classes() const override { return 1008; }
  eval::FeatureOrigin origin() const override {
    return {text("Inception-v3 (FID) ", checksum_), words_of(protocol_)};
  }

 private:
  std::shared_ptr<models::InceptionFid> network_;
  models::FidProtocol protocol_;
  std::string checksum_;
  ExtractorPlace place_;
};

class BackboneExtractor final : public FeatureExtractor {
 public:
  BackboneExtractor(std::shared_ptr<models::Backbone> backbone,
                    std::shared_ptr<models::Classifier> classifier, const data::Preprocess& preprocess,
                    const std::string& name, const std::string& checksum, const ExtractorPlace& place)
      : backbone_(std::move(backbone)),
        classifier_(std::move(classifier)),
        preprocess_(preprocess),
        name_(text(name, " ", checksum)),
        place_(place) {
    backbone_->to(place.device, parameter_type(place.precision));
  }
  std::shared_ptr<const data::Transform> transform() const override {
    return data::make_eval_transform(preprocess_);
  }
  ImageFeatures extract(const torch::Tensor& images) override {
    const torch::NoGradGuard no_grad;
    const torch::Tensor moved = images.to(place_.device, parameter_type(place_.precision));
    const AutocastScope autocast(place_.device, place_.precision);
    if (classes() == 0) return {floats(backbone_->embed(moved)), {}, {}};
    models::Taps taps{.wanted = [](const std::string& tap) { return tap == "embed"; }, .kept = {}};
    const torch::Tensor logits = classifier_->forward(moved, {.taps = &taps});
    return {floats(taps.kept.at("embed")), {}, shares(logits)};
  }
  int64_t width() const override { return backbone_->embed_width(); }
  int64_t classes() const override { return classifier_ ? classifier_->classes() : 0; }
  eval::FeatureOrigin origin() const override {
    std::vector<std::string> parts;
    const Value keys = write_config(preprocess_);
    for (const char* key : {"size", "crop", "crop_mode", "interpolation", "mean", "std"})
      parts.push_back(text(key, " ", toml_text(*keys.find(key))));
    if (place_.precision == Precision::bf16) parts.emplace_back("in bf16");
    if (place_.precision == Precision::int8) parts.emplace_back("in int8");
    return {name_, join(parts, ", ")};
  }

 private:
  std::shared_ptr<models::Backbone> backbone_;
  std::shared_ptr<models::Classifier> classifier_;
  data::Preprocess preprocess_;
  std::string name_;
  ExtractorPlace place_;
};

}  // namespace

std::unique_ptr<FeatureExtractor> make_inception_extractor(std::shared_ptr<models::InceptionFid> network,
                                                           models::FidProtocol protocol,
                                                           const std::string& checksum,
                                                           const ExtractorPlace& place) {
  return std::make_unique<InceptionExtractor>(std::move(network), protocol, checksum, place);
}

std::unique_ptr<FeatureExtractor> make_backbone_extractor(std::shared_ptr<models::Backbone> backbone,
                                                          std::shared_ptr<models::Classifier> classifier,
                                                          const data::Preprocess& preprocess,
                                                          const std::string& name,
                                                          const std::string& checksum,
                                                          const ExtractorPlace& place) {
  return std::make_unique<BackboneExtractor>(std::move(backbone), std::move(classifier), preprocess, name,
                                             checksum, place);
}

std::unique_ptr<FeatureExtractor> open_inception(const std::string& path, models::FidProtocol protocol,
                                                 const ExtractorPlace& place, const std::string& key) {
  const WeightFile file(path, key);
  const std::vector<TensorView>& views = file.tensors();
  const auto find = [&](const std::string& name) {
    return std::ranges::find_if(views, [&](const TensorView& view) { return view.name == name; });
  };
  if (find("Mixed_7c.branch_pool.conv.weight") == views.end()) return nullptr;
  const auto network = std::make_shared<models::InceptionFid>();
  models::load_inception(
      *network,
      [&](const std::string& name) {
        const auto view = find(name);
        return view == views.end() ? torch::Tensor() : train::to_tensor(*view);
      },
      "'" + path + "'");
  return make_inception_extractor(network, protocol, checksum_of_weights(path), place);
}

std::unique_ptr<FeatureExtractor> open_extractor(const WeightsOpener& opener, const std::string& path,
                                                 const ExtractorPlace& place) {
  if (auto inception = open_inception(opener.file_of(path), models::FidProtocol::tf, place)) return inception;
  const OpenedWeights opened = opener.open(path, 0);
  const BackbonePart part = opened.task->backbones().at(0);
  return make_backbone_extractor(part.model, opened.task->classifier(), opened.preprocess, part.spec.name,
                                 opened.checksum, place);
}

}  // namespace tessera::tasks
