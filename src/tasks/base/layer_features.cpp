#include "tasks/base/layer_features.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "core/error.h"
#include "core/text.h"
#include "models/base/encoder.h"

namespace tessera::tasks {
namespace {

std::string layer_name(int64_t block) { return "block " + std::to_string(block + 1); }

// Pools the tokens [batch, tokens, width] of one block to [batch, width].
torch::Tensor token_of(const torch::Tensor& x, const models::TokenPlaces& places, FeatureToken token) {
  switch (token) {
    case FeatureToken::mean:
      return places.patches_of(x).mean(1);
    case FeatureToken::last:
      return places.patches_of(x).select(1, -1);
    case FeatureToken::class_token:
      break;
  }
  const std::vector<int64_t> others = places.others();
  if (others.empty()) fail_usage("--features class: this model has no class token");
  return x.select(1, others.front());
}

// All features of a batch, ordered by block and token, then the input of the class head.
std::vector<LayerFeatures> of_tokens(models::TokenEncoder& encoder, int64_t blocks,
                                     const torch::Tensor& images, const std::vector<FeatureToken>& tokens) {
  models::Taps taps;
  taps.wanted = [](const std::string& name) {
    return name.starts_with("blocks.") && name.find('.', 7) == std::string::npos;
  };
  models::Context context;
  context.taps = &taps;
  const models::Encoded encoded = encoder.encode(encoder.tokenise(images, context), context);
  std::vector<LayerFeatures> out;
  for (int64_t i = 0; i < blocks; ++i)
    for (const FeatureToken token : tokens)
      out.push_back({layer_name(i), name_of(token),
                     token_of(taps.kept.at("blocks." + std::to_string(i)), encoded, token)});
  out.push_back({"head", "read-out", encoder.pool(encoded)});
  return out;
}

std::vector<LayerFeatures> of_maps(models::Backbone& backbone, const torch::Tensor& images,
                                   const std::vector<FeatureToken>& tokens) {
  std::vector<int64_t> blocks;
  for (int64_t i = 0; i < backbone.block_count(); ++i) blocks.push_back(i);
  const std::vector<torch::Tensor> maps = backbone.features(images, blocks);
  std::vector<LayerFeatures> out;
  for (size_t i = 0; i < maps.size(); ++i)
    for (const FeatureToken token : tokens) {
      if (token == FeatureToken::class_token) fail_usage("--features class: this model has no class token");
      out.push_back({layer_name(static_cast<int64_t>(i)), name_of(token),
                     token == FeatureToken::mean ? maps[i].mean({2, 3}) : maps[i].flatten(2).select(2, -1)});
    }
  return out;
}

// Memory backed by an unlinked file, which is removed with the process.
torch::Tensor on_file(int64_t numbers) {
  std::string pattern = (std::filesystem::temp_directory_path() / "tessera_features_XXXXXX").string();
  const int file = ::mkstemp(pattern.data());
  if (file < 0) fail("no temporary file can be made in ", std::filesystem::temp_directory_path().string());
  const int error = ::posix_fallocate(file, 0, numbers * 4);
  ::close(file);
  torch::Tensor memory;
  if (error == 0) memory = torch::from_file(pattern, /*shared=*/true, numbers, torch::kFloat32);
  ::unlink(pattern.c_str());
  if (error != 0)
    fail(pattern, ": ", human_bytes(static_cast<uint64_t>(numbers) * 4),
         " of features: ", std::strerror(error));
  return memory;
}

// Allocates space for `images` rows of features shaped like `like`.
void make_room(FeatureSet& set, const std::vector<LayerFeatures>& like, int64_t images, int64_t most_bytes) {
  int64_t width = 0;
  for (const LayerFeatures& layer : like) width += layer.rows.size(1);
  const int64_t bytes = 4 * width * images;
  if (bytes > most_bytes)
    fail_usage("the features of ", images, " images would take ", human_bytes(static_cast<uint64_t>(bytes)),
               ", at most ", human_bytes(static_cast<uint64_t>(most_bytes)),
               " (--cache): take fewer images by --images");
  const torch::Tensor memory = on_file(width * images);
  int64_t at = 0;
  for (const LayerFeatures& layer : like) {
    const int64_t size = layer.rows.size(1) * images;
    set.layers.push_back({layer.layer, layer.token, memory.slice(0, at, at + size).view({images, -1})});
    at += size;
  }
}

}  // namespace

FeatureSet collect_features(models::Backbone& backbone, const data::Source& source,
                            std::shared_ptr<const data::Transform> transform, const FeatureOptions& options) {
  const torch::NoGradGuard no_grad;
  const data::ClassLabels& labels = data::require_labels(source, "a probe");
  if (labels.multi_label())
    fail_usage("a probe needs one class an image, ", source.describe(), " has several");
  data::LoaderConfig config;
  config.batch_size = options.batch, config.threads = options.loader_threads;
  config.shuffle = false, config.drop_last = false;
  config.max_bad = source.size();
  data::Loader loader(source, std::move(transform), config);
  auto* encoder = dynamic_cast<models::TokenEncoder*>(&backbone);
  FeatureSet set;
  std::vector<int64_t> kept;  // classes of readable images
  int64_t expected = 0;
  while (auto batch = loader.next()) {
    const StreamInputs inputs = to_device(*batch, "validation", options.device, options.precision);
    std::vector<LayerFeatures> features;
    {
      const AutocastScope autocast(options.device, options.precision);
      features = encoder ? of_tokens(*encoder, backbone.block_count(), inputs.at("image"), options.tokens)
                         : of_maps(backbone, inputs.at("image"), options.tokens);
    }
    if (set.layers.empty()) make_room(set, features, source.size(), options.most_bytes);
    std::vector<int64_t> rows;  // without substitutes for broken images
    for (int64_t i = 0; i < batch->size; ++i, ++expected)
      if (batch->indices[static_cast<size_t>(i)] == expected) rows.push_back(i);
    const auto first = static_cast<int64_t>(kept.size()), count = static_cast<int64_t>(rows.size());
    const torch::Tensor index = torch::tensor(rows, torch::kInt64);
    for (size_t l = 0; l < features.size(); ++l)
      set.layers[l]
          .rows.slice(0, first, first + count)
          .copy_(features[l].rows.to(torch::kCPU, torch::kFloat32).index_select(0, index));
    for (const int64_t row : rows) kept.push_back(labels.label(batch->indices[static_cast<size_t>(row)]));
    if (options.progress && !options.progress(expected))
      throw Error(ErrorKind::interrupted, text("interrupted after ", expected, " images"));
  }
  set.broken = loader.bad_images();
  check(!kept.empty(), "there is no image to probe with");
  const auto count = static_cast<int64_t>(kept.size());
  for (LayerFeatures& layer : set.layers) layer.rows = layer.rows.slice(0, 0, count);
  set.labels = torch::tensor(kept, torch::kInt64);
  return set;
}

}  // namespace tessera::tasks
