// `tessera data encode DATA --weights VAE -o OUT`: images encoded once as latents, to train on.
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/base/command.h"
#include "cli/base/common.h"
#include "cli/base/measure_options.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "data/sources/latents.h"
#include "data/tools/check.h"
#include "io/files/file.h"
#include "io/weights/array_file.h"
#include "open/device.h"
#include "open/image_walk.h"
#include "open/open_task.h"

namespace tessera::cli {
namespace {

struct DataEncodeOptions : ComputeOptions {
  data::SourceConfig source;
  std::string weights, out;
  int64_t size = 0, batch = 16, shard_size = 10000, tile = 0;
  double scale = 0;
  bool no_flip = false, json = false;

  template <class V>
  void visit(V& v) {
    visit_set(v, source);
    v("weights", weights, {.names = "-w", .required = true},
      "the VAE: a run of task vae, a CompVis checkpoint, a file or folder of diffusers");
    v("output", out, {.names = "-o", .required = true, .writes = Writes::file},
      "folder for the latents; must not exist");
    visit_validation(v, source);
    v("class_names", source.class_names, "file with one class name in a line");
    v("size", size, between(1, 8192), "side of the centre crop in pixels (default: from the VAE)");
    v("tile", tile, between(0, 8192), "encode in tiles of this side in pixels, for large images (0: whole)");
    v("scale", scale, between(0, 1e6), "factor for the latents (default: from the VAE, else measured)");
    v("no_flip", no_flip, "without the mirrored images");
    v("shard_size", shard_size, between(1, 10'000'000), "images in a shard");
    v("batch_size", batch, between(1, 4096), "images at a time");
    ComputeOptions::visit(v);
    visit_json(v, json);
  }
};

// A range of a source, from one index on.
class PartOf final : public data::Source {
 public:
  PartOf(const data::Source& whole, int64_t first, int64_t count)
      : whole_(whole), first_(first), count_(count) {}
  int64_t size() const override { return count_; }
  data::RawSample read(int64_t index) const override { return whole_.read(first_ + index); }
  uint64_t fingerprint() const override { return whole_.fingerprint(); }
  std::string describe() const override { return whole_.describe(); }

 private:
  const data::Source& whole_;
  int64_t first_, count_;
};

// Mean and variance of values drawn from normal distributions with different parameters.
class Spread {
 public:
  void add(const torch::Tensor& mean, const torch::Tensor& deviation) {
    const torch::Tensor m = mean.to(torch::kFloat64), d = deviation.to(torch::kFloat64);
    sum_ += m.sum().item<double>();
    squares_ += (m.square() + d.square()).sum().item<double>();
    count_ += static_cast<double>(mean.numel());
  }
  double deviation() const {
    const double mean = sum_ / count_;
    return std::sqrt(std::max(0.0, squares_ / count_ - mean * mean));
  }

 private:
  double sum_ = 0, squares_ = 0, count_ = 0;
};

class Encoder {
 public:
  Encoder(const DataEncodeOptions& options, train::OpenedCodec& opened, int64_t size)
      : options_(options),
        codec_(*opened.codec),
        device_(train::choose_device(options.device)),
        precision_(tasks::parse_precision(options.precision)) {
    data::Preprocess preprocess;
    preprocess.size = size;
    preprocess.crop = 1;
    preprocess.mean = preprocess.std = {0.5, 0.5, 0.5};
    transform_ = data::make_eval_transform(preprocess);
    opened.model->to(device_, train::parameter_type(precision_));
    if (options.tile > 0)
      tiles_ = {.latent_side = options.tile / codec_.factor(), .image_side = options.tile, .overlap = 0.25};
  }

  const data::Transform& transform() const { return *transform_; }
  // Returns [batch, views, 2, channels, rows, columns] for images [batch, 3, height, width].
  torch::Tensor operator()(const torch::Tensor& images) {
    const torch::Tensor plain = moments(images);
    const torch::Tensor views =
        options_.no_flip ? plain.unsqueeze(1) : torch::stack({plain, moments(images.flip({3}))}, 1);
    return views.to(torch::kCPU, torch::kFloat32).contiguous();
  }

 private:
  torch::Tensor moments(const torch::Tensor& images) {
    const torch::Tensor moved = images.to(device_, train::parameter_type(precision_));
    const tasks::AutocastScope autocast(device_, precision_);
    const models::LatentDistribution latent =
        options_.tile > 0 ? models::encode_in_tiles(codec_, moved, tiles_)
                          : models::LatentDistribution::of_moments(codec_.moments(moved).to(torch::kFloat32));
    return torch::stack({latent.mean, latent.deviation()}, 1);
  }

  const DataEncodeOptions& options_;
  models::LatentCodec& codec_;
  torch::Device device_;
  tasks::Precision precision_;
  std::shared_ptr<const data::Transform> transform_;
  models::Tiles tiles_;
};

// Writes one split into shards, which are named after it.
data::LatentShards encode_split(const DataEncodeOptions& options, Encoder& encoder,
                                const data::LatentInfo& info, const data::Source& source,
                                const std::string& split, const std::string& folder, int workers,
                                Spread* spread) {
  data::LatentShards shards;
  const data::ClassLabels* labels = source.class_labels();
  ProgressLine progress(std::cerr, {.label = "encode " + split, .total = source.size()});
  const Interruptible stretch;
  for (int64_t first = 0; first < source.size(); first += options.shard_size) {
    const int64_t count = std::min(options.shard_size, source.size() - first);
    const std::string number = std::to_string(100000 + shards.files.size()).substr(1);
    const std::string name = split + "-" + number + ".safetensors";
    std::vector<ArraySpec> arrays = {
        {"moments", DType::f32, {count, info.views, 2, info.channels, info.rows, info.columns}}};
    if (labels) arrays.push_back({"labels", DType::i64, {count}});
    ArrayFile file(folder + "/" + name, arrays);
    const PartOf part(source, first, count);
    const train::ImageWalk walk{
        .batch = options.batch,
        .workers = workers,
        .broken =
            [](const std::string& error) { fail(error, "; `tessera data check` lists all such images"); },
        .progress = [&](int64_t done) { progress.update(first + done, {}); },
        .interruption = "interrupted: '" + options.out + "' is not written"};
    train::for_each_batch(part, encoder.transform(), walk, [&](const train::WalkedBatch& batch) {
      const torch::Tensor moments = encoder(batch.images);
      const torch::Tensor finite = moments.flatten(1).isfinite().all(1);
      if (!finite.all().item<bool>())
        fail("image ", first + batch.first + (~finite).nonzero()[0].item<int64_t>(), " of ", split,
             " has a latent that is no number");
      if (spread) spread->add(moments.select(2, 0), moments.select(2, 1));
      file.write({static_cast<const std::byte*>(moments.const_data_ptr()), moments.nbytes()});
    });
    for (int64_t i = first; labels && i < first + count; ++i) {
      const int64_t label = labels->label(i);
      file.write(std::as_bytes(std::span(&label, 1)));
    }
    file.commit();
    shards.files.push_back(name);
    shards.samples.push_back(count);
  }
  progress.finish();
  return shards;
}

// Returns the splits of a set of images with at most one class each; throws for any other set.
data::OpenSplits open_images(const DataEncodeOptions& options) {
  data::OpenSplits splits = data::open_splits(options.source);
  const std::vector<std::string> problems = splits.problems();
  if (!splits.train) fail(problems.empty() ? options.source.path + " has no images" : problems.front());
  if (!problems.empty()) fail(problems.front());
  for (const auto* source : {splits.train.get(), splits.validation.get()}) {
    if (source && data::as_latents(source)) fail_usage("'", options.source.path, "' holds latents already");
    if (source && source->class_labels() && source->class_labels()->multi_label())
      fail_usage("'", options.source.path, "' has several classes an image, latents have one");
  }
  return splits;
}

data::LatentInfo info_of(const DataEncodeOptions& options, const train::OpenedCodec& opened, int64_t size) {
  const models::LatentCodec& codec = *opened.codec;
  for (const auto& [option, side] : {std::pair{"--size", size}, {"--tile", options.tile}})
    if (side % codec.factor() != 0)
      fail_usage(option, " ", side, ": the VAE takes multiples of ", codec.factor(), " pixels");
  return {.codec = opened.spec.name,
          .checksum = opened.checksum,
          .scale = options.scale > 0 ? options.scale : opened.scale,
          .factor = codec.factor(),
          .channels = codec.latent_channels(),
          .rows = size / codec.factor(),
          .columns = size / codec.factor(),
          .views = options.no_flip ? 1 : 2};
}

void print_encoded(const DataEncodeOptions& options, const data::LatentInfo& info, int64_t latents,
                   double deviation, bool measured) {
  people(options.json) << one_line(options.out) << ": " << counted(latents, "latent") << " of "
                       << info.channels << "x" << info.rows << "x" << info.columns
                       << (info.views == 2 ? ", each mirrored too" : "") << ", deviation "
                       << fixed(deviation, 4) << ", scale " << fixed(info.scale, 5)
                       << (measured ? " (measured)" : "") << "\n";
  print_outcome(options.json, {{"output", options.out},
                               {"latents", latents},
                               {"shape", {info.channels, info.rows, info.columns}},
                               {"views", info.views},
                               {"deviation", deviation},
                               {"scale", info.scale},
                               {"measured", measured}});
}

// The latents are measured when all of them exist, so the description is written last; only then the folder
// gets its final name.
void encode(const DataEncodeOptions& options) {
  if (std::filesystem::exists(options.out)) fail_usage("'", options.out, "' exists: name a new folder");
  require_apart(options.out, {options.source.path, options.source.val_path});
  const int workers = train::use_threads_for_walk(options.threads);
  const data::OpenSplits splits = open_images(options);
  train::OpenedCodec opened = train::open_codec(options.weights);
  for (const std::string& note : opened.notes) std::cerr << one_line(note) << "\n";
  const int64_t size = options.size > 0 ? options.size : opened.image_size;
  data::LatentInfo info = info_of(options, opened, size);
  const torch::InferenceMode inference;
  Encoder encoder(options, opened, size);
  const std::string partial = options.out + ".partial";
  remove_all(partial);
  make_directories(partial);
  Spread spread;
  try {
    const data::LatentShards train =
        encode_split(options, encoder, info, *splits.train, "train", partial, workers, &spread);
    data::LatentShards validation;
    if (splits.validation)
      validation =
          encode_split(options, encoder, info, *splits.validation, "validation", partial, workers, nullptr);
    const bool measured = info.scale <= 0;
    if (measured) {
      check(spread.deviation() > 0, "the latents are all the same: they have no scale");
      info.scale = 1 / spread.deviation();
    }
    const data::ClassLabels* labels = splits.train->class_labels();
    write_text_atomic(partial + "/" + data::kLatentsFile,
                      data::latents_json(info, labels ? labels->class_names() : std::vector<std::string>{},
                                         train, validation));
    move_directory(partial, options.out);
    print_encoded(options, info, splits.train->size() + (splits.validation ? splits.validation->size() : 0),
                  spread.deviation(), measured);
  } catch (...) {
    remove_all(partial);
    throw;
  }
}

}  // namespace

void add_data_encode(Arguments& command, Action& action) {
  action = with_options<DataEncodeOptions>(command, encode);
}

}  // namespace tessera::cli
