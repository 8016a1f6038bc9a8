#include "models/backbones/darl.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "models/backbones/models_testing.h"
#include "models/base/tokeniser.h"
#include "nn/patch_embed.h"

namespace tessera::models::darl_test {
namespace {

using torch::Tensor;

ModelSpec small(Value::Table entries) {
  Value all(Value::Table{{"dim", 16},
                         {"heads", 2},
                         {"depth", 2},
                         {"patch_size", 4},
                         {"image_size", 16},
                         {"classes", 3},
                         {"mlp_ratio", 2}});
  merge(all, Value(std::move(entries)));
  return resolve_model("darl", all);
}

std::shared_ptr<Classifier> lively(Value::Table entries) { return lively(small(std::move(entries)), 0.2); }

Tensor picture(int64_t height = 16, int64_t width = 16) {
  torch::manual_seed(3);
  return torch::randn({1, 3, height, width}, torch::kFloat64);
}

// Returns the image with the patch at one place of the raster changed.
Tensor with_patch_changed(const Tensor& image, int64_t place) {
  Tensor changed = image.clone();
  const int64_t columns = image.size(3) / 4, y = place / columns * 4, x = place % columns * 4;
  changed.slice(2, y, y + 4).slice(3, x, x + 4).add_(1);
  return changed;
}

// Returns which rows of [1, rows, dim] differ.
std::vector<bool> rows_that_differ(const Tensor& a, const Tensor& b) {
  const Tensor difference = (a - b).abs().amax(-1).squeeze(0);
  std::vector<bool> rows;
  for (int64_t i = 0; i < difference.size(0); ++i) rows.push_back(difference[i].item<double>() > 1e-12);
  return rows;
}

NextPatch& next_patch(const Classifier& model) { return dynamic_cast<NextPatch&>(*model.backbone); }

TEST(Darl, ParametersFollowFromTheFormula) {
  const auto count = [](int64_t patch, int64_t d, int64_t depth) {
    const int64_t embedding = 3 * patch * patch * d + d, start = d;
    const int64_t block = 3 * d * d + 3 * d + d * d + d + 8 * d * d + 5 * d + 4 * d;
    return embedding + start + depth * block + 2 * d + 1000 * d + 1000;
  };
  const auto parameters = [](const char* name) {
    return count_parameters(*meta_classifier(resolve_model(name))->backbone);
  };
  EXPECT_EQ(parameters("darl-b16"), count(16, 768, 12));
  EXPECT_EQ(parameters("darl-l16"), count(16, 1024, 24));
  EXPECT_EQ(parameters("darl-h14"), count(14, 1280, 32));
}

// Returns tokens of patches: their mean, quantised to 8 steps.
Tensor mean_tokens(const Tensor& images, int64_t rows, int64_t columns) {
  const Tensor means = nn::patchify(images, images.size(2) / rows).mean(-1);
  EXPECT_EQ(means.size(1), rows * columns);
  return (means * 2 + 4).floor().clamp(0, 7).to(torch::kInt64);
}

TEST(Darl, ReadsTokensInsteadOfPixels) {
  const auto model = lively({{"codes", 8}, {"tokeniser", "somewhere"}});
  auto& reader = dynamic_cast<ReadsTokens&>(*model->backbone);
  const Tensor image = picture();
  EXPECT_THROW(next_patch(*model).before_each_patch(image), Error);  // no source of tokens
  reader.set_tokens(mean_tokens, "a");
  const Tensor before = next_patch(*model).before_each_patch(image);
  // Only a patch's token matters, and only for later patches.
  Tensor shuffled = image.clone();
  shuffled.slice(2, 4, 8).slice(3, 8, 12).copy_(shuffled.slice(2, 4, 8).slice(3, 8, 12).flip(3));
  EXPECT_TRUE(torch::equal(before, next_patch(*model).before_each_patch(shuffled)));
  const auto differ =
      rows_that_differ(before, next_patch(*model).before_each_patch(with_patch_changed(image, 6)));
  for (int64_t row = 0; row < 16; ++row) EXPECT_EQ(differ[static_cast<size_t>(row)], row > 6) << row;
  // Codes that occur in no image get no gradient.
  reader.set_tokens(
      [](const Tensor& images, int64_t rows, int64_t columns) {
        return torch::full({images.size(0), rows * columns}, 5, torch::kInt64);
      },
      "b");
  EXPECT_EQ(reader.tokens_checksum(), "b");
  model->forward(image, {}).sum().backward();
  for (const auto& parameter : model->backbone->named_parameters()) {
    if (parameter.key() != "token_embed.weight") continue;
    const Tensor used = parameter.value().grad().abs().sum(1) > 0;
    EXPECT_EQ(used.sum().item<int64_t>(), 1);
    EXPECT_TRUE(used[5].item<bool>());
  }
  EXPECT_THROW(small({{"codes", 8}}), Error);
  EXPECT_THROW(small({{"tokeniser", "somewhere"}}), Error);
}

// Row t may depend on the patches before it in the order, and does.
TEST(Darl, NoPatchSeesItselfOrALaterOne) {
  const Tensor image = picture();
  for (const bool random : {false, true})
    for (const auto& [streams, start] : {std::pair(false, true), {true, true}, {true, false}}) {
      const auto model = lively({{"two_stream", streams}, {"start_token", start}});
      torch::manual_seed(5);
      const Tensor order = random ? torch::randperm(16, torch::kInt64) : torch::arange(16, torch::kInt64);
      const auto rows = [&](const Tensor& x) {
        return streams ? next_patch(*model).two_streams(x, order).query
                       : next_patch(*model).before_each_patch(x, order);
      };
      const Tensor before = rows(image);
      for (const int64_t t : {0, 6, 15}) {
        const Tensor after = rows(with_patch_changed(image, order[t].item<int64_t>()));
        const auto differ = rows_that_differ(before, after);
        for (int64_t row = 0; row < 16; ++row)
          EXPECT_EQ(differ[static_cast<size_t>(row)], row > t)
              << "row " << row << ", patch " << t << (streams ? ", two streams" : "");
      }
    }
}

// The query stream depends on places only. Two orders with the same past and target have the same row,
// whatever comes after.
TEST(Darl, AQueryDependsOnWhatWasSeenAndOnItsPlace) {
  const auto model = lively({{"two_stream", true}});
  const Tensor order = torch::arange(16, torch::kInt64), other = order.clone(), elsewhere = order.clone();
  other.slice(0, 8).copy_(order.slice(0, 8).flip(0));            // the same except for places 8 …
  elsewhere.slice(0, 0, 7).copy_(order.slice(0, 0, 7).flip(0));  // other order of the same first patches
  const Tensor a = next_patch(*model).two_streams(picture(), order).query,
               b = next_patch(*model).two_streams(picture(), other).query,
               c = next_patch(*model).two_streams(picture(), elsewhere).query;
  EXPECT_TRUE(torch::allclose(a.slice(1, 0, 8), b.slice(1, 0, 8)));
  EXPECT_FALSE(torch::allclose(a.select(1, 8), b.select(1, 8)));  // another target
  EXPECT_FALSE(torch::allclose(a.select(1, 1), c.select(1, 1)));  // other patches before
  EXPECT_ANY_THROW(next_patch(*lively({})).two_streams(picture(), order));
}

// XLNet's layout: content row t is patch t itself, and query t sees content 0 … t - 1.
TEST(Darl, WithoutAStartTokenTheFirstQuerySeesNothing) {
  torch::manual_seed(5);
  const Tensor images = torch::randn({2, 3, 16, 16}, torch::kFloat64),
               order = torch::randperm(16, torch::kInt64);
  for (const char* positions : {"none", "absolute", "learned", "rope_1d", "rope_2d", "rope_mixed"}) {
    const auto model = lively({{"positions", positions}, {"two_stream", true}, {"start_token", false}});
    const NextPatch::Streams streams = next_patch(*model).two_streams(images, order);
    ASSERT_EQ(streams.query.size(1), 16);
    ASSERT_EQ(streams.content.size(1), 15);
    EXPECT_TRUE(torch::allclose(streams.query[0][0], streams.query[1][0])) << positions;  // for any image
    EXPECT_FALSE(torch::allclose(streams.query[0][1], streams.query[1][1])) << positions;
    Tensor loss = model->forward(images).square().sum() + streams.query.square().sum();
    loss.backward();
    for (const auto& entry : model->backbone->named_parameters()) {
      EXPECT_NE(entry.key(), "start_token");
      EXPECT_TRUE(entry.value().grad().defined() && entry.value().grad().abs().max().item<double>() > 0)
          << positions << ": " << entry.key();
    }
  }
  EXPECT_ANY_THROW(lively({{"start_token", false}}));
  EXPECT_ANY_THROW(lively({{"two_stream", true}, {"start_token", false}, {"image_size", 4}}));  // one patch
}

// With an order per sample, each sample gets the same as with that order for all.
TEST(Darl, EverySampleMayHaveItsOwnOrder) {
  torch::manual_seed(5);
  const Tensor images = torch::randn({3, 3, 16, 24}, torch::kFloat64);
  const Tensor orders = torch::stack({torch::arange(24, torch::kInt64), torch::randperm(24, torch::kInt64),
                                      torch::randperm(24, torch::kInt64)});
  for (const char* positions : {"none", "absolute", "learned", "rope_1d", "rope_2d", "rope_mixed"}) {
    const auto model = lively({{"positions", positions}, {"two_stream", true}});
    const Tensor tokens = next_patch(*model).before_each_patch(images, orders);
    const NextPatch::Streams streams = next_patch(*model).two_streams(images, orders);
    for (int64_t b = 0; b < 3; ++b) {
      const Tensor image = images.slice(0, b, b + 1);
      const NextPatch::Streams alone = next_patch(*model).two_streams(image, orders[b]);
      EXPECT_TRUE(torch::allclose(tokens[b], next_patch(*model).before_each_patch(image, orders[b])[0]))
          << positions;
      EXPECT_TRUE(torch::allclose(streams.query[b], alone.query[0])) << positions;
      EXPECT_TRUE(torch::allclose(streams.content[b], alone.content[0])) << positions;
    }
  }
  const auto model = lively({{"two_stream", true}});
  EXPECT_ANY_THROW(next_patch(*model).two_streams(images, orders.slice(0, 0, 2)));  // two of three samples
  EXPECT_ANY_THROW(next_patch(*model).two_streams(images, orders.clamp_max(22)));   // no permutations
}

TEST(Darl, CausalOrBidirectionalAtUse) {
  const Tensor image = picture(), changed = with_patch_changed(image, 10);
  for (const bool causal : {false, true}) {
    const auto model = lively({{"causal", causal}, {"pooling", "mean"}});
    const auto tokens = [&](const Tensor& x) {
      Taps taps;
      model->backbone->embed(x, {.taps = &taps});
      return taps.kept.at("blocks.1");
    };
    const auto differ = rows_that_differ(tokens(image), tokens(changed));  // token 0 is start
    for (size_t row = 0; row < 17; ++row) EXPECT_EQ(differ[row], !causal || row >= 11) << row;
  }
}

TEST(Darl, EveryKindOfPositionsRunsAtAnyGridAndLearns) {
  for (const char* positions : {"none", "absolute", "learned", "rope_1d", "rope_2d", "rope_mixed"})
    for (const bool streams : {false, true}) {
      const auto model = lively({{"positions", positions}, {"two_stream", streams}});
      EXPECT_EQ(model->forward(picture(16, 24)).sizes(), (std::vector<int64_t>{1, 3}));
      EXPECT_EQ(model->backbone->features(picture(8, 24), {1})[0].sizes(),
                (std::vector<int64_t>{1, 16, 2, 6}));
      Tensor loss = model->forward(picture(16, 24)).square().sum();
      if (streams) loss = loss + next_patch(*model).two_streams(picture(16, 24)).query.square().sum();
      loss.backward();
      for (const auto& entry : model->backbone->named_parameters())
        EXPECT_TRUE(entry.value().grad().defined() && entry.value().grad().abs().max().item<double>() > 0)
            << positions << ": " << entry.key();
    }
}

// Without positions, the mean does not depend on the places of patches; with any, it does.
TEST(Darl, PositionsTellPlacesApart) {
  const Tensor image = picture(), rolled = torch::cat({image.slice(2, 8), image.slice(2, 0, 8)}, 2);
  for (const char* positions : {"none", "absolute", "learned", "rope_1d", "rope_2d", "rope_mixed"}) {
    const auto model = lively({{"positions", positions}, {"pooling", "mean"}});
    EXPECT_EQ(torch::allclose(model->backbone->embed(image), model->backbone->embed(rolled)),
              std::string(positions) == "none")
        << positions;
  }
}

// Rotary positions of a grid twice as fine are half as far apart; the original grid stays the same.
TEST(Darl, InterpolatedPositionsSpanTheGridOfTraining) {
  for (const char* positions : {"rope_1d", "rope_2d", "rope_mixed"}) {
    const auto scaled = lively({{"positions", positions}}),
               onward = lively({{"positions", positions}, {"interpolate", false}});
    EXPECT_TRUE(torch::equal(scaled->backbone->embed(picture()), onward->backbone->embed(picture())));
    EXPECT_FALSE(
        torch::allclose(scaled->backbone->embed(picture(32, 32)), onward->backbone->embed(picture(32, 32))));
    // Built for the larger grid, scaled and continued positions agree.
    const auto large = lively({{"positions", positions}, {"image_size", 32}});
    EXPECT_TRUE(
        torch::equal(large->backbone->embed(picture(32, 32)), onward->backbone->embed(picture(32, 32))));
  }
}

TEST(PatchOrder, EveryOrderIsAPermutation) {
  for (const char* kind : {"raster", "nested", "round_robin"})
    for (const int64_t block : {1, 2, 3, 8})
      EXPECT_TRUE(torch::equal(std::get<0>(patch_order(kind, 5, 7, block).sort()), torch::arange(35)))
          << kind;
  EXPECT_TRUE(torch::equal(patch_order("nested", 2, 4, 2), torch::tensor({0, 1, 4, 5, 2, 3, 6, 7})));
  EXPECT_TRUE(torch::equal(patch_order("round_robin", 2, 4, 2), torch::tensor({0, 2, 1, 3, 4, 6, 5, 7})));
  EXPECT_ANY_THROW(patch_order("spiral", 2, 2));
  const auto model = lively({});
  EXPECT_ANY_THROW(next_patch(*model).before_each_patch(picture(), torch::zeros({16}, torch::kInt64)));
  EXPECT_ANY_THROW(next_patch(*model).before_each_patch(picture(), torch::arange(9)));
}

}  // namespace
}  // namespace tessera::models::darl_test
