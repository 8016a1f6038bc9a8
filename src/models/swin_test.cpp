// Properties of the windows and options of Swin.
#include <gtest/gtest.h>

#include "core/error.h"
#include "models/backbones/models_testing.h"

namespace tessera::models::swin_test {
namespace {

using torch::Tensor;

// Builds two stages on patches of one pixel, in double, with all weights well away from zero.
std::shared_ptr<Classifier> lively(Value::Table entries) {
  Value all(Value::Table{{"patch_size", 1},
                         {"image_size", 8},
                         {"dims", Value::Array{8, 16}},
                         {"depths", Value::Array{2, 1}},
                         {"heads", Value::Array{2, 2}},
                         {"window_size", 4},
                         {"classes", 3}});
  merge(all, Value(std::move(entries)));
  return lively(resolve_model("swin", all), 0.2);
}

Tensor picture(int64_t height = 8, int64_t width = 8) {
  torch::manual_seed(3);
  return torch::randn({1, 3, height, width}, torch::kFloat64);
}

// Returns the cells of the first stage that change with the image's top left pixel, [rows, columns].
Tensor reached(const Classifier& model) {
  const torch::NoGradGuard no_grad;
  Tensor changed = picture();
  changed[0].select(1, 0).select(1, 0).add_(1);
  const Tensor difference =
      model.backbone->features(picture(), {0})[0] - model.backbone->features(changed, {0})[0];
  return (difference.abs().amax(1)[0] > 1e-12).to(torch::kInt64);
}

TEST(Swin, ShiftedWindowsReachTheirNeighbours) {
  const Tensor apart = reached(*lively({{"shift", false}})), across = reached(*lively({}));
  EXPECT_EQ(apart.sum().item<int64_t>(), 16);
  EXPECT_EQ(apart.slice(0, 0, 4).slice(1, 0, 4).sum().item<int64_t>(), 16);
  // From the first window to all cells that share a shifted window with it: 6 x 6, and none across the
  // border.
  EXPECT_EQ(across.sum().item<int64_t>(), 36);
  EXPECT_EQ(across.slice(0, 0, 6).slice(1, 0, 6).sum().item<int64_t>(), 36);
}

// One window without biases is global attention, which does not depend on the places of cells.
TEST(Swin, OneWindowIsGlobalAttention) {
  const torch::NoGradGuard no_grad;
  const Tensor order = torch::randperm(64);
  const auto moved = [&](const Tensor& map) {
    return map.flatten(2).index_select(2, order).view(map.sizes());
  };
  const auto knows_places = [&](Value::Table entries) {
    const auto model = lively(std::move(entries));
    return !torch::allclose(model->backbone->features(moved(picture()), {0})[0],
                            moved(model->backbone->features(picture(), {0})[0]));
  };
  EXPECT_FALSE(knows_places({{"window_size", 8}, {"relative_bias", false}}));
  EXPECT_FALSE(knows_places({{"window_size", 20}, {"relative_bias", false}}));
  EXPECT_TRUE(knows_places({{"window_size", 8}}));
  EXPECT_TRUE(knows_places({{"window_size", 4}, {"relative_bias", false}}));
  EXPECT_TRUE(knows_places({{"window_size", 8}, {"relative_bias", false}, {"positions", "learned"}}));
}

// The bias of a pair of cells depends only on the offset between them.
TEST(Swin, TheBiasIsRelative) {
  const auto model = lively({{"window_size", 8}});
  const torch::NoGradGuard no_grad;
  for (const auto& entry : model->backbone->named_parameters())  // scores are only the bias
    if (entry.key().find("attn.qkv") != std::string::npos) entry.value().zero_();
  Taps taps;
  model->forward(picture(), {.taps = &taps});
  const Tensor scores = taps.kept.at("blocks.0.0.attention").log()[0].view({2, 8, 8, 8, 8});
  const auto at = [&](int64_t row, int64_t column, int64_t key_row, int64_t key_column) {
    const auto of = [&](int64_t r, int64_t c) {
      return scores.select(1, row).select(1, column).select(1, r).select(1, c);
    };
    return of(key_row, key_column) - of(row, column);
  };
  EXPECT_TRUE(torch::allclose(at(0, 0, 2, 3), at(5, 4, 7, 7)));
  EXPECT_TRUE(torch::allclose(at(6, 1, 1, 0), at(7, 6, 2, 5)));
  EXPECT_FALSE(torch::allclose(at(0, 0, 2, 3), at(0, 0, 3, 2)));
}

TEST(Swin, TakesPicturesOfAnySize) {
  const auto model = lively({{"patch_size", 2}, {"image_size", 16}});
  const torch::NoGradGuard no_grad;
  const auto maps = model->backbone->features(picture(13, 21), {0, 1});
  EXPECT_EQ(maps[0].sizes(), (std::vector<int64_t>{1, 8, 7, 11}));
  EXPECT_EQ(maps[1].sizes(), (std::vector<int64_t>{1, 16, 4, 6}));
  EXPECT_TRUE(model->forward(picture(13, 21)).isfinite().all().item<bool>());
}

TEST(Swin, FitsTablesOfAnotherWindow) {
  const auto model = lively({{"positions", "learned"}});
  const char* name = "layers.0.blocks.1.attn.relative_position_bias_table";
  const Tensor stored = torch::randn({11 * 11, 2});
  EXPECT_EQ(model->backbone->fit(name, stored).sizes(), (std::vector<int64_t>{49, 2}));
  EXPECT_FALSE(model->backbone->fit(name, torch::randn({11 * 12, 2})).defined());
  EXPECT_FALSE(model->backbone->fit(name, torch::randn({11 * 11, 3})).defined());
  EXPECT_EQ(model->backbone->fit("absolute_pos_embed", torch::randn({1, 36, 8})).sizes(),
            (std::vector<int64_t>{1, 64, 8}));
  EXPECT_FALSE(model->backbone->fit("norm.weight", stored).defined());
}

TEST(Swin, ErrorsNameTheKey) {
  for (const Value::Table& wrong :
       {Value::Table{{"depths", Value::Array{2}}}, Value::Table{{"window_size", 0}},
        Value::Table{{"positions", "sincos"}}, Value::Table{{"heads", Value::Array{3, 2}}}})
    EXPECT_THROW(lively(wrong), Error);
}

}  // namespace
}  // namespace tessera::models::swin_test
