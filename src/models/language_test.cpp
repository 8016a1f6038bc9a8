#include <gtest/gtest.h>

#include <array>

#include "core/error.h"
#include "models/base/graphs_testing.h"
#include "models/language/flamingo.h"
#include "models/language/language_model.h"
#include "models/language/llava.h"
#include "models/language/seq2seq.h"
#include "ops/gpu_testing.h"

namespace tessera::models::language_test {
namespace {

LanguageConfig tiny(LanguageKind kind) {
  LanguageConfig config{.kind = kind, .vocabulary = 23, .dim = 16, .depth = 2, .heads = 4, .hidden = 24};
  config.context = 64;
  if (kind == LanguageKind::llama || kind == LanguageKind::qwen2 || kind == LanguageKind::mistral)
    config.kv_heads = 2;
  if (kind == LanguageKind::mistral) config.window = 4;
  return config;
}

constexpr LanguageKind kKinds[] = {LanguageKind::gpt2,    LanguageKind::llama, LanguageKind::qwen2,
                                   LanguageKind::mistral, LanguageKind::bloom, LanguageKind::mpt};

std::shared_ptr<LanguageModel> model_of(LanguageKind kind, uint64_t seed = 1) {
  auto model = std::make_shared<LanguageModel>(tiny(kind));
  model->initialise(seed);
  const torch::NoGradGuard no_grad;
  for (auto& entry : model->named_parameters())  // far from zero, so that tokens differ
    if (entry.value().dim() > 1) entry.value().mul_(12);
  model->eval();
  return model;
}

torch::Tensor some_ids(int64_t rows, int64_t tokens, uint64_t seed) {
  RandomStream random(seed, "ids");
  torch::Tensor ids = torch::empty({rows, tokens}, torch::kInt64);
  for (int64_t i = 0; i < ids.numel(); ++i) ids.view(-1)[i] = random.integer(0, 22);
  return ids;
}

// Reading piece by piece gives the logits of the whole text, also with padding on the left.
TEST(LanguageModel, CachedEqualsWhole) {
  const torch::NoGradGuard no_grad;
  for (const LanguageKind kind : kKinds) {
    const auto model = model_of(kind);
    const torch::Tensor ids = some_ids(3, 11, 2);
    torch::Tensor mask = torch::ones({3, 11}, torch::kBool);
    mask[1].slice(0, 0, 4).fill_(false);
    for (const bool padded : {false, true}) {
      const torch::Tensor whole = model->forward({.ids = ids, .mask = padded ? mask : torch::Tensor()});
      KeyValueCache cache;
      int64_t at = 0;
      for (const int64_t count : {5, 1, 1, 4}) {
        TextInput input{.ids = ids.slice(1, at, at + count), .cache = &cache};
        if (padded) input.mask = mask.slice(1, 0, at + count);
        const torch::Tensor piece = model->forward(input);
        const int64_t first = std::max<int64_t>(at, padded ? 4 : 0);
        const torch::Tensor got = piece.slice(1, first - at), want = whole.slice(1, first, at + count);
        EXPECT_LT((got - want).abs().max().item<double>() / want.abs().max().item<double>(), 1e-5)
            << name_of(kind) << " at " << at;
        at += count;
      }
    }
  }
}

// A full cache grows by room for at least 64 tokens. Reordered rows keep their cached tokens.
TEST(LanguageModel, ACacheGrowsAndIsReordered) {
  const torch::NoGradGuard no_grad;
  for (const LanguageKind kind : {LanguageKind::llama, LanguageKind::mistral, LanguageKind::mpt}) {
    const auto model = model_of(kind);
    torch::Tensor ids = some_ids(2, 200, 3), whole = model->forward({.ids = ids});
    const torch::Tensor exchange = torch::tensor({1, 0});
    KeyValueCache cache;
    int64_t at = 0;
    for (const int64_t count : {1, 63, 1, 1, 3, 1, 62, 1, 65, 1}) {
      const torch::Tensor got = model->forward({.ids = ids.slice(1, at, at + count), .cache = &cache}),
                          want = whole.slice(1, at, at + count);
      EXPECT_LT((got - want).abs().max().item<double>() / want.abs().max().item<double>(), 1e-4)
          << name_of(kind) << " at " << at;
      at += count;
      cache.select(exchange);
      ids = ids.index_select(0, exchange), whole = whole.index_select(0, exchange);
    }
  }
}

// A row's draws do not depend on its batch.
// A published configuration with features that the models lack is an error, not another model.
TEST(LanguageConfig, RefusesWhatItDoesNotCompute) {
  const auto message = [](const Value& config) {
    try {
      language_config_of(config, "config.json");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  Value mpt(Value::Table{
      {"model_type", "mpt"}, {"vocab_size", 23}, {"d_model", 16}, {"n_layers", 1}, {"n_heads", 2}});
  EXPECT_EQ(message(mpt), "");
  mpt.set("attn_config", Value::Table{{"qk_ln", true}});
  EXPECT_NE(message(mpt).find("qk_ln must be false"), std::string::npos);
  Value qwen2(Value::Table{{"model_type", "qwen2"}, {"vocab_size", 23}, {"sliding_window", 4}});
  EXPECT_EQ(message(qwen2), "");  // the window is off
  qwen2.set("use_sliding_window", true);
  qwen2.set("num_hidden_layers", 3);
  EXPECT_EQ(language_config_of(qwen2, "config.json").window_from, 3);  // of 28 blocks, more than it has
  qwen2.set("layer_types", Value::Array{"full_attention", "sliding_attention", "sliding_attention"});
  EXPECT_EQ(language_config_of(qwen2, "config.json").window_from, 1);
  qwen2.set("layer_types", Value::Array{"sliding_attention", "full_attention", "sliding_attention"});
  EXPECT_NE(message(qwen2).find("those of sliding_attention last"), std::string::npos);

  Value t5(Value::Table{{"feed_forward_proj", "gated-gelu"}});
  EXPECT_TRUE(t5_config_of(t5, "config.json").gated);
  t5.set("feed_forward_proj", "gated-silu");
  EXPECT_EQ(t5_config_of(t5, "config.json").activation, Activation::silu);
  for (const char* kind : {"mish", "gated-mish", "gated"}) {
    t5.set("feed_forward_proj", kind);
    EXPECT_THROW(t5_config_of(t5, "config.json"), Error) << kind;
  }
}

TEST(Generation, BatchOfOneOrSeveral) {
  const auto model = model_of(LanguageKind::llama);
  const torch::Tensor prompt = some_ids(4, 3, 5);
  GenerationOptions options{.max_new_tokens = 9, .sample = true, .seed = 8};
  options.rules.top_k = 12;
  const torch::Tensor all = generate(next_token_model(*model, {}, 1), prompt, options).ids;
  for (int64_t row = 0; row < 4; ++row) {
    const torch::Tensor one = prompt.slice(0, row, row + 1);
    EXPECT_TRUE(torch::equal(generate(next_token_model(*model, {}, 1), one, options, row).ids,
                             all.slice(0, row, row + 1)));
  }
  options.seed = 9;
  EXPECT_FALSE(torch::equal(generate(next_token_model(*model, {}, 1), prompt, options).ids, all));
}

// Returns the text that a model goes on with, after a prompt with padding.
torch::Tensor text_after(LanguageModel& model, const torch::Tensor& prompt, int64_t tokens, int64_t beams,
                         bool cached = true) {
  LanguagePrompt settings{.mask = torch::ones(prompt.sizes(), torch::kBool), .cached = cached};
  settings.mask[0].slice(0, 0, 2).fill_(false);
  const GenerationOptions options{
      .max_new_tokens = tokens, .padding = padding_of(settings.mask), .beams = beams};
  return generate(next_token_model(model, settings, beams), prompt, options).ids;
}

// Single tokens are read by the same calls, which a graph repeats; the cache outgrows its first memory after 65 of them.
TEST(Generation, StepsAsAGraphGiveTheSameText) {
  for (const LanguageKind kind : kKinds) {
    const auto model = model_of(kind);
    const torch::Tensor prompt = some_ids(3, 5, 7);
    const int64_t tokens = kind == LanguageKind::gpt2 ? 50 : 100;
    const torch::Tensor want = text_after(*model, prompt, tokens, 1, /*cached=*/false);
    EXPECT_TRUE(text_after(*model, prompt, tokens, 1).equal(want)) << name_of(kind);
    const RecordedGraphs graphs;
    EXPECT_TRUE(text_after(*model, prompt, tokens, 1).equal(want)) << name_of(kind);
    const int recordings = kind == LanguageKind::gpt2 ? 1 : 2;
    EXPECT_EQ(RecordedGraphs::counts().captures, recordings) << name_of(kind);
    // The prompt gives the first token; two steps of each graph are not replayed.
    EXPECT_EQ(RecordedGraphs::counts().replays, tokens - 1 - 2 * recordings) << name_of(kind);
    EXPECT_TRUE(text_after(*model, prompt, 20, 3).equal(text_after(*model, prompt, 20, 3, /*cached=*/false)))
        << name_of(kind);
  }
  EXPECT_EQ(RecordedGraphs::counts().alive, 0);
}

// Steps whose rotation depends on the length of the text have no graph.
TEST(Generation, StepsThatDifferAreNoGraph) {
  LanguageConfig config = tiny(LanguageKind::llama);
  config.rope_scaling = nn::RopeScalingKind::dynamic, config.rope_factor = 2, config.rope_trained = 16;
  LanguageModel model(config);
  model.initialise(1), model.eval();
  EXPECT_FALSE(model.steps_are_alike());
  const torch::Tensor prompt = some_ids(2, 5, 7), want = text_after(model, prompt, 30, 1);
  const RecordedGraphs graphs;
  EXPECT_TRUE(text_after(model, prompt, 30, 1).equal(want));
  EXPECT_EQ(RecordedGraphs::counts().captures, 0);
}

// In bfloat16 by the kernel of a GPU, which the emulator runs: the scores of single tokens are those of the composition.
TEST(Generation, StepsByTheKernelOfAGpu) {
  const torch::NoGradGuard no_grad;
  LanguageConfig config = tiny(LanguageKind::llama);
  config.dim = 64;
  LanguageModel model(config);
  model.initialise(3), model.to(torch::kBFloat16), model.eval();
  const torch::Tensor ids = some_ids(2, 12, 4);
  const auto scores = [&] {
    const NextTokenModel reader = next_token_model(model, {}, 1);
    torch::Tensor last = reader.next(ids.slice(1, 0, 4));
    for (int64_t i = 4; i < 12; ++i) last = reader.next(ids.slice(1, i, i + 1));
    return last.to(torch::kFloat32);
  };
  const torch::Tensor want = scores();
  const ops::Emulated emulated;
  const ops::Runs runs("cached attention");
  const torch::Tensor got = scores();
  EXPECT_LT((got - want).norm().item<double>(), 0.02 * want.norm().item<double>());
  EXPECT_EQ(runs.names(), std::vector<std::string>(16, "cached attention (chunks64)"));
}

TEST(Generation, RefusesWhatMakesNoSense) {
  const auto model = model_of(LanguageKind::gpt2);
  const auto refuses = [&](const GenerationOptions& options) {
    EXPECT_THROW(generate(next_token_model(*model, {}, options.beams), some_ids(1, 2, 1), options), Error);
  };
  refuses({.sample = true, .beams = 3});
  refuses({.rules = {.top_p = 0}});
  refuses({.rules = {.temperature = 0}, .sample = true});
  refuses({.beams = 2, .returned = 3});
  refuses({.max_new_tokens = 70});  // more than GPT-2's learned positions
}

TEST(Lora, ChangesNothingAtFirstAndMerges) {
  const auto model = model_of(LanguageKind::llama);
  const torch::Tensor ids = some_ids(2, 6, 3), before = model->forward({.ids = ids}).detach();
  EXPECT_EQ(add_lora(*model, {.rank = 2, .targets = {"q_proj", "down_proj"}}), 4);
  EXPECT_TRUE(torch::equal(model->forward({.ids = ids}), before));
  {
    const torch::NoGradGuard no_grad;
    for (auto& entry : model->named_parameters())
      if (entry.key().find("lora_") != std::string::npos)
        entry.value().copy_(torch::arange(entry.value().numel()).view_as(entry.value()).cos() * 0.1);
  }
  const torch::Tensor adapted = model->forward({.ids = ids});
  EXPECT_GT((adapted - before).abs().max().item<double>(), 1e-3);
  adapted.sum().backward();
  for (const auto& entry : model->named_parameters())
    EXPECT_EQ(entry.value().grad().defined(), entry.key().find("lora_") != std::string::npos) << entry.key();
  for (const auto& entry : model->named_modules(std::string(), false))
    if (auto* projection = dynamic_cast<ProjectionImpl*>(entry.value().get())) projection->merge();
  EXPECT_LT((model->forward({.ids = ids}) - adapted).abs().max().item<double>(), 1e-4);
  EXPECT_EQ(model->named_parameters().size(),
            LanguageModel(tiny(LanguageKind::llama)).named_parameters().size());
  try {
    add_lora(*model, {.targets = {"q_porj"}});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'q_proj'"), std::string::npos) << error.what();
  }
}

// Gates at 0 leave the frozen language model as it is, to the bit.
TEST(Flamingo, ClosedGatesChangeNothing) {
  const torch::NoGradGuard no_grad;
  const auto language = model_of(LanguageKind::llama);
  const auto vision = build_backbone(resolve_model("vit", table({{"image_size", 16},
                                                                 {"patch_size", 8},
                                                                 {"dim", 12},
                                                                 {"depth", 1},
                                                                 {"heads", 2},
                                                                 {"classes", 0}})),
                                     3);
  const FlamingoConfig config{.resampler = {.dim = 12, .depth = 1, .heads = 2, .head_dim = 4, .latents = 3},
                              .gated = {.dim = 16, .media_dim = 12, .heads = 2, .head_dim = 4},
                              .every = 2,
                              .media_token = 5};
  Flamingo flamingo(config, vision, language);
  const torch::Tensor ids = some_ids(2, 8, 4), images = torch::ones({2, 2, 1, 3, 16, 16});
  EXPECT_TRUE(
      torch::equal(flamingo.forward(ids, {}, flamingo.media(images)), language->forward({.ids = ids})));
  EXPECT_THROW(Flamingo(config, nullptr, language).media(images), Error);  // no tower of its own
}

TEST(Llava, CountsPlacesOfImages) {
  EXPECT_EQ(expand_image_tokens({1, 9, 2, 9}, 9, 3), (std::vector<int64_t>{1, 9, 9, 9, 2, 9, 9, 9}));
  const torch::Tensor embedded = torch::zeros({1, 4, 2}),
                      places = torch::tensor({false, true, true, false}).view({1, 4});
  EXPECT_THROW(splice(embedded, places, torch::ones({3, 2})), Error);
  EXPECT_EQ(splice(embedded, places, torch::ones({2, 2})).sum().item<double>(), 4);
}

// Expected ids and scores: T5ForConditionalGeneration.generate(num_beams=3, max_new_tokens=10) of transformers
// with the same parameters in float64 and an output layer of its own. Some texts end early.
TEST(BeamSearch, IsThatOfTransformersForT5) {
  struct Case {
    int64_t dim, heads, depth;
    double phase;
    std::vector<std::vector<int64_t>> ids;
    std::array<double, 2> scores;
  };
  const Case cases[] = {
      {16,
       2,
       1,
       0.5,
       {{12, 24, 14, 14, 14, 14, 14, 14, 14, 14}, {6, 6, 6, 6, 6, 6, 6, 6, 6, 6}},
       {-1.55386, -1.64621}},
      {16, 2, 1, 1.5, {{6, 13, 1}, {1}}, {-1.704406, -1.497791}},
      {16, 2, 1, 2.5, {{19, 25, 16, 1}, {5, 9, 18, 3, 18, 3, 18, 3, 9, 18}}, {-1.778893, -1.780541}},
      {24,
       4,
       2,
       1.0,
       {{5, 9, 18, 0, 5, 9, 18, 0, 5, 9}, {17, 18, 23, 28, 0, 17, 18, 23, 0, 17}},
       {-1.691579, -1.509696}},
      {24, 4, 2, 2.5, {{1}, {1}}, {-1.610093, -1.464255}},
      {24, 4, 2, 3.0, {{15, 11, 14, 1}, {11, 13, 15, 11, 13, 15, 11, 13, 15, 11}}, {-1.779271, -1.612797}},
      {40,
       5,
       3,
       1.5,
       {{27, 14, 16, 28, 14, 13, 28, 14, 16, 16}, {10, 10, 10, 10, 10, 10, 10, 10, 10, 5}},
       {-1.415658, -1.303051}},
      {40, 5, 3, 3.0, {{2, 26, 2, 26, 2, 26, 26, 2, 26, 2}, {12, 1}}, {-1.224459, -1.443387}},
  };
  const torch::NoGradGuard no_grad;
  for (const Case& one : cases) {
    const auto model = make_seq2seq({.kind = Seq2SeqKind::t5,
                                     .vocabulary = 29,
                                     .dim = one.dim,
                                     .heads = one.heads,
                                     .head_dim = 6,
                                     .hidden = 2 * one.dim,
                                     .encoder_depth = one.depth,
                                     .decoder_depth = one.depth,
                                     .buckets = 8,
                                     .furthest = 12,
                                     .gated = true,
                                     .tied = false,
                                     .eps = 1e-6});
    model->to(torch::kFloat64);
    model->eval();
    for (auto& entry : model->named_parameters()) {
      torch::Tensor& weight = entry.value();
      const torch::Tensor i = torch::arange(weight.numel(), torch::kFloat64);
      const torch::Tensor wave =
          (i * i * 0.37 + static_cast<double>(entry.key().size()) * 1.3 + one.phase).sin();
      weight.copy_((weight.dim() == 1 ? 1 + 0.1 * wave : 0.35 * wave).view_as(weight));
    }
    const torch::Tensor source = (torch::arange(22) * 7 % 27 + 2).view({2, 11});
    torch::Tensor mask = torch::ones({2, 11}, torch::kBool);
    mask[1].slice(0, 8).fill_(false);
    const GenerationOptions options{.max_new_tokens = 10, .ends = {1}, .pad = 1, .beams = 3};
    for (const bool cached : {true, false}) {
      const Generated got = generate(next_token_model(*model, source, mask, options.beams, cached),
                                     torch::zeros({2, 1}, torch::kInt64), options);
      for (size_t row = 0; row < 2; ++row) {
        std::vector<int64_t> want = one.ids[row];
        want.insert(want.begin(), 0);
        want.resize(static_cast<size_t>(got.ids.size(1)), 1);
        const auto place = static_cast<int64_t>(row);
        EXPECT_TRUE(torch::equal(got.ids[place], torch::tensor(want, torch::kInt64)))
            << one.dim << " " << one.phase << " " << got.ids[place];
        EXPECT_NEAR(got.scores[place].item<double>(), one.scores[row], 1e-5);
      }
    }
  }
}

// The least temperatures draw the likeliest token.
TEST(TokenRules, TinyTemperatures) {
  const torch::Tensor scores = torch::tensor({{1.0, 3.0, 2.0}, {-700.0, -800.0, -900.0}}, torch::kFloat32);
  for (const double temperature : {1e-5, 1e-9, 1e-40, 1e-300}) {
    const torch::Tensor shares =
        apply_rules(scores, torch::zeros({2, 1}, torch::kInt64), {.temperature = temperature}, {}, 1, true)
            .softmax(1);
    EXPECT_TRUE(torch::equal(shares, torch::tensor({{0.0, 1.0, 0.0}, {1.0, 0.0, 0.0}}, torch::kFloat32)))
        << shares;
  }
}

}  // namespace
}  // namespace tessera::models::language_test
