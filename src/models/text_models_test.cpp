// Properties of the text tower, CoCa, SimVLM and the search of captions; their numbers are in the goldens.
#include <gtest/gtest.h>

#include "core/error.h"
#include "models/language/caption_search.h"
#include "models/pairs/bert_tower.h"
#include "models/pairs/coca.h"
#include "models/pairs/simvlm.h"

namespace tessera::models::text_models_test {
namespace {

using torch::Tensor;

TextTowerConfig small(TextPool pool = TextPool::largest) {
  TextTowerConfig config;
  config.vocab_size = 20, config.context_length = 9, config.dim = 16, config.heads = 2, config.depth = 2;
  config.embed_dim = 8, config.end_token = 19, config.pool = pool;
  return config;
}

Tensor some_ids() {
  return torch::tensor({{1, 4, 7, 19, 0, 0, 0}, {1, 2, 3, 4, 5, 19, 0}, {1, 19, 0, 0, 0, 0, 0}},
                       torch::kInt64);
}

template <class Model>
std::shared_ptr<Model> ready(const std::shared_ptr<Model>& model) {
  model->initialise(3);
  model->to(torch::kFloat64);
  model->eval();
  return model;
}

// Tokens after the end are not computed and change nothing.
TEST(TextTower, WhatIsBehindTheEndIsNotRead) {
  for (const TextPool pool : {TextPool::largest, TextPool::end_token}) {
    const auto tower = ready(std::make_shared<TextTower>(small(pool)));
    const Tensor ids = some_ids(), all = tower->encode(ids), read = tower->forward(ids);
    const Tensor places = tower->read_places(ids);
    EXPECT_TRUE(places.equal(torch::tensor({3, 5, 1}, torch::kInt64)));
    for (int64_t i = 0; i < 3; ++i)
      EXPECT_LT((tower->project(all[i][places[i].item<int64_t>()]) - read[i]).abs().max().item<double>(),
                1e-12);
    Tensor longer = torch::zeros({3, 9}, torch::kInt64);
    longer.slice(1, 0, 7).copy_(ids);
    EXPECT_LT((tower->forward(longer) - read).abs().max().item<double>(), 1e-12);
  }
}

TEST(TextTower, TheFirstPlaceSeesTheTextWhereNothingIsHidden) {
  for (const bool causal : {true, false}) {
    TextTowerConfig config = small(TextPool::first);
    config.causal = causal;
    const auto tower = ready(std::make_shared<TextTower>(config));
    const Tensor ids = some_ids(), read = tower->forward(ids);
    EXPECT_LT((tower->project(tower->encode(ids).select(1, 0)) - read).abs().max().item<double>(), 1e-12);
    Tensor other = ids.clone();
    other.select(1, 1).sub_(1);
    EXPECT_EQ(tower->forward(other).equal(read), causal);
  }
}

TEST(TextTower, TooLongATextIsRefused) {
  const auto tower = ready(std::make_shared<TextTower>(small()));
  const Tensor ids = torch::arange(10, torch::kInt64).unsqueeze(0);
  EXPECT_NO_THROW(tower->forward(ids.slice(1, 0, 9)));
  EXPECT_THROW(tower->forward(ids), Error);
}

// Padding changes nothing; every token of the text counts.
TEST(BertTower, ReadsTheWholeTextWithoutItsPadding) {
  BertTowerConfig config;
  config.context_length = 9, config.embed_dim = 8;
  config.bert = {.vocabulary = 20, .dim = 16, .depth = 2, .heads = 2, .context = 9};
  const auto tower = ready(std::make_shared<BertTower>(config));
  const Tensor ids = some_ids(), read = tower->forward(ids);
  EXPECT_EQ(read.sizes(), (std::vector<int64_t>{3, 8}));
  EXPECT_LT(
      (tower->forward(ids.slice(0, 0, 1).slice(1, 0, 4)) - read.slice(0, 0, 1)).abs().max().item<double>(),
      1e-12);
  for (int64_t place = 0; place < 6; ++place) {
    Tensor other = ids.clone();
    other[1][place] = 18;
    EXPECT_GT((tower->forward(other)[1] - read[1]).abs().max().item<double>(), 1e-6) << place;
  }
  EXPECT_EQ(tower->vocabulary(), 20);
  EXPECT_THROW(tower->forward(torch::zeros({1, 10}, torch::kInt64)), Error);
  config.context_length = 10;
  EXPECT_THROW(BertTower{config}, Error);
}

TEST(Coca, TheDecoderSeesNoLaterToken) {
  CocaConfig config;
  config.text = small(), config.image_width = 12, config.embed_dim = 8, config.queries = 3,
  config.pooler_heads = 2;
  config.decoder_depth = 2, config.decoder_heads = 2;
  const auto coca = ready(std::make_shared<Coca>(config));
  const Coca::Side image = coca->image(torch::randn({3, 5, 12}, torch::kFloat64));
  Tensor ids = torch::tensor({{1, 4, 7, 9, 3, 2}, {1, 2, 3, 4, 5, 6}, {1, 9, 8, 7, 6, 5}}, torch::kInt64);
  const Tensor before = coca->decode(image.tokens, coca->text(ids).tokens);
  ids.select(1, 4).fill_(11);
  const Tensor after = coca->decode(image.tokens, coca->text(ids).tokens);
  EXPECT_LT((before - after).slice(1, 0, 4).abs().max().item<double>(), 1e-12);
  EXPECT_GT((before - after).slice(1, 4).abs().max().item<double>(), 1e-6);
}

TEST(SimVlm, ThePrefixIsReadInBothDirectionsAndTheRestIsNot) {
  for (const int64_t decoder : {0, 2}) {
    const auto model = ready(std::make_shared<SimVlm>(SimVlmConfig{.vocab_size = 20,
                                                                   .context_length = 8,
                                                                   .dim = 16,
                                                                   .heads = 2,
                                                                   .depth = 2,
                                                                   .decoder_depth = decoder,
                                                                   .image_width = 6,
                                                                   .image_tokens = 4}));
    const Tensor image = torch::randn({1, 4, 6}, torch::kFloat64);
    const auto numbers = [](int64_t n) { return torch::full({1}, n, torch::kInt64); };
    Tensor ids = torch::tensor({{1, 4, 7, 9, 3, 2}}, torch::kInt64);
    const auto logits = [&] { return model->forward(image, ids, numbers(3), numbers(6)); };
    const Tensor before = logits();
    ids[0][4] = 11;  // after the prefix: seen only by later tokens
    const Tensor later = logits();
    EXPECT_LT((before - later).slice(1, 2, 4).abs().max().item<double>(), 1e-12);
    EXPECT_GT((before - later).select(1, 4).abs().max().item<double>(), 1e-6);
    ids[0][4] = 3;
    ids[0][1] = 12;  // in the prefix: seen by all
    EXPECT_GT((before - logits()).select(1, 2).abs().max().item<double>(), 1e-6);
  }
}

// Returns scores of the next token from a table, by the last token.
NextToken chain(const Tensor& table) {
  return [table](const Tensor& ids, const Tensor&) { return table.index_select(0, ids.select(1, -1)); };
}

// The likeliest first token is a trap: its continuations share its probability.
TEST(CaptionSearch, BeamsSeeBehindTheFirstToken) {
  Tensor table = torch::full({5, 5}, 1e-4, torch::kFloat64);
  table[1][3] = 0.55, table[1][4] = 0.45;
  table[3][2] = 0.34, table[3][3] = 0.33, table[3][4] = 0.33;
  table[4][2] = 1;
  table = table.log();
  const CaptionSearch greedy{.start = 1, .end = 2, .pad = 0, .longest = 6};
  CaptionSearch two = greedy;
  two.beams = 2;
  EXPECT_EQ(search_captions(1, greedy, chain(table))[0][1].item<int64_t>(), 3);
  EXPECT_TRUE(search_captions(2, two, chain(table))
                  .slice(1, 0, 3)
                  .equal(torch::tensor({{1, 4, 2}, {1, 4, 2}}, torch::kInt64)));
}

TEST(CaptionSearch, GreedyTakesTheBestTokenAndEnds) {
  Tensor table = torch::full({4, 4}, -5.0);
  table[1][3] = 2, table[3][2] = 1, table[3][3] = 0.5;
  const Tensor ids = search_captions(2, {.start = 1, .end = 2, .pad = 0, .longest = 6}, chain(table));
  EXPECT_TRUE(ids.equal(torch::tensor({{1, 3, 2}, {1, 3, 2}}, torch::kInt64)));
  const Tensor longer =
      search_captions(1, {.start = 1, .end = 2, .pad = 0, .longest = 6, .shortest = 5}, chain(table));
  EXPECT_EQ(longer.size(1), 6);
  EXPECT_EQ(longer[0][5].item<int64_t>(), 2);
  EXPECT_THROW(search_captions(1, {.longest = 6, .beams = 6, .groups = 4}, chain(table)), Error);
}

}  // namespace
}  // namespace tessera::models::text_models_test
