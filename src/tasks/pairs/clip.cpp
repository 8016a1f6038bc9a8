#include "tasks/pairs/clip.h"

#include <algorithm>

#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "data/transforms/view_augment.h"
#include "models/base/graphed.h"
#include "models/pairs/two_tower.h"
#include "nn/units.h"
#include "tasks/base/exported.h"
#include "tasks/base/paired.h"
#include "tasks/base/paired_findings.h"
#include "tasks/base/task_kind.h"
#include "tasks/base/text_input.h"
#include "tasks/base/text_limit.h"
#include "tasks/base/validation_pass.h"
#include "tasks/base/zero_shot.h"
#include "tasks/pairs/caption_model.h"
#include "tasks/pairs/pair_loss.h"
#include "weights/language_files.h"

namespace tessera::tasks {
namespace {

constexpr const char *kMasked = "masked_tokens", *kTargets = "masked_targets";  // i32 [context_length]
constexpr int64_t kTextStep = 8;                  // captions are cut to multiples of it
constexpr const char* kGroups = "caption_group";  // f64 []: equal for equal captions

// Returns an id computed from the tokens: equal for equal captions, and exact in a float64.
double group_of(std::span<const int32_t> tokens) {
  uint64_t hash = 14695981039346656037u;
  for (const int32_t token : tokens) hash = (hash ^ static_cast<uint64_t>(token)) * 1099511628211u;
  return static_cast<double>(hash >> 12);
}

// Decodes an image once for several views of it, unless each is decoded at a scale of its own.
std::shared_ptr<const data::Transform> views_of_one_image(std::shared_ptr<const data::Transform> views,
                                                          const data::Preprocess& preprocess, bool exact) {
  const bool once = exact && preprocess.mean.size() == 3;
  return once ? data::decode_once(std::move(views), preprocess.apply_exif) : views;
}

class Clip final : public Task, public PairedEmbedding, public CaptionEvaluation, public TextLimit {
 public:
  explicit Clip(const TaskSetup& setup)
      : config_(read_task<ClipConfig>(setup.settings)),
        input_(config_.tokenizer, setup.metadata, setup.train.get()),
        preprocess_(setup.preprocess),
        augment_(setup.augment),
        train_(setup.train),
        validation_(setup.validation),
        spec_(setup.model),
        backbone_(setup.build_backbone(setup.model)) {
    if (config_.text_dim % config_.text_heads != 0)
      fail_usage("task.text_dim = ", config_.text_dim,
                 ", must be a multiple of task.text_heads = ", config_.text_heads);
    if (!setup.meta && config_.vocab_size > 0) input_.expect_rows(config_.vocab_size, setup.file);
    if (setup.train || setup.validation) input_.check_rows();
    if (setup.batch_size == 1)
      fail_usage("task clip compares the pairs of a batch: train.batch_size is 1, must be at least 2");
    set_templates(config_.templates);
    set_eval_captions(config_.eval_captions);
    require_captions({train_.get(), validation_.get()}, "task clip");
    if (by_tokens())
      extent_ =
          image_token_extent(*backbone_, spec_, setup.sides.empty() ? preprocess_.size : setup.sides.front());
    pair_ = setup.build([&] {
      auto pair = std::make_shared<models::TwoTower>(
          models::TwoTowerConfig{.text = config_.text_tower(input_),
                                 .image_width = by_tokens() ? extent_.width : backbone_->embed_width(),
                                 .embed_dim = config_.embed_dim,
                                 .image_projection = config_.image_projection,
                                 .text_projection = config_.text_projection,
                                 .logit_bias = config_.loss == PairLossKind::sigmoid,
                                 .bert = config_.bert_tower(input_),
                                 .first_scale = 1 / config_.temperature,
                                 .first_bias = config_.first_bias});
      if (setup.draws()) pair->initialise(setup.seed);
      return pair;
    });
    if (auto* tower = dynamic_cast<models::BertTower*>(&pair_->text_tower());
        tower && setup.draws() && !config_.text_weights.empty() && setup.opener)
      train::begin_bert(tower->bert(), WeightFile(setup.opener->file_of(config_.text_weights)), "task.bert");
    build_parts(setup);
    if (!compares_views()) return;
    view_head_ = setup.build([&] {
      auto head = std::make_shared<ViewHead>(backbone_->embed_width(), config_.views);
      if (setup.draws()) head->initialise(setup.seed);
      return head;
    });
  }

  std::vector<Part> parts() const override {
    std::vector<Part> parts = {{"", backbone_}, {"", pair_}};
    if (view_head_) parts.push_back({"image_mlp.", view_head_});  // SLIP's name
    if (declip_) parts.push_back({"declip.", declip_});
    if (nclip_) parts.push_back({"nclip.", nclip_});
    return parts;
  }
  std::vector<BackbonePart> backbones() const override { return {{"", backbone_, spec_}}; }
  int64_t macs(int64_t side) const override {
    const int64_t image = backbone_->macs(side, side);
    if (declip_) return 2 * (image + pair_->macs()) + declip_->macs();
    return image + pair_->macs() + (view_head_ ? 2 * (image + view_head_->macs()) : 0) +
           (nclip_ ? nclip_->macs() : 0);
  }
  std::string outputs() const override { return "projections and text tower"; }
  std::vector<LongText> long_texts(const data::RawSample& sample) const override {
    return long_captions(sample, input_, config_.context_length);
  }
  Value metadata() const override { return input_.metadata(); }
  bool takes_outputs_of(const Value& stored) const override { return input_.is_that_of(stored); }

  std::vector<StreamSpec> streams() const override {
    if (declip_) return {declip_stream()};
    StreamSpec pairs =
        training_pairs(train_, preprocess_, augment_, input_, config_.context_length, config_.train_captions);
    if (!compares_views()) return {pairs};
    pairs.transform = [pair = pairs.transform, preprocess = preprocess_, augment = config_.views.augment,
                       exact = augment_.decode == "exact" &&
                               config_.views.augment.decode == "exact"](int64_t side) {
      data::Preprocess sized = preprocess;
      sized.size = side;
      return views_of_one_image(
          data::join_transforms(
              {pair(side), data::make_views(data::make_train_transform(sized, augment), 2)}),
          sized, exact);
    };
    return {pairs};
  }
  StreamSpec validation() const override { return validation_images(validation_, preprocess_); }

  // Adds group ids: equal captions have equal ones. Cuts captions that the text tower need not read to their ends.
  void prepare(std::span<data::Batch> batches, const StepKey& key) const override {
    if (config_.masks_texts()) add_masks(batches[0], key);
    if (config_.equal_captions != EqualPairs::negatives) add_groups(batches[0]);
    if (!declip_ && !by_tokens()) cut_captions(batches[0]);
  }

  std::vector<MetricInfo> step_metrics() const override {
    std::vector<MetricInfo> metrics = {{"accuracy", Unit::share}};
    if (nclip_) metrics.push_back({"nclip_loss", Unit::number, false});
    if (compares_views())
      metrics.insert(metrics.end(), {{"view_loss", Unit::number, false}, {"view_accuracy", Unit::share}});
    if (declip_)
      for (const char* name : {"pair_loss", "simsiam_loss", "masked_loss", "nearest_loss"})
        metrics.push_back({name, Unit::number, false});
    return metrics;
  }
  bool whole_batch() const override { return true; }
  // DeCLIP's bank grows by tensors of a step; the backward pass computes pieces again.
  bool repeats_its_calls() const override { return !declip_ && config_.piece == 0; }
  Loss loss(const Inputs& inputs, const models::Context& context, Collective& others) override;
  // A plan tries a batch of one sample, but training with one sample per step learns nothing.
  void after_step(const models::TrainingStep&) override {
    if (whole_ < 2)
      fail_usage("task clip compares the pairs of a batch: train.batch_size is ", whole_,
                 ", must be at least 2");
    pair_->bound_scale();
    for (const torch::Tensor& texts : texts_of_step_) declip_->bank()->add(texts);
    texts_of_step_.clear();
  }

  std::vector<std::unique_ptr<Evaluator>> evaluators() override {
    return one_evaluator(*this, [this](const EvaluateOptions& options) { return evaluate(options); });
  }
  MetricInfo main_metric() const override { return {"image_to_text_r1", Unit::share}; }

  torch::Tensor embed_images(const torch::Tensor& images) override {
    const torch::Tensor rows = graphs_.run(images, {backbone_.get(), pair_.get()},
                                           [this](const torch::Tensor& in) { return image_rows(in, {}); });
    return config_.nclip.alone() ? probabilities(nclip_->image(rows)) : rows.flatten(1);
  }
  torch::Tensor similarities(const torch::Tensor& from, const torch::Tensor& to) const override {
    if (!by_tokens()) return PairedEmbedding::similarities(from, to);
    const auto tokens = [&](const torch::Tensor& rows) {
      return rows.view({rows.size(0), -1, config_.embed_dim});
    };
    return late_similarities(tokens(from), tokens(to));
  }
  bool averages_prompts() const override { return !by_tokens(); }
  torch::Tensor embed_texts(const std::vector<std::string>& texts, CutTexts* cut) override;
  double similarity_scale() const override { return pair_->scale().item<double>(); }
  std::vector<ExportedPart> exported(int64_t side) override {
    const int64_t channels = models::input_channels(spec_.settings);
    return {
        exported_part("image", {image_input(channels, side, side)}, {"vector"},
                      [this](const auto& in) { return std::vector<torch::Tensor>{image_rows(in[0], {})}; }),
        exported_part(
            "text", {token_input(config_.context_length, input_.size(), input_.start(), input_.end())},
            {"vector"}, [this](const auto& in) { return std::vector<torch::Tensor>{text_rows(in[0], {})}; })};
  }

 private:
  bool by_tokens() const { return config_.similarity == PairSimilarity::tokens; }
  bool compares_views() const { return config_.views.weight > 0; }
  // Returns unit vectors [batch, embed_dim], or tokens [batch, tokens, embed_dim] with zeros as texts' padding.
  torch::Tensor image_rows(const torch::Tensor& images, const models::Context& context) const {
    return models::normalised_rows(
        pair_->image(by_tokens() ? image_tokens(*backbone_, images, ImageTokens::patches, context)
                                 : backbone_->embed(images, context)));
  }
  torch::Tensor text_rows(const torch::Tensor& ids, const models::Context& context) const {
    if (!by_tokens()) return models::normalised_rows(pair_->text(ids, context));
    const torch::Tensor rows = models::normalised_rows(pair_->text_tokens(ids, context));
    return rows * pair_->text_tower().text_places(ids).unsqueeze(2).to(rows.scalar_type());
  }
  // nCLIP compares what its heads decide for.
  torch::Tensor probabilities(const torch::Tensor& scores) const {
    return models::normalised_rows((scores / config_.nclip.temperature).softmax(1));
  }
  int64_t row_width() const { return config_.nclip.alone() ? config_.nclip.outputs : config_.embed_dim; }
  void build_parts(const TaskSetup& setup);
  StreamSpec declip_stream() const;
  void add_masks(data::Batch& batch, const StepKey& key) const;
  void add_groups(data::Batch& batch) const;
  void cut_captions(data::Batch& batch) const;
  // All texts of `field` of this process; with `targets`, its sum of the masked tokens' loss too.
  torch::Tensor form_of_texts(const Inputs& inputs, const char* field, const models::Context& context,
                              torch::Tensor* masked) const;
  Loss declip_loss(const Inputs& inputs, const models::Context& context, Collective& others);
  PairOptions pair_options(const Inputs& inputs, Collective& others) const;
  torch::Tensor embed_backbone(const torch::Tensor& images, const models::Context& context) const;
  ViewLoss compare_views(const Inputs& inputs, const models::Context& context, Collective& others) const;
  Findings evaluate(const EvaluateOptions& options);
  torch::Tensor in_pieces(int64_t count, torch::Device device, const std::vector<torch::Tensor>& parameters,
                          const std::function<torch::Tensor(int64_t first, int64_t last)>& embed) const;

  ClipConfig config_;
  TextInput input_;
  data::Preprocess preprocess_;
  data::AugmentConfig augment_;
  std::shared_ptr<const data::Source> train_, validation_;
  models::ModelSpec spec_;
  std::shared_ptr<models::Backbone> backbone_;
  TokenExtent extent_;  // the image's, for token similarity
  std::shared_ptr<models::TwoTower> pair_;
  models::GraphedPass graphs_;                // of images without gradients
  std::shared_ptr<ViewHead> view_head_;       // null without views
  std::shared_ptr<DeclipParts> declip_;       // null without DeCLIP
  std::shared_ptr<NclipHeads> nclip_;         // null without nCLIP
  std::vector<torch::Tensor> texts_of_step_;  // of all processes, for the bank
  int64_t whole_ = 2;                         // samples of the latest step, over all processes
};

// Returns embed(first, last) of all samples. With pieces, each is discarded and recomputed for its gradient.
torch::Tensor Clip::in_pieces(int64_t count, torch::Device device,
                              const std::vector<torch::Tensor>& parameters,
                              const std::function<torch::Tensor(int64_t, int64_t)>& embed) const {
  if (config_.piece == 0 || config_.piece >= count || !torch::GradMode::is_enabled()) return embed(0, count);
  const torch::Tensor nothing = torch::zeros({1}, torch::TensorOptions(device));
  std::vector<torch::Tensor> parts;
  for (int64_t first = 0; first < count; first += config_.piece) {
    const int64_t last = std::min(count, first + config_.piece);
    parts.push_back(nn::checkpoint([embed, first, last](const torch::Tensor&) { return embed(first, last); },
                                   nothing, parameters));
  }
  return torch::cat(parts);
}

void Clip::build_parts(const TaskSetup& setup) {
  if (config_.declip.views)
    declip_ = setup.build([&] {
      auto parts = std::make_shared<DeclipParts>(config_.declip, config_.embed_dim, config_.text_dim,
                                                 pair_->text_tower().vocabulary());
      if (setup.draws()) parts->initialise(setup.seed);
      return parts;
    });
  if (config_.nclip.enabled())
    nclip_ = setup.build([&] {
      auto heads = std::make_shared<NclipHeads>(config_.embed_dim, config_.nclip);
      if (setup.draws()) heads->initialise(setup.seed);
      return heads;
    });
}

StreamSpec Clip::declip_stream() const {
  const auto transform = [preprocess = preprocess_, augment = augment_, input = input_,
                          length = config_.context_length, drop = config_.declip.drop_ratio,
                          drawn = config_.train_captions == TrainCaptions::drawn](int64_t side) {
    data::Preprocess sized = preprocess;
    sized.size = side;
    return views_of_one_image(
        data::join_transforms({data::make_views(data::make_train_transform(sized, augment), 2),
                               make_changed_text_transform(input, length, drawn, drop)}),
        sized, augment.decode == "exact");
  };
  return {.name = "train", .source = train_, .transform = transform, .labelled = false};
}

void Clip::add_masks(data::Batch& batch, const StepKey& key) const {
  const int64_t length = config_.context_length, vocabulary = pair_->text_tower().vocabulary() - 1;
  const TokenMask rule{.ratio = config_.declip.mask_ratio,
                       .start = input_.start(),
                       .end = input_.end(),
                       .pad = input_.pad(),
                       .mask = static_cast<int32_t>(vocabulary),
                       .vocabulary = input_.size()};
  const std::span<int32_t> tokens = batch.values<int32_t>("tokens");
  const std::vector<int32_t> given(tokens.begin(), tokens.end());
  const auto masked = batch.add({kMasked, DType::i32, {length}}).values<int32_t>();
  std::copy(given.begin(), given.end(), masked.begin());
  const auto targets = batch.add({kTargets, DType::i32, {length}}).values<int32_t>();
  for (int64_t i = 0; i < batch.size; ++i) {
    RandomStream random(key.seed, "masked text", static_cast<uint64_t>(key.step),
                        static_cast<uint64_t>(batch.first + i));
    const auto from = static_cast<size_t>(i * length), count = static_cast<size_t>(length);
    mask_tokens(rule, random, masked.subspan(from, count), targets.subspan(from, count));
  }
}

void Clip::add_groups(data::Batch& batch) const {
  const std::span<int32_t> tokens = batch.values<int32_t>("tokens");
  const auto length = static_cast<size_t>(config_.context_length);
  const std::span<double> groups =
      batch.add({.name = kGroups, .dtype = DType::f64, .shape = {}}).values<double>();
  for (size_t i = 0; i < groups.size(); ++i) groups[i] = group_of(tokens.subspan(i * length, length));
}

// Leaves the tokens that the text tower reads. Few lengths occur, for graphs of steps.
void Clip::cut_captions(data::Batch& batch) const {
  const data::Column whole = batch.at("tokens");
  const torch::Tensor ids =
      torch::from_blob(whole.memory.data(), {batch.size, whole.field.shape[0]}, torch::kInt32);
  const int64_t kept = (pair_->text_tower().length_read(ids) + kTextStep - 1) / kTextStep * kTextStep;
  if (kept >= ids.size(1)) return;
  const data::Column& cut = batch.add({.name = "tokens", .dtype = DType::i32, .shape = {kept}});
  torch::from_blob(cut.memory.data(), {batch.size, kept}, torch::kInt32).copy_(ids.slice(1, 0, kept));
}

PairOptions Clip::pair_options(const Inputs& inputs, Collective& others) const {
  PairOptions options{.equal = config_.equal_captions, .chunk = config_.chunk, .others = &others};
  if (const torch::Tensor* groups = inputs.find(kGroups)) options.query_groups = options.key_groups = *groups;
  return options;
}

torch::Tensor Clip::form_of_texts(const Inputs& inputs, const char* field, const models::Context& context,
                                  torch::Tensor* masked) const {
  models::TextEncoder& tower = pair_->text_tower();
  const torch::Tensor ids = inputs.at(field).to(torch::kInt64);
  if (!masked)
    return models::normalised_rows(tower.forward(tower.read_part(ids, inputs.on_host(field)), context));
  const torch::Tensor tokens = tower.encode(ids, {}, context);
  *masked = declip_->masked_sum(tokens, inputs.at(kTargets));
  return models::normalised_rows(tower.read(tokens, inputs.at("tokens").to(torch::kInt64)));
}

Loss Clip::declip_loss(const Inputs& inputs, const models::Context& context, Collective& others) {
  const auto count = static_cast<double>(inputs.size());
  const int64_t first = inputs.main().first;
  whole_ = inputs.main().whole;
  const DeclipConfig& weights = config_.declip;
  const torch::Tensor none = torch::zeros({}, pair_->logit_scale.options().requires_grad(false));
  std::array<torch::Tensor, 2> projected;
  DeclipRows rows;
  for (size_t i = 0; i < 2; ++i) {
    projected[i] = pair_->image(embed_backbone(inputs.at(i == 0 ? "image_0" : "image_1"), context));
    rows.images[i] = models::normalised_rows(projected[i]);
  }
  torch::Tensor masked = none;
  rows.texts[0] = form_of_texts(inputs, config_.masks_texts() ? kMasked : "tokens", context,
                                config_.masks_texts() ? &masked : nullptr);
  rows.texts[1] = form_of_texts(inputs, "changed_tokens", context, nullptr);
  const PairOptions options = pair_options(inputs, others);
  const torch::Tensor scale = pair_->scale();
  const PairLoss pairs = declip_pairs(rows, scale, options);
  torch::Tensor siamese = none, nearest = none;
  if (weights.images > 0) {
    const torch::Tensor z = declip_->project(projected[0], whole_, others),
                        z2 = declip_->project(projected[1], whole_, others);
    siamese = simsiam_sum(declip_->predict(z, whole_, others), declip_->predict(z2, whole_, others), z, z2);
  }
  if (config_.masks_texts()) {
    const torch::Tensor chosen =
        others.sum((inputs.at(kTargets) >= 0).sum().to(masked.scalar_type()).view({1}));
    masked = masked * (static_cast<double>(whole_) / chosen.clamp_min(1)).squeeze(0);
  }
  if (weights.nearest > 0) {
    for (size_t i = 0; i < 2; ++i)
      rows.neighbours[i] = declip_->bank()->nearest(rows.texts[i], config_.chunk);
    nearest = declip_nearest(rows, scale, options);
    texts_of_step_ = {others.gather(rows.texts[1].detach(), first, whole_),
                      others.gather(rows.texts[0].detach(), first, whole_)};
  }
  Loss out = {pairs.sum + weights.images * siamese + weights.texts * masked + weights.nearest * nearest,
              {{pairs.right, count}}};
  for (const torch::Tensor& term : {pairs.sum, siamese, masked, nearest})
    out.terms.push_back({term.detach(), count});
  return out;
}

// Each process compares its own samples with those of all, which arrive through the ring.
Loss Clip::loss(const Inputs& inputs, const models::Context& context, Collective& others) {
  if (declip_) return declip_loss(inputs, context, others);
  const int64_t count = inputs.size();
  whole_ = inputs.main().whole;
  const torch::Tensor pictures = inputs.at("image"), tokens = inputs.at("tokens");
  std::vector<torch::Tensor> of_images = backbone_->parameters();
  for (const auto& entry : pair_->named_parameters())
    if (entry.key().starts_with("visual.")) of_images.push_back(entry.value());
  const torch::Tensor images =
      in_pieces(count, pictures.device(), of_images, [this, pictures, context](int64_t begin, int64_t end) {
        models::Context own = context;
        own.first_sample += begin;
        return image_rows(pictures.slice(0, begin, end), own);
      });
  const torch::Tensor texts = in_pieces(count, pictures.device(), pair_->text_tower().parameters(),
                                        [this, tokens, context](int64_t begin, int64_t end) {
                                          models::Context own = context;
                                          own.first_sample += begin;
                                          return text_rows(tokens.slice(0, begin, end), own);
                                        });
  const torch::Tensor own =
      torch::arange(count, torch::TensorOptions(torch::kInt64).device(pictures.device()));
  const PairOptions options = pair_options(inputs, others);
  const torch::Tensor scale = pair_->scale();
  Loss out;
  if (config_.loss == PairLossKind::sigmoid) {
    const PairLoss pairs = sigmoid_pairs(images, texts, scale, pair_->logit_bias, own, options);
    out = {pairs.sum, {{pairs.right, static_cast<double>(count)}}};
  } else {
    const PairLoss by_image = softmax_pairs(images, texts, scale, own, options),
                   by_text = softmax_pairs(texts, images, scale, own, options);
    out = {(by_image.sum + by_text.sum) / 2, {{by_image.right, static_cast<double>(count)}}};
  }
  if (nclip_) {
    const torch::Tensor sum =
        nclip_terms(nclip_->image(images), nclip_->text(texts), config_.nclip.temperature, whole_, others)
            .sum(config_.nclip, count);
    out.sum = config_.nclip.contrast * out.sum + config_.nclip.weight * sum;
    out.terms.push_back({sum.detach(), static_cast<double>(count)});
  }
  if (!compares_views()) return out;
  const ViewLoss views = compare_views(inputs, context, others);
  out.sum = out.sum + config_.views.weight * views.sum;
  for (const torch::Tensor& term : {views.sum.detach(), views.right})
    out.terms.push_back({term, static_cast<double>(count)});
  return out;
}

torch::Tensor Clip::embed_backbone(const torch::Tensor& images, const models::Context& context) const {
  return in_pieces(images.size(0), images.device(), backbone_->parameters(),
                   [this, images, context](int64_t begin, int64_t end) {
                     models::Context own = context;
                     own.first_sample += begin;
                     return backbone_->embed(images.slice(0, begin, end), own);
                   });
}

ViewLoss Clip::compare_views(const Inputs& inputs, const models::Context& context, Collective& others) const {
  const int64_t first = inputs.main().first, whole = inputs.main().whole;
  const auto view = [&](const char* field) {
    return view_head_->forward(embed_backbone(inputs.at(field), context), whole, others);
  };
  return view_contrast(view("image_0"), view("image_1"), config_.views.temperature, first, config_.chunk,
                       others);
}

torch::Tensor Clip::embed_texts(const std::vector<std::string>& texts, CutTexts* cut) {
  const int64_t width = row_width() * (by_tokens() ? config_.context_length : 1);
  return embed_in_batches(input_, texts, config_.context_length, width, cut, [&](const torch::Tensor& ids) {
    const torch::Tensor there = ids.to(pair_->logit_scale.device());
    const torch::Tensor rows = text_rows(by_tokens() ? there : pair_->text_tower().read_part(there, ids), {});
    return config_.nclip.alone() ? probabilities(nclip_->text(rows)) : rows.flatten(1);
  });
}

Findings Clip::evaluate(const EvaluateOptions& options) {
  SampleRows images(row_width() * (by_tokens() ? extent_.count : 1));
  Findings out = evaluate_rows(options, validation(), images, [&](data::Batch& loaded) {
    const StreamInputs batch = to_device(loaded, options);
    const AutocastScope autocast(options.device, options.precision);
    return embed_images(batch.at("image"));
  });
  CutTexts cut;
  add_retrieval(out, *validation_, images, eval_captions_, *this, options,
                [&](const std::vector<std::string>& texts) {
                  const AutocastScope autocast(options.device, options.precision);
                  return embed_texts(texts, &cut);
                });
  if (cut.count > 0)
    out.metrics.push_back({{"texts_cut", Unit::number, false}, static_cast<double>(cut.count)});
  return out;
}

}  // namespace

TaskKind clip_kind() {
  return task_kind<Clip, ClipConfig>(
      "clip", "images and captions in one space: CLIP, SigLIP, LiT, UniCL, SLIP, FILIP, DeCLIP, xCLIP",
      {.command = "zeroshot",
       .path_keys = {"tokenizer", "text_weights"},
       .tables = {"classes"},
       .names_classes = true,
       .captions = data::CaptionUse::over_boxes});
}

}  // namespace tessera::tasks
