#include "tasks/dense/glip.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/random.h"
#include "core/text.h"
#include "io/files/file.h"
#include "ops/roi_align.h"
#include "tasks/base/layer_features.h"
#include "tasks/base/task_kind.h"
#include "tasks/base/text_input.h"
#include "tasks/dense/object_task.h"
#include "text/unicode.h"
#include "weights/language_files.h"

namespace tessera::tasks {
namespace {

using models::Extent;
using torch::Tensor;

constexpr const char* kText = "language_backbone.";

// The names of classes as one text, and the tokens of each.
struct Prompt {
  Tensor ids;   // int64 [1, tokens], padded
  Tensor mask;  // bool [1, tokens]
  models::TokenSpans classes;
};

std::shared_ptr<models::PyramidNeck> glip_neck(const GlipTaskConfig& config, const BackboneMaps& maps) {
  if (maps.stages)
    return std::make_shared<models::Fpn>(
        models::FpnOptions{.in = maps.widths, .strides = maps.strides, .width = config.width});
  models::SimplePyramidOptions options{
      .in = maps.widths.back(), .stride = maps.strides.back(), .width = config.width};
  std::erase_if(options.scales,
                [&](double scale) { return static_cast<double>(options.stride) / scale < 4; });
  return std::make_shared<models::SimplePyramid>(options);
}

BackboneMaps glip_maps(const models::ModelSpec& spec, int64_t blocks) {
  const bool stages = spec.settings.find("dims") != nullptr;
  return maps_of(spec, stages ? std::vector<int64_t>{} : std::vector{blocks - 1}, blocks);
}

data::ObjectGeometry glip_geometry(const GlipTaskConfig& config) {
  return {.shortest = config.shortest,
          .longest = config.longest,
          .jitter = config.jitter,
          .flip = config.flip,
          .masks = false};
}

class Glip final : public ObjectTask {
 public:
  explicit Glip(const TaskSetup& setup) : Glip(setup, read_task<GlipTaskConfig>(setup.settings)) {}

  std::vector<Part> parts() const override { return {{"", backbone_}, {kText, text_}, {"", head_}}; }
  std::vector<BackbonePart> backbones() const override { return {{"", backbone_, spec_}}; }
  std::string outputs() const override {
    return text("detector of texts, trained with ", classes_.names.size(), " classes");
  }
  // No tensor belongs to a class.
  bool takes_outputs_of(const Value&) const override { return true; }
  int64_t macs(int64_t side) const override {
    return backbone_->macs(side, side) + text_->macs(config_.prompt) +
           head_->macs({side, side}, config_.prompt);
  }
  Value metadata() const override {
    Value out = ObjectTask::metadata();
    merge(out, input_.metadata());
    return out;
  }

  std::vector<MetricInfo> step_metrics() const override {
    return {
        {"tokens", Unit::number, false}, {"box", Unit::number, false}, {"centredness", Unit::number, false}};
  }
  Loss loss(const Inputs& inputs, const models::Context& context, Collective& others) override;

  void set_classes(const std::vector<std::string>& names) override {
    classes_.names = names;
    classes_.numbers.resize(names.size());
    std::iota(classes_.numbers.begin(), classes_.numbers.end(), 1);
    prompt_ = {};
    prompt();
  }

 protected:
  std::vector<std::vector<FoundObject>> find_in_batch(const Tensor& images, const std::vector<Extent>& shown,
                                                      const std::vector<Extent>& sizes,
                                                      double score) override {
    const models::GlipHead::Output output = read(images, prompt(), {});
    std::vector<std::vector<FoundObject>> out;
    for (size_t i = 0; i < sizes.size(); ++i)
      out.push_back(objects_of(head_->detect(output, static_cast<int64_t>(i), prompt_.classes, shown[i],
                                             score, config_.nms, config_.most),
                               shown[i], sizes[i], false));
    return out;
  }

  // Pools the objects of all views; of overlapping ones of one class keeps the most confident.
  std::vector<FoundObject> find_in_views(const std::vector<ViewedImage>& views, Extent size,
                                         double score) override {
    std::vector<FoundObject> all;
    for (const ViewedImage& view : views) {
      const auto found = head_->detect(read(view.pixels, prompt(), {}), 0, prompt_.classes, view.shown, score,
                                       config_.nms, config_.most);
      for (FoundObject& object : objects_of(found, view.shown, size, view.mirrored)) all.push_back(object);
    }
    const auto count = std::ssize(all);
    Tensor boxes = torch::empty({count, 4}, torch::kFloat64), scores = torch::empty({count}, torch::kFloat64),
           labels = torch::empty({count}, torch::kInt64);
    for (int64_t i = 0; i < count; ++i) {
      const FoundObject& o = all[static_cast<size_t>(i)];
      boxes[i] = torch::tensor({o.left, o.top, o.right, o.bottom}, torch::kFloat64);
      scores[i] = o.score, labels[i] = o.label;
    }
    const Tensor keep = ops::nms(boxes, scores, labels, config_.nms);
    std::vector<FoundObject> out;
    for (int64_t k = 0; k < std::min(config_.most, keep.size(0)); ++k)
      out.push_back(all[static_cast<size_t>(keep[k].item<int64_t>())]);
    return out;
  }
  int64_t side_unit() const override { return maps_.strides.back(); }

 private:
  Glip(const TaskSetup& setup, const GlipTaskConfig& config)
      : ObjectTask(setup, "task glip", glip_geometry(config), config.score),
        config_(config),
        input_(tokeniser_of(setup, config), setup.metadata),
        maps_(glip_maps(spec_, backbone_->block_count())),
        planned_(tokeniser_of(setup, config) != config.tokenizer) {
    input_.require_padding("task glip");
    int64_t& rows = config_.text.vocabulary;
    if (rows <= 1) rows = input_.size();
    if (rows < input_.size())
      fail_usage("task.text.vocabulary = ", rows, ", the tokeniser has ", input_.size(), " tokens");
    if (config_.prompt > config_.text.context)
      fail_usage("task.prompt = ", config_.prompt,
                 ", the text encoder reads task.text.context = ", config_.text.context);
    text_ = setup.build([&] {
      auto bert = std::make_shared<models::Bert>(config_.text);
      if (setup.draws()) bert->initialise(setup.seed);
      return bert;
    });
    head_ = setup.build([&] {
      const models::GlipOptions options{.width = config_.width,
                                        .text_width = config_.text.dim,
                                        .inner = config_.inner,
                                        .heads = config_.heads,
                                        .text_heads = config_.text.heads,
                                        .layers = config_.layers,
                                        .anchor_side = config_.anchor_side,
                                        .nearest = config_.nearest,
                                        .vote = config_.vote};
      auto head = std::make_shared<models::GlipHead>(options, glip_neck(config_, maps_));
      if (setup.draws()) head->initialise(setup.seed);
      return head;
    });
    if (setup.draws() && !config_.text_weights.empty() && setup.opener)
      train::begin_bert(*text_, WeightFile(setup.opener->file_of(config_.text_weights)), "task.text");
    if (setup.draws()) prompt();
  }

  // A run that is only described, for a plan, needs no file of the tokeniser.
  static std::string tokeniser_of(const TaskSetup& setup, const GlipTaskConfig& config) {
    const bool described = setup.meta || (!setup.draws() && !setup.continued);
    return described && config.text.vocabulary > 1 && !file_exists(config.tokenizer) ? "bytes"
                                                                                     : config.tokenizer;
  }

  // Returns the prompt of all classes in their order.
  const Prompt& prompt() {
    if (!prompt_.ids.defined()) prompt_ = prompt_of(given_order());
    return prompt_;
  }

  std::vector<int64_t> given_order() const {
    std::vector<int64_t> order(classes_.names.size());
    std::iota(order.begin(), order.end(), 0);
    return order;
  }

  // Tokenises the names once. A token belongs to the name that it shares characters with.
  Prompt prompt_of(const std::vector<int64_t>& order) const {
    Prompt out;
    out.classes.resize(classes_.names.size());
    if (planned_) {  // one token for each class
      for (const int64_t k : order) out.classes[static_cast<size_t>(k)] = {k % config_.prompt};
      out.ids = torch::zeros({1, config_.prompt}, torch::kInt64);
      out.mask = torch::ones({1, config_.prompt}, torch::kBool);
      return out;
    }
    const auto [words, places] = glip_prompt(classes_.names, order);
    out.ids = input_.encode(std::vector<std::string>{words}, config_.prompt).to(torch::kInt64);
    out.mask = out.ids != input_.pad();
    const std::vector<TokenSpan> tokens = input_.spans(words);
    if (std::ssize(tokens) + 2 > config_.prompt)
      fail_usage("the names of ", classes_.names.size(), " classes are ", tokens.size() + 2,
                 " tokens, more than task.prompt = ", config_.prompt, ": give fewer or shorter ones");
    for (const int64_t k : order) {
      const TokenSpan& place = places[static_cast<size_t>(k)];
      std::vector<int64_t>& own = out.classes[static_cast<size_t>(k)];
      for (size_t i = 0; i < tokens.size(); ++i)
        if (tokens[i].start < place.end && place.start < tokens[i].end)
          own.push_back(1 + static_cast<int64_t>(i));
      if (own.empty())
        fail_usage("the class '", printable(classes_.names[static_cast<size_t>(k)]), "' has no token");
    }
    return out;
  }

  models::GlipHead::Output read(const Tensor& images, const Prompt& prompt, const models::Context& context) {
    const Tensor mask = prompt.mask.to(images.device());
    const Tensor tokens = text_->hidden({.ids = prompt.ids.to(images.device()), .mask = mask});
    const std::vector<Tensor> maps = backbone_->features(images, maps_.blocks, context);
    return head_->forward(maps, tokens.expand({images.size(0), -1, -1}), mask.expand({images.size(0), -1}));
  }

  std::vector<models::GlipTruth> truths(const Inputs& inputs) const {
    const FieldTensor& boxes = ragged_field(inputs, "boxes");
    const Tensor host = boxes.on_host();
    std::vector<models::GlipTruth> all;
    for (size_t i = 0; i + 1 < boxes.offsets.size(); ++i) {
      const Tensor rows = host.narrow(0, boxes.offsets[i], boxes.offsets[i + 1] - boxes.offsets[i]);
      all.push_back({rows.slice(1, 0, 4), rows.select(1, 4).to(torch::kInt64)});
    }
    return all;
  }

  // Converts the objects of a view to pixels of the original image.
  static std::vector<FoundObject> objects_of(const models::GlipHead::Found& found, Extent shown, Extent image,
                                             bool mirrored) {
    const double across = static_cast<double>(image.width) / static_cast<double>(shown.width),
                 down = static_cast<double>(image.height) / static_cast<double>(shown.height);
    const Tensor boxes = found.boxes.contiguous();
    std::vector<FoundObject> out;
    for (int64_t i = 0; i < boxes.size(0); ++i) {
      const double* b = boxes.const_data_ptr<double>() + 4 * i;
      const auto width = static_cast<double>(image.width);
      const double left = b[0] * across, right = b[2] * across;
      out.push_back({mirrored ? width - right : left,
                     b[1] * down,
                     mirrored ? width - left : right,
                     b[3] * down,
                     found.scores[i].item<double>(),
                     found.labels[i].item<int64_t>(),
                     {}});
    }
    return out;
  }

  GlipTaskConfig config_;
  TextInput input_;
  BackboneMaps maps_;
  bool planned_;  // no tokeniser: the run is only described
  std::shared_ptr<models::Bert> text_;
  std::shared_ptr<models::GlipHead> head_;
  Prompt prompt_;
};

Loss Glip::loss(const Inputs& inputs, const models::Context& context, Collective& others) {
  const Tensor& images = inputs.at("image");
  RandomStream random(context.seed, "prompt", context.step);
  const Prompt prompt = prompt_of(random.permutation(std::ssize(classes_.names)));
  const models::GlipHead::Output output = read(images, prompt, context);
  const models::GlipHead::Losses part = head_->losses(
      output, truths(inputs), prompt.classes, prompt.mask.to(images.device()).expand({images.size(0), -1}));
  const auto own = static_cast<double>(images.size(0));
  const Tensor totals = others.sum(torch::tensor({own, part.positives, part.weight}, torch::kFloat64));
  const double count = totals[0].item<double>(), positives = std::max(1.0, totals[1].item<double>()),
               weight = std::max(1e-6, totals[2].item<double>());
  const Tensor tokens = part.tokens * (count / positives), boxes = part.boxes * (count / weight),
               centredness = part.centredness * (count / positives);
  Loss out{tokens + boxes + centredness, {}};
  for (const Tensor& term : {tokens, boxes, centredness}) out.terms.push_back({term.detach(), own});
  return out;
}

}  // namespace

GlipPrompt glip_prompt(const std::vector<std::string>& names, const std::vector<int64_t>& order) {
  GlipPrompt out;
  out.places.resize(names.size());
  int64_t at = 0;  // characters of the text so far
  for (const int64_t k : order) {
    const std::string& name = names[static_cast<size_t>(k)];
    if (!out.words.empty()) {
      out.words += " ";
      ++at;
    }
    const int64_t end = at + std::ssize(tokens::to_code_points(name, "a class"));
    out.places[static_cast<size_t>(k)] = {at, end};
    out.words += name + ".";
    at = end + 1;
  }
  return out;
}

TaskKind glip_kind() {
  return task_kind<Glip, GlipTaskConfig>("glip",
                                         "objects that texts name: classes are words at test time (GLIP)",
                                         {.command = "detect",
                                          .path_keys = {"tokenizer", "text_weights"},
                                          .tables = {"classes"},
                                          .captions = data::CaptionUse::none});
}

}  // namespace tessera::tasks
