// components/metric_generative, metric_reference_files, model_inception_fid, model_autoencoder_kl.

#include <map>
#include <optional>
#include <set>

#include "core/error.h"
#include "data/base/source.h"
#include "eval/frechet.h"
#include "eval/generative.h"
#include "eval/statistics_file.h"
#include "io/files/zip.h"
#include "models/backbones/inception.h"
#include "models/base/codec.h"
#include "tests/parity/model_case.h"
#include "weights/name_tables.h"

namespace tessera::parity::generative_cases {
namespace {

using Json = nlohmann::json;

struct Rows {
  Rows(const Golden& golden, const std::string& name)
      : tensor(golden.tensor("input." + name, torch::kFloat32).contiguous()), width(tensor.size(1)) {}
  std::span<const float> values() const {
    return {tensor.const_data_ptr<float>(), static_cast<size_t>(tensor.numel())};
  }
  eval::Gaussian gaussian() const {
    eval::Moments moments(width);
    moments.add(values());
    return moments.gaussian();
  }
  torch::Tensor tensor;
  int64_t width;
};

eval::InceptionScore inception_score(const Golden& golden, int64_t splits) {
  const torch::Tensor p = golden.tensor("input.is_probs", torch::kFloat64).contiguous();
  eval::InceptionScoreMeter meter(p.size(1), p.size(0), splits);
  meter.add({p.const_data_ptr<double>(), static_cast<size_t>(p.numel())});
  return meter.score();
}

double trace(const eval::Gaussian& gaussian) {
  double sum = 0;
  for (int64_t i = 0; i < gaussian.width(); ++i)
    sum += gaussian.covariance[static_cast<size_t>(i * (gaussian.width() + 1))];
  return sum;
}

// The metric of a key of the golden's results; nothing for one that is not known.
std::optional<std::vector<double>> metric_of(const std::string& key, const Golden& golden) {
  const Rows real(golden, "real"), fake(golden, "fake");
  const int64_t k = golden.config().value("k", int64_t{3}),
                splits = golden.config().value("splits", int64_t{10});
  if (key == "fid" || key == "fid_eig") return {{eval::frechet_distance(real.gaussian(), fake.gaussian())}};
  if (key == "fid_same") return {{eval::frechet_distance(real.gaussian(), real.gaussian())}};
  if (key == "mu_a") return real.gaussian().mean;
  if (key == "cov_a_trace") return {{trace(real.gaussian())}};
  if (key == "fid_singular")
    return {{eval::frechet_distance(Rows(golden, "small_a").gaussian(), Rows(golden, "small_b").gaussian())}};
  if (key == "kid_unbiased") return {{eval::kernel_distance(real.values(), fake.values(), real.width)}};
  if (key == "is_mean") return {{inception_score(golden, splits).mean}};
  if (key == "is_std") return {{inception_score(golden, splits).deviation}};
  if (key == "is_splits") return inception_score(golden, splits).splits;
  if (key == "is_single_split") return {{inception_score(golden, 1).mean}};
  static const std::set<std::string> manifold = {"precision", "recall", "density", "coverage"};
  if (!manifold.contains(key)) return std::nullopt;
  const eval::ManifoldScores scores = eval::manifold_scores(real.values(), fake.values(), real.width, k);
  return {{key == "precision" ? scores.precision
           : key == "recall"  ? scores.recall
           : key == "density" ? scores.density
                              : scores.coverage}};
}

// Tensor `number` of the formula that stands for published weights.
torch::Tensor formula_tensor(uint64_t number, const std::vector<int64_t>& shape, double a, double b) {
  torch::Tensor out = torch::empty(shape);
  auto* values = out.data_ptr<float>();
  for (int64_t i = 0; i < out.numel(); ++i) {
    uint64_t z = ((number << 32) + static_cast<uint64_t>(i) + 1) * 0x9E3779B97F4A7C15;
    z ^= z >> 30;
    z *= 0xBF58476D1CE4E5B9;
    z ^= z >> 27;
    z *= 0x94D049BB133111EB;
    z ^= z >> 31;
    const double u = static_cast<double>(z >> 40) / 16777216.0;
    values[i] = static_cast<float>(a + b * (2 * u - 1));
  }
  return out;
}

std::map<std::string, torch::Tensor> formula_weights(const Golden& golden, Comparison& comparison) {
  std::map<std::string, torch::Tensor> weights;
  uint64_t number = 0;
  for (const Json& line : golden.config().at("tensors")) {
    const auto name = line.at(0).get<std::string>();
    weights[name] = formula_tensor(number++, line.at(1).get<std::vector<int64_t>>(), line.at(2).get<double>(),
                                   line.at(3).get<double>());
  }
  for (const std::string& name : golden.names("param.first.")) {
    const torch::Tensor first = golden.tensor("param.first." + name);
    comparison.equal("first numbers of " + name, weights.at(name).flatten().slice(0, 0, first.numel()),
                     first);
  }
  return weights;
}

// Every 13th row and column, as the golden keeps them.
torch::Tensor sampled(const torch::Tensor& pixels) {
  return pixels.slice(2, 0, pixels.size(2), 13).slice(3, 0, pixels.size(3), 13);
}

CaseResult check_generative_metrics(const Golden& golden) {
  const double relative = golden.meta.value("tolerance", Json::object()).value("rtol", 1e-4);
  Comparison comparison;
  for (const auto& [key, wanted] : golden.config().at("results").items()) {
    if (key == "min_margin") continue;  // how near a distance comes to a radius
    const auto got = metric_of(key, golden);
    comparison.holds(key, got.has_value(), "not a metric of ours");
    if (!got) continue;
    const auto want =
        wanted.is_array() ? wanted.get<std::vector<double>>() : std::vector{wanted.get<double>()};
    // A distance that is zero is so up to the rounding of the traces that are subtracted.
    const double absolute = key == "fid_same" ? 1e-6 : 1e-12;
    comparison.close(key, torch::tensor(*got, torch::kFloat64), torch::tensor(want, torch::kFloat64),
                     relative, absolute);
  }
  return comparison.result();
}

CaseResult check_reference_files(const Golden& golden) {
  Comparison comparison;
  const std::string statistics = golden.directory + "/" + golden.config().at("statistics").get<std::string>(),
                    samples = golden.directory + "/" + golden.config().at("samples").get<std::string>();
  const eval::FeatureStatistics read = eval::read_statistics(statistics);
  const auto numbers = [](const std::vector<double>& values) {
    return torch::tensor(values, torch::kFloat64);
  };
  comparison.equal("mu", numbers(read.pooled.mean), golden.tensor("output.mu"));
  comparison.equal("sigma", numbers(read.pooled.covariance), golden.tensor("output.sigma").flatten());
  comparison.holds("mu_s", read.spatial.has_value() == golden.has("output.mu_s"), "not read");
  if (read.spatial) {
    comparison.equal("mu_s", numbers(read.spatial->mean), golden.tensor("output.mu_s"));
    comparison.equal("sigma_s", numbers(read.spatial->covariance), golden.tensor("output.sigma_s").flatten());
  }
  const auto source = data::open_source({.path = samples, .val_share = 0}, data::Split::train);
  const torch::Tensor images = golden.tensor("output.arr_0");
  comparison.holds("images", source->size() == images.size(0), "another number");
  for (int64_t i = 0; i < std::min(source->size(), images.size(0)); ++i) {
    const Image image = data::decode_sample(source->read(i));
    torch::Tensor got = torch::empty({image.height, image.width, image.channels}, torch::kUInt8);
    std::copy(image.pixels.begin(), image.pixels.end(), got.data_ptr<uint8_t>());
    comparison.equal(text("image ", i), got, images[i]);
    if (golden.has("output.arr_1"))
      comparison.holds(text("label ", i),
                       source->class_labels() && source->class_labels()->label(i) ==
                                                     golden.tensor("output.arr_1")[i].item<int64_t>(),
                       "another label");
  }
  return comparison.result();
}

CaseResult check_inception(const Golden& golden) {
  const Json tolerance = golden.meta.value("tolerance", Json::object());
  const double relative = tolerance.value("rtol", 1e-4), absolute = tolerance.value("atol", 2e-5);
  Comparison comparison;
  const auto weights = formula_weights(golden, comparison);
  models::InceptionFid network;
  models::load_inception(
      network,
      [&](const std::string& name) { return weights.contains(name) ? weights.at(name) : torch::Tensor(); },
      golden.name);
  const torch::Tensor images = golden.tensor("input.images");
  for (const torch::ScalarType dtype : {torch::kFloat32, torch::kFloat64}) {
    network.to(dtype);
    for (const auto& [prefix, protocol] : {std::pair{"tf", models::FidProtocol::tf},
                                           {"pytorch", models::FidProtocol::pytorch},
                                           {"clean", models::FidProtocol::clean}}) {
      const models::InceptionFeatures features = network.forward(models::fid_pixels(images, protocol, dtype));
      const std::map<std::string, torch::Tensor> outputs = {
          {"64", features.early64},
          {"192", features.early192},
          {"768", features.middle768},
          {"2048", features.pooled},
          {"spatial", features.spatial},
          {"logits", features.logits},
          {"logits_unbiased", features.unbiased_logits},
          {"resized", sampled(models::fid_resized(images, protocol, dtype))}};
      for (const std::string& name : golden.names(text(prefix, "/output."))) {
        const std::string what = text(dtype == torch::kFloat64 ? "float64 " : "float32 ", prefix, " ", name);
        comparison.holds(what, outputs.contains(name), "not computed");
        // Pixels reach 255, and one step of Pillow's rounding to float is relative to that.
        const double slack = name == "resized" ? 255 * 1e-6 : absolute;
        if (outputs.contains(name))
          comparison.close(what, outputs.at(name), golden.tensor(text(prefix, "/output.", name)), relative,
                           std::max(slack, absolute));
      }
    }
  }
  return comparison.result();
}

CaseResult check_autoencoder(const Golden& golden) {
  const Json& config = golden.config();
  Value settings;
  for (const auto& [ours, theirs] : {std::pair{"dims", "block_out_channels"},
                                     {"depth", "layers_per_block"},
                                     {"latent_channels", "latent_channels"},
                                     {"groups", "norm_num_groups"},
                                     {"scaling_factor", "scaling_factor"},
                                     {"quant_conv", "use_quant_conv"},
                                     {"attention", "mid_block_add_attention"},
                                     {"image_size", "image"}})
    if (config.contains(theirs)) settings.set(ours, to_value(config[theirs]));
  const models::ModelSpec spec = models::resolve_model("autoencoder_kl", settings);
  models::Tiles tiles;
  if (config.contains("tiles"))
    tiles = {.latent_side = config["tiles"]["tile_latent_min_size"].get<int64_t>(),
             .image_side = config["tiles"]["tile_sample_min_size"].get<int64_t>(),
             .overlap = config["tiles"]["tile_overlap_factor"].get<double>()};
  if (config.contains("names"))
    for (const auto& [form, names] : config["names"].items())
      if (train::our_names(names.get<std::vector<std::string>>(), spec.family) !=
          config["names"].at("compvis").get<std::vector<std::string>>())
        return CaseResult::fail(text("the names of ", form, " are not brought to CompVis'"));
  return compare_model(golden, spec, [&](models::Classifier& model, const auto& input) {
    auto& codec = dynamic_cast<models::LatentCodec&>(*model.backbone);
    const models::LatentDistribution latent = codec.encode(input("x"));
    const torch::Tensor sample = latent.sample(input("noise"));
    NamedOutputs outputs{{"mean", latent.mean},
                         {"logvar", latent.logvar},
                         {"sample", sample},
                         {"decoded", codec.decode(sample)},
                         {"kl", latent.kl()}};
    if (golden.has("input.tiled.x")) {
      const models::LatentDistribution tiled = models::encode_in_tiles(codec, input("tiled.x"), tiles);
      outputs["tiled.mean"] = tiled.mean;
      outputs["tiled.logvar"] = tiled.logvar;
    }
    if (golden.has("input.tiled.z")) {
      outputs["tiled.decoded"] = models::decode_in_tiles(codec, input("tiled.z"), tiles);
      const torch::NoGradGuard no_grad;
      outputs["tiled.whole_decoded"] = codec.decode(input("tiled.z"));
    }
    return outputs;
  });
}

const Registered registered({
    {"generative_metrics", check_generative_metrics, {"components/metric_generative"}},
    {"reference_files", check_reference_files, {"components/metric_reference_files"}},
    {"inception", check_inception, {"components/model_inception_fid"}},
    {"autoencoder", check_autoencoder, {"components/model_autoencoder_kl"}},
});

}  // namespace
}  // namespace tessera::parity::generative_cases
