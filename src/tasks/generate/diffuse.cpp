#include "tasks/generate/diffuse.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "models/base/capability.h"
#include "models/base/family.h"
#include "tasks/base/exported.h"
#include "tasks/base/task_kind.h"
#include "tasks/base/validation_pass.h"
#include "tasks/generate/generator_fid.h"
#include "tasks/generate/generator_pictures.h"

namespace tessera::tasks {
namespace {

constexpr int64_t kLevels = 10;  // noise levels of the validation loss

std::vector<std::string> names_in(const Value& metadata) {
  std::vector<std::string> names;
  if (const Value* list = metadata.find("class_names"); list && list->is_array())
    for (const Value& name : list->as_array())
      if (name.is_string()) names.push_back(name.as_string());
  return names;
}

Value value_of(const data::LatentInfo& info) {
  return Value(Value::Table{{"codec", info.codec},
                            {"checksum", info.checksum},
                            {"scale", info.scale},
                            {"factor", info.factor},
                            {"channels", info.channels},
                            {"rows", info.rows},
                            {"columns", info.columns}});
}

std::optional<data::LatentInfo> latents_in(const Value& metadata) {
  const Value* table = metadata.find("latents");
  if (!table || !table->is_table()) return std::nullopt;
  const auto number = [&](const char* key) {
    const Value* value = table->find(key);
    if (!value || !value->is_int() || value->as_int() < 1)
      fail("tessera.latents has no ", key, " that is a positive number");
    return value->as_int();
  };
  const Value *codec = table->find("codec"), *checksum = table->find("checksum"),
              *scale = table->find("scale");
  if (!codec || !codec->is_string() || !checksum || !checksum->is_string() || !scale || !scale->is_number() ||
      !(scale->as_double() > 0))
    fail("tessera.latents must have codec, checksum and scale");
  return data::LatentInfo{.codec = codec->as_string(),
                          .checksum = checksum->as_string(),
                          .scale = scale->as_double(),
                          .factor = number("factor"),
                          .channels = number("channels"),
                          .rows = number("rows"),
                          .columns = number("columns")};
}

// Averages over images that were measured.
std::vector<float> of_measured(std::vector<float> values) {
  std::erase_if(values, [](float value) { return std::isnan(value); });
  return values;
}

// The random draws for one sample: its time, and whether its class is dropped.
struct SampleDraw {
  double time = 0;
  bool dropped = false;
};

class Diffuse final : public Task {
 public:
  explicit Diffuse(const TaskSetup& setup)
      : config_(read_task<DiffuseConfig>(setup.settings)),
        preprocess_(setup.preprocess),
        augment_(setup.augment),
        train_(setup.train),
        validation_(setup.validation),
        spec_(setup.model) {
    if (train_) diffusion::refuse_unread_keys(config_);
    generator_.backbone = setup.build_backbone(setup.model);
    generator_.network =
        &models::require<models::Denoiser>(*generator_.backbone, spec_.family, "task diffuse");
    generator_.process = std::make_shared<diffusion::NoiseProcess>(
        config_, network().output_channels() > network().channels());
    generator_.preprocess = preprocess_;
    generator_.class_names = names_in(setup.metadata);
    generator_.latents = latents_in(setup.metadata);
    if (const auto* latents = data::as_latents(train_.get())) generator_.latents = latents->latents();
    check_latents(setup.file);
    // A run that is only described: inputs without three channels are latents.
    const models::Extent image = models::extent_of(*spec_.settings.find("image_size"), "image_size");
    if (!train_ && setup.file.empty() && !generator_.latents && network().channels() != 3) {
      data::LatentInfo& latents = generator_.latents.emplace();
      latents.scale = 1, latents.channels = network().channels();
      latents.rows = image.height, latents.columns = image.width;
    }
    check_data();
    if (train_) generator_.class_names = data::require_labels(*train_, "task diffuse").class_names();
    if (!generator_.class_names.empty() && std::ssize(generator_.class_names) != network().label_count())
      fail_usage("model.labels = ", network().label_count(), ", the data has ", generator_.class_names.size(),
                 " classes");
    if (train_ && config_.label_dropout > 0 && !network().has_null_label())
      fail_usage("task.label_dropout = ", config_.label_dropout,
                 " needs a label for none (model.null_label), must be 0 without it");
    height_ = image.height, width_ = image.width;
    if (const auto& latents = generator_.latents;
        train_ && latents && (latents->rows != height_ || latents->columns != width_))
      fail_usage("model.image_size = ", height_, " and preprocess.size must be the side of the latents, ",
                 latents->rows, " x ", latents->columns);
    open_pictures(setup);
    if (train_ && !config_.fid.classifier.empty() && setup.opener) open_fid(setup);
    for (const int64_t side : setup.sides)
      if (train_ && (side != height_ || side != width_))
        fail_usage("train.sizes holds ", side, ": task diffuse takes images of model.image_size = ", height_);
  }

  const Generator& generator() const { return generator_; }

  std::vector<Part> parts() const override { return {{"", generator_.backbone}}; }
  std::vector<BackbonePart> backbones() const override { return {{"", generator_.backbone, spec_}}; }
  int64_t macs(int64_t side) const override { return generator_.backbone->macs(side, side); }
  bool takes_outputs_of(const Value& metadata) const override {
    return names_in(metadata) == generator_.class_names;
  }
  std::vector<std::string> output_names() const override { return {"y_embedder.embedding_table.weight"}; }
  std::string outputs() const override { return text("table of ", network().label_count(), " classes"); }
  Value metadata() const override {
    Value out;
    const auto& names = generator_.class_names;
    if (!names.empty()) out.set("class_names", Value::Array(names.begin(), names.end()));
    if (generator_.latents) out.set("latents", value_of(*generator_.latents));
    return out;
  }
  std::string metadata_conflict(const Value& stored) const override {
    if (!takes_outputs_of(stored)) return "it was trained on other classes than the data has";
    const auto theirs = latents_in(stored);
    const bool same = theirs.has_value() == generator_.latents.has_value() && !of_another_vae(theirs);
    return same ? "" : "it was trained on latents of another VAE than the data are";
  }
  // VAEs that differ only in their decoders have the same latents, so this is not an error.
  std::string metadata_warning(const Value& stored) const override {
    const auto theirs = latents_in(stored);
    if (!of_another_vae(theirs)) return "";
    const auto name = [](const data::LatentInfo& vae) {
      return text(vae.codec, " ", vae.checksum.substr(0, 8), ", scale ", shortest(vae.scale));
    };
    return text("it was trained on latents of another VAE (", name(*theirs), ") than the data are (",
                name(*generator_.latents), "): its first samples will look wrong");
  }

  std::vector<StreamSpec> streams() const override {
    return {{.name = "train", .source = train_, .transform = [this](int64_t side) {
               return labelled(inputs_of(train_, side, /*training=*/true));
             }}};
  }
  StreamSpec validation() const override {
    return {.name = "validation", .source = validation_, .transform = [this](int64_t side) {
              return labelled(inputs_of(validation_, side, /*training=*/false));
            }};
  }

  // Adds the fields "time", "noise" and "condition", the class or none.
  void prepare(std::span<data::Batch> batches, const StepKey& key) const override {
    data::Batch& batch = batches[0];
    add_noise(
        batch,
        [&](int64_t, RandomStream& stream) {
          const double time = process().time_of(stream.uniform());
          return SampleDraw{.time = time, .dropped = stream.chance(config_.label_dropout)};
        },
        [&](int64_t sample) {
          return RandomStream(key.seed, "diffusion noise", static_cast<uint64_t>(key.step),
                              static_cast<uint64_t>(batch.first + sample));
        });
  }

  Loss loss(const Inputs& inputs, const models::Context& context, Collective&) override {
    return {each_loss(inputs.main(), context).sum(), {}};
  }
  bool repeats_its_calls() const override { return true; }

  std::vector<std::unique_ptr<Evaluator>> evaluators() override {
    return one_evaluator(*this, [this](const EvaluateOptions& options) { return evaluate(options); });
  }
  MetricInfo main_metric() const override { return {"loss", Unit::number, false}; }
  // One call of the network; the caller adds guidance and the sampler.
  std::vector<ExportedPart> exported(int64_t side) override {
    onnx::FunctionInput x = image_input(network().channels(), side, side), time = x, labels = x;
    x.name = "x";
    const int64_t classes = network().label_count();
    time = {"time", {2}, [](const std::vector<int64_t>& shape, uint64_t draw) {
              return torch::arange(1, 1 + shape[0], torch::kFloat32).mul(static_cast<double>(7 + draw));
            }};
    labels = {"labels", {2}, [classes](const std::vector<int64_t>& shape, uint64_t draw) {
                return torch::arange(shape[0], torch::kInt64)
                    .add(static_cast<int64_t>(draw))
                    .remainder(std::max<int64_t>(1, classes));
              }};
    return {exported_part("", {x, time, labels}, {"prediction"}, [this](const auto& in) {
      return std::vector<torch::Tensor>{network().denoise(in[0], in[1], in[2])};
    })};
  }

 private:
  models::Denoiser& network() const { return *generator_.network; }
  const diffusion::NoiseProcess& process() const { return *generator_.process; }
  data::Preprocess sized(int64_t side) const {
    data::Preprocess preprocess = preprocess_;
    preprocess.size = side;
    return preprocess;
  }
  bool of_another_vae(const std::optional<data::LatentInfo>& theirs) const {
    return theirs && generator_.latents &&
           (theirs->checksum != generator_.latents->checksum || theirs->scale != generator_.latents->scale);
  }
  // Field "image", or "latent" for stored latents.
  std::shared_ptr<const data::Transform> inputs_of(const std::shared_ptr<const data::Source>& source,
                                                   int64_t side, bool training) const {
    if (const auto* latents = data::as_latents(source.get()))
      return data::make_latent_transform(latents->latents(), training);
    if (!source && generator_.latents) return data::make_latent_transform(*generator_.latents, training);
    return training ? data::make_train_transform(sized(side), augment_)
                    : data::make_eval_transform(sized(side));
  }
  const char* input() const { return generator_.latents ? "latent" : "image"; }
  std::shared_ptr<const data::Transform> labelled(std::shared_ptr<const data::Transform> images) const {
    return data::join_transforms(
        {std::move(images), data::make_label_transform(network().label_count(), /*multi_label=*/false)});
  }

  // Without their VAE, latents cannot be decoded to images. Runs that are only described open no files.
  void open_pictures(const TaskSetup& setup) {
    if (!config_.vae.empty() && train_ && !generator_.latents)
      fail_usage("task.vae decodes latents, ", train_->describe(), " holds images");
    const bool opens = train_ && setup.opener && !config_.vae.empty();
    if (generator_.latents ? !opens : network().channels() != 3) return;
    pictures_ = std::make_unique<GeneratorPictures>(
        generator_, models::Extent{height_, width_},
        opens ? train::open_codec(config_.vae,
                                  [&](const std::string& path) { return setup.opener->file_of(path); })
              : train::OpenedCodec(),
        PictureSettings{.sampler = {.steps = process().most_steps(config_.sample_steps)},
                        .cfg = config_.sample_cfg},
        "the run");
  }
  void open_fid(const TaskSetup& setup) {
    if (!pictures_)
      fail_usage(
          "task.fid.classifier: latents are no images; task.vae must name their VAE, which decodes them");
    if (generator_.latents && config_.fid.data.empty())
      fail_usage("task.fid.data must name the real images, which the training latents are made of");
    std::shared_ptr<const data::Source> real = train_;
    if (!config_.fid.data.empty()) real = data::open_source({.path = config_.fid.data}, data::Split::train);
    if (data::as_latents(real.get()))
      fail_usage("task.fid.data: ", real->describe(), " holds latents, must hold images");
    const auto open = [opener = setup.opener](const std::string& path, const ExtractorPlace& place) {
      return open_extractor(*opener, path, place);
    };
    fid_ = std::make_unique<GeneratorFid>(open, config_.fid, real);
  }

  // Training, evaluation and decoding must use latents of the same VAE and scale.
  void check_latents(const std::string& file) {
    const auto* measured = data::as_latents(validation_.get());
    if (!validation_ || (!measured && !generator_.latents)) return;
    const std::string name = train_ ? train_->describe() : "'" + file + "'";
    if (!generator_.latents && (train_ || network().channels() == 3))
      fail_usage(name, " is of pixels, ", validation_->describe(), " holds latents");
    if (!measured) fail_usage(name, " is of latents, ", validation_->describe(), " holds images");
    if (generator_.latents)
      data::require_same_codec(*generator_.latents, name, measured->latents(), validation_->describe());
    else
      generator_.latents = measured->latents();  // files of other programs do not record it
  }

  void check_data() const {
    if (!train_) return;
    if (data::require_labels(*train_, "task diffuse").multi_label())
      fail_usage("task diffuse needs one class an image, ", train_->describe(), " has several");
    const int64_t channels = generator_.latents ? generator_.latents->channels : 3;
    if (network().channels() != channels)
      fail_usage("model.channels = ", network().channels(), ", ", generator_.latents ? "latents" : "images",
                 " have ", channels);
  }

  // `draw` returns a sample's draws from its random stream, which then provides the noise.
  template <class Draw, class StreamOf>
  void add_noise(data::Batch& batch, const Draw& draw, const StreamOf& stream_of) const {
    const data::Field image = batch.at(input()).field;
    const int64_t numbers = image.numel();
    const auto noise = batch.add({"noise", DType::f32, image.shape}).template values<float>();
    const auto times = batch.add({"time", DType::f32, {}}).template values<float>();
    const auto conditions = batch.add({"condition", DType::i64, {}}).template values<int64_t>();
    const auto labels = batch.values<int64_t>("label");
    for (int64_t i = 0; i < batch.size; ++i) {
      RandomStream stream = stream_of(i);
      const auto at = static_cast<size_t>(i);
      const SampleDraw drawn = draw(i, stream);
      times[at] = static_cast<float>(drawn.time);
      conditions[at] = drawn.dropped ? network().null_label() : labels[at];
      float* value = noise.data() + i * numbers;
      for (int64_t k = 0; k < numbers; ++k) value[k] = static_cast<float>(stream.normal());
    }
  }

  // Returns the loss of each sample, [batch].
  torch::Tensor each_loss(const StreamInputs& batch, const models::Context& context) {
    const torch::Tensor& clean = batch.at(input());
    const torch::Tensor& noise = batch.at("noise");
    const torch::Tensor& time = batch.at("time");
    const torch::Tensor x = process().noised(clean, noise, time);
    return process().loss(network().denoise(x, time, batch.at("condition"), context), clean, noise, time);
  }

  Findings evaluate(const EvaluateOptions& options);
  torch::Tensor measured_bits(const StreamInputs& batch, int64_t first, int64_t measured);
  void describe_levels(const SampleRows& rows, Findings& out) const;
  double measured_fid(const EvaluateOptions& options);
  report::PicturesBlock drawn(const EvaluateOptions& options);

  DiffuseConfig config_;
  data::Preprocess preprocess_;
  data::AugmentConfig augment_;
  std::shared_ptr<const data::Source> train_, validation_;
  models::ModelSpec spec_;
  int64_t height_ = 0, width_ = 0;
  Generator generator_;
  std::unique_ptr<GeneratorPictures> pictures_;  // null for latents without their VAE
  std::unique_ptr<GeneratorFid> fid_;            // null if not measured
};

// Time and noise of a validation image depend only on its index, so losses of two steps are comparable.
// Consecutive images have times in different tenths of the range.
Findings Diffuse::evaluate(const EvaluateOptions& options) {
  const int64_t with_bits = options.wants("bits") ? std::numeric_limits<int64_t>::max() : config_.bits;
  SampleRows rows(3);  // loss, noise level, bits per dimension
  Findings out = evaluate_rows(options, validation(), rows, [&](data::Batch& loaded) {
    const auto number = [&](int64_t sample) { return loaded.first + sample; };
    add_noise(
        loaded,
        [&](int64_t sample, RandomStream& stream) {
          const double share = (static_cast<double>(number(sample) % kLevels) + stream.uniform()) / kLevels;
          return SampleDraw{.time = process().time_of(share)};
        },
        [&](int64_t sample) {
          return RandomStream(0, "validation noise", static_cast<uint64_t>(number(sample)));
        });
    const StreamInputs batch = to_device(loaded, options);
    torch::Tensor losses;
    {
      const AutocastScope autocast(options.device, options.precision);
      losses = each_loss(batch, {});
    }
    return torch::stack({losses.to(torch::kCPU, torch::kFloat64),
                         process().noise_share(batch.at("time")).to(torch::kCPU, torch::kFloat64),
                         measured_bits(batch, number(0), with_bits)},
                        1);
  });
  describe_levels(rows, out);
  if (const std::vector<float> bits = of_measured(rows.column(2)); !bits.empty())
    out.metrics.push_back(
        {{"bits_per_dim", Unit::number, false},
         std::accumulate(bits.begin(), bits.end(), 0.0) / static_cast<double>(bits.size())});
  if (fid_) out.metrics.push_back({{"fid", Unit::number, false}, measured_fid(options)});
  if (options.wants("pictures") && config_.samples > 0 && pictures_) out.blocks.emplace_back(drawn(options));
  return out;
}

// Returns [batch] float64 for images from index `first` on; NaN for indices from `measured` on.
torch::Tensor Diffuse::measured_bits(const StreamInputs& batch, int64_t first, int64_t measured) {
  const int64_t size = batch.at("label").size(0), count = std::clamp<int64_t>(measured - first, 0, size);
  torch::Tensor bits = torch::full({size}, std::nan(""), torch::kFloat64);
  if (count == 0) return bits;
  std::vector<uint64_t> seeds(static_cast<size_t>(count));
  std::iota(seeds.begin(), seeds.end(), static_cast<uint64_t>(first));
  bits.slice(0, 0, count)
      .copy_(bits_per_dimension(network(), process(), batch.at(input()).slice(0, 0, count),
                                batch.at("label").slice(0, 0, count), seeds, generator_.latents ? 0 : 256));
  return bits;
}

void Diffuse::describe_levels(const SampleRows& rows, Findings& out) const {
  const std::vector<float> losses = rows.column(0), shares = rows.column(1);
  std::array<double, kLevels> sums{}, counts{};
  double sum = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    const auto level = static_cast<size_t>(
        std::clamp<int64_t>(static_cast<int64_t>(static_cast<double>(shares[i]) * kLevels), 0, kLevels - 1));
    sums[level] += static_cast<double>(losses[i]);
    counts[level] += 1;
    sum += static_cast<double>(losses[i]);
  }
  out.metrics = {{main_metric(), sum / static_cast<double>(losses.size())}};
  // Noise levels in three groups: low, middle, high.
  for (const auto& [name, from, to] :
       {std::tuple{"loss_low_noise", 0, 3}, {"loss_middle_noise", 3, 7}, {"loss_high_noise", 7, 10}}) {
    const double some = std::accumulate(sums.begin() + from, sums.begin() + to, 0.0),
                 count = std::accumulate(counts.begin() + from, counts.begin() + to, 0.0);
    if (count > 0) out.metrics.push_back({{name, Unit::number, false}, some / count});
  }
  report::Curve curve{.name = "validation"};
  for (size_t level = 0; level < kLevels; ++level)
    if (counts[level] > 0)
      curve.points.push_back({(static_cast<double>(level) + 0.5) / kLevels, sums[level] / counts[level]});
  out.blocks.emplace_back(report::ChartBlock{
      .heading = "Loss by noise level",
      .note = "Validation images by how noisy they were made: 0 is the image, 1 is noise alone.",
      .charts = {{.options = {.title = "loss", .x_label = "noise"}, .curves = {curve}}}});
}

double Diffuse::measured_fid(const EvaluateOptions& options) {
  const auto alive = [&] { return !options.progress || options.progress(0); };
  return fid_->measure(
      [&](int64_t first, int64_t count) {
        return pictures_->draw(first, count, options.device, options.precision, alive);
      },
      options.device, alive);
}

report::PicturesBlock Diffuse::drawn(const EvaluateOptions& options) {
  const std::vector<Image> images = pictures_->draw(0, config_.samples, options.device, options.precision,
                                                    [&] { return !options.progress || options.progress(0); });
  report::PicturesBlock block{
      .heading = "Samples",
      .note = text("Drawn by ", pictures_->describe(), ", from the same noise every time.")};
  for (size_t i = 0; i < images.size(); ++i) {
    const auto label = static_cast<size_t>(pictures_->label(static_cast<int64_t>(i)));
    block.pictures.push_back(
        {images[i],
         label < generator_.class_names.size() ? generator_.class_names[label] : text("class ", label), ""});
  }
  return block;
}

// The data determine this value, and a different one in the recipe would be ignored. The family's default
// counts as unset.
void follow_data(Value& model, const char* key, int64_t count, const char* what) {
  const Value* given = model.find(key);
  const Value standard = *models::resolve_model("dit").settings.find(key);
  if (given && *given != standard && *given != Value(count))
    fail_usage("model.", key, " = ", given->as_int(), " but there are ", count, " ", what,
               ": must be that, or left out");
  model.set(key, count);
}

}  // namespace

const Generator* generator_of(const Task& task) {
  const auto* diffuse = dynamic_cast<const Diffuse*>(&task);
  return diffuse ? &diffuse->generator() : nullptr;
}

static void fit_network(Value& model, const Value& settings, const data::Source* train) {
  model.set("classes", 0);
  const auto config = read_task<DiffuseConfig>(settings);
  if (!train || !model.find("labels")) return;  // other models are refused by name later
  const data::LatentSource* latents = data::as_latents(train);
  follow_data(model, "channels", latents ? latents->latents().channels : 3,
              latents ? "channels of the latents" : "channels of an image");
  if (const data::ClassLabels* labels = train->class_labels())
    follow_data(model, "labels", std::ssize(labels->class_names()), "classes of the data");
  // Interpolants learn no variances, though the published networks compute them.
  const Value* sigma = model.find("sigma");
  if (config.process != diffusion::Process::diffusion && sigma && *sigma == Value("learned"))
    model.set("sigma", "none");
}

TaskKind diffuse_kind() {
  return task_kind<Diffuse, DiffuseConfig>(
      "diffuse", "image generation: denoising step by step (DiT), or along an interpolant (SiT)",
      {.command = "generate",
       .fit_model = fit_network,
       .path_keys = {"vae", "fid.classifier", "fid.data"},
       .tables = {"bits"},
       .captions = data::CaptionUse::none});
}

}  // namespace tessera::tasks
