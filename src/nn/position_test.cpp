#include <gtest/gtest.h>

#include "nn/attention.h"
#include "nn/position.h"
#include "nn/relative_position.h"
#include "nn/rope.h"
#include "nn/rope_scaling.h"

namespace tessera::nn {
namespace {

using torch::Tensor;

TEST(Positions, ResamplingKeepsConstantsAndTheOwnGrid) {
  const Tensor table = torch::randn({3, 5, 4}), flat = torch::full({3, 5, 4}, 2.5);
  for (const Resample how :
       {Resample::bicubic, Resample::bicubic_antialias, Resample::bilinear, Resample::bilinear_antialias}) {
    EXPECT_TRUE(torch::equal(resample_grid(table, 3, 5, how), table));
    EXPECT_TRUE(torch::allclose(resample_grid(flat, 7, 2, how), torch::full({7, 2, 4}, 2.5)));
  }
}

TEST(Positions, LeadingTokensAreCopied) {
  const Tensor table = torch::randn({1, 2 + 6, 4});
  const Tensor moved = resample_tokens(table, 2, 2, 3, 4, 4, Resample::bicubic_antialias);
  EXPECT_EQ(moved.sizes(), (std::vector<int64_t>{1, 2 + 16, 4}));
  EXPECT_TRUE(torch::equal(moved.slice(1, 0, 2), table.slice(1, 0, 2)));
  EXPECT_ANY_THROW(resample_tokens(table, 1, 2, 3, 4, 4, Resample::bicubic));
}

TEST(Positions, SineCosineCodesColumnsFirst) {
  const Tensor table = sincos_2d(3, 4, 8).view({3, 4, 8});
  EXPECT_TRUE(torch::equal(table[0].slice(1, 0, 4), table[2].slice(1, 0, 4)));
  EXPECT_TRUE(torch::equal(table.select(1, 0).slice(1, 4), table.select(1, 3).slice(1, 4)));
  EXPECT_NEAR(table[1][2][0].item<double>(), std::sin(2.0), 1e-6);
  EXPECT_NEAR(table[1][2][3].item<double>(), std::cos(2.0 / 100), 1e-6);
  EXPECT_NEAR(table[1][2][4].item<double>(), std::sin(1.0), 1e-6);
}

TEST(Rope, ScoresDependOnRelativePositionOnly) {
  const Tensor q = torch::randn({1, 2, 12, 8}, torch::kFloat64),
               k = torch::randn({1, 2, 12, 8}, torch::kFloat64);
  const auto same_vector = [](const Tensor& x) { return x.select(2, 0).unsqueeze(2).expand({1, 2, 12, 8}); };
  const auto scores = [&](const Rotation& rotation) {
    return torch::matmul(rotate(same_vector(q), rotation),
                         rotate(same_vector(k), rotation).transpose(-2, -1));
  };
  const Tensor line = scores(rotation_1d(torch::arange(12, torch::kFloat64), 8));
  EXPECT_TRUE(torch::allclose(line.slice(-2, 0, 9).slice(-1, 0, 9), line.slice(-2, 3).slice(-1, 3)));
  const GridPositions grid = grid_positions(0, 12, 4);  // 3 rows of 4
  const Tensor plane = scores(rotation_2d(grid.x, grid.y, 8)).view({1, 2, 3, 4, 3, 4});
  const auto from = [&](int64_t row, int64_t column) {  // 2 x 3 tokens against 2 x 3 tokens
    return plane.slice(2, row, row + 2)
        .slice(3, column, column + 3)
        .slice(4, row, row + 2)
        .slice(5, column, column + 3);
  };
  EXPECT_TRUE(torch::allclose(from(0, 0), from(1, 1)));
  EXPECT_FALSE(torch::allclose(plane.select(2, 0), plane.select(2, 1)));
}

TEST(Rope, TablesHaveThePublishedLayout) {
  const GridPositions grid = grid_positions(-1, 6, 3);  // a class token before 2 rows of 3
  EXPECT_TRUE(torch::equal(grid.x, torch::tensor({2, 0, 1, 2, 0, 1, 2}, torch::kFloat64)));
  EXPECT_TRUE(torch::equal(grid.y, torch::tensor({-1, 0, 0, 0, 1, 1, 1}, torch::kFloat64)));
  const Tensor angles = rotation_2d(grid.x, grid.y, 8, 100).angles;  // pairs x, y, x, y
  EXPECT_TRUE(torch::allclose(angles[6], torch::tensor({2.0, 1.0, 0.2, 0.1}, torch::kFloat64)));
  const Rotation pieces = split_over_heads(rotation_1d(torch::arange(3, torch::kFloat64), 8), 2);
  EXPECT_EQ(pieces.angles.sizes(), (std::vector<int64_t>{2, 3, 2}));
  EXPECT_NEAR(pieces.angles[1][2][0].item<double>(), 2 * std::pow(10000, -0.5), 1e-12);
}

TEST(Rope, RotatesAShareOfTheChannels) {
  const Tensor x = torch::randn({1, 1, 3, 6});
  const Tensor y = rotate(x, rotation_1d(torch::arange(3, torch::kFloat64), 4));
  EXPECT_TRUE(torch::equal(y.slice(-1, 4), x.slice(-1, 4)));
  EXPECT_FALSE(torch::allclose(y.slice(-1, 0, 4), x.slice(-1, 0, 4)));
  EXPECT_TRUE(torch::allclose(y.norm(2, -1), x.norm(2, -1)));
  EXPECT_TRUE(torch::equal(y.select(2, 0), x.select(2, 0)));  // position 0
}

// ---- positions of sequences

TEST(RelativePosition, BucketsGrowWithTheDistance) {
  const Tensor offsets = torch::arange(-50, 51), both = relative_buckets(offsets, true, 16, 40),
               earlier = relative_buckets(offsets, false, 16, 40);
  EXPECT_TRUE((both.slice(0, 0, 50).diff() <= 0).all().item<bool>());  // up to the query, then from 8 on
  EXPECT_TRUE((both.slice(0, 51).diff() >= 0).all().item<bool>());
  EXPECT_TRUE(torch::equal(both.slice(0, 51) - 8, both.slice(0, 0, 50).flip(0)));
  EXPECT_EQ(both[50].item<int64_t>(), 0);
  EXPECT_EQ(both.max().item<int64_t>(), 15);
  EXPECT_EQ(both[100].item<int64_t>(), both[91].item<int64_t>());  // 50 and 41 exceed the furthest
  EXPECT_EQ(earlier.slice(0, 50).max().item<int64_t>(), 0);
  EXPECT_EQ(earlier[0].item<int64_t>(), 15);
  EXPECT_ANY_THROW(relative_buckets(offsets, true, 2, 40));
  EXPECT_ANY_THROW(relative_buckets(offsets, true, 16, 4));
}

TEST(RelativePosition, AlibiFallsWithTheDistance) {
  for (const int64_t heads : {1, 6, 8}) {
    const Tensor slopes = alibi_slopes(heads), bias = alibi_bias(heads, 5);
    EXPECT_EQ(slopes.size(0), heads);
    EXPECT_TRUE(((slopes > 0) & (slopes <= 1)).all().item<bool>());
    EXPECT_EQ(std::get<0>(at::_unique(slopes)).size(0), heads);  // every head has another range
    EXPECT_TRUE(torch::equal(bias, bias.transpose(1, 2)));
    EXPECT_TRUE(torch::allclose(bias.select(1, 0).select(1, 3), slopes * -3));
  }
}

TEST(RelativePosition, AlibiOnAGridFallsWithTheDistance) {
  // One row of patches is the sequence.
  EXPECT_TRUE(torch::allclose(alibi_bias_2d(3, 0, 1, 7)[0], alibi_bias(3, 7)));
  const torch::Tensor bias = alibi_bias_2d(2, 1, 4, 5)[0];  // a class token, then 20 patches
  EXPECT_EQ(bias.sizes(), (std::vector<int64_t>{2, 21, 21}));
  EXPECT_EQ(bias.select(1, 0).abs().max().item<double>(), 0);
  EXPECT_EQ(bias.select(2, 0).abs().max().item<double>(), 0);
  // From (0, 1) to (3, 5 - 1): 3 rows and 3 columns away.
  EXPECT_NEAR(bias[1][1 + 1][1 + 3 * 5 + 4].item<double>(),
              -std::sqrt(18.0) * alibi_slopes(2)[1].item<double>(), 1e-12);
}

TEST(RopeScaling, FastPairsStayAndSlowOnesAreStretched) {
  const Tensor plain = rotary_frequencies(32, 10000);
  EXPECT_TRUE(torch::equal(rotation_at(torch::arange(3, torch::kFloat64), plain).angles,
                           rotation_1d(torch::arange(3, torch::kFloat64), 32).angles));
  using enum RopeScalingKind;
  for (const RopeScalingKind kind : {yarn, llama3}) {
    const Tensor scaled = rotary_frequencies(32, 10000, {.kind = kind, .factor = 4, .trained = 256});
    EXPECT_DOUBLE_EQ(scaled[0].item<double>(), plain[0].item<double>()) << name_of(kind);
    EXPECT_DOUBLE_EQ(scaled[15].item<double>(), plain[15].item<double>() / 4) << name_of(kind);
    EXPECT_TRUE(((scaled <= plain) & (scaled >= plain / 4)).all().item<bool>()) << name_of(kind);
  }
  for (const RopeScalingKind kind : {linear, ntk, dynamic, yarn, llama3})
    EXPECT_TRUE(torch::allclose(rotary_frequencies(32, 10000, {.kind = kind, .trained = 256}), plain))
        << name_of(kind);
  // Between pairs instead of at pairs.
  const RopeScaling between{.kind = yarn, .factor = 4, .trained = 256, .whole_pairs = false};
  EXPECT_FALSE(torch::allclose(rotary_frequencies(32, 10000, between),
                               rotary_frequencies(32, 10000, {.kind = yarn, .factor = 4, .trained = 256})));
  RopeScaling longer{.kind = longrope,
                     .factor = 4,
                     .trained = 64,
                     .short_factors = {1, 2, 3, 4},
                     .long_factors = {5, 6, 7, 8}};
  const Tensor few = rotary_frequencies(8, 10000);
  EXPECT_TRUE(torch::allclose(few / rotary_frequencies(8, 10000, longer, 64),
                              torch::tensor({1, 2, 3, 4}).to(torch::kFloat64)));
  EXPECT_TRUE(torch::allclose(few / rotary_frequencies(8, 10000, longer, 65),
                              torch::tensor({5, 6, 7, 8}).to(torch::kFloat64)));
  EXPECT_DOUBLE_EQ(rotary_magnitude(longer), std::sqrt(4.0 / 3));  // ln 4 / ln 64 = 1 / 3
  longer.magnitude = 1.5;
  EXPECT_EQ(rotary_magnitude(longer), 1.5);
  EXPECT_ANY_THROW(rotary_frequencies(6, 10000, longer));  // three pairs, four factors
  const RopeScaling growing{.kind = dynamic, .factor = 2, .trained = 64};
  EXPECT_TRUE(torch::allclose(rotary_frequencies(32, 10000, growing, 64), plain));
  EXPECT_LT(rotary_frequencies(32, 10000, growing, 65)[15].item<double>(), plain[15].item<double>());
  EXPECT_ANY_THROW(parse_enum<RopeScalingKind>("longer", "kind"));
  EXPECT_ANY_THROW(rotary_frequencies(32, 10000, {.kind = yarn, .factor = 2}));
}

// Scores depend only on relative positions; a shift along either axis changes them; heads differ.
TEST(RopeMixed, PairsAreRotatedByBothAxes) {
  const MixedFrequencies theta = mixed_frequencies(2, 8);
  EXPECT_TRUE(torch::allclose((theta.x.square() + theta.y.square()).sqrt(),
                              torch::pow(10000.0, torch::arange(4, torch::kFloat64) / -4).expand({2, 4})));
  EXPECT_TRUE(torch::equal(theta.x, mixed_frequencies(2, 8).x));
  EXPECT_FALSE(torch::allclose(theta.x[0], theta.x[1]));
  const Tensor q = torch::randn({1, 2, 1, 8}, torch::kFloat64),
               k = torch::randn({1, 2, 1, 8}, torch::kFloat64);
  const auto score = [&](double x, double y, double from_x, double from_y) {
    const auto at = [&](const Tensor& tokens, double column, double row) {
      return rotate(tokens, rotation_mixed(torch::full({1}, column, torch::kFloat64),
                                           torch::full({1}, row, torch::kFloat64), theta));
    };
    return (at(q, x, y) * at(k, from_x, from_y)).sum(-1);
  };
  EXPECT_TRUE(torch::allclose(score(3, 1, 2, 5), score(13, 4, 12, 8)));
  EXPECT_FALSE(torch::allclose(score(3, 1, 2, 5), score(4, 1, 2, 5)));
  EXPECT_FALSE(torch::allclose(score(3, 1, 2, 5), score(3, 2, 2, 5)));
  EXPECT_ANY_THROW(mixed_frequencies(2, 7));
}

// Row (dy + rows - 1) * (2 columns - 1) + dx + columns - 1 for a query dy below and dx to the right of its
// key. The last three rows are class token to patches, patches to class token, and class token to itself.
TEST(RelativePosition, ATableHoldsABiasForEachOffset) {
  for (const bool class_token : {false, true}) {
    const int64_t rows = 2, columns = 3, first = class_token ? 1 : 0, patches = rows * columns;
    const int64_t entries = offset_bias_rows(rows, columns, class_token);
    EXPECT_EQ(entries, 3 * 5 + 3 * first);
    const Tensor table = torch::randn({entries, 2});
    const Tensor bias = offset_bias(table, rows, columns, class_token);
    ASSERT_EQ(bias.sizes(), (std::vector<int64_t>{1, 2, patches + first, patches + first}));
    for (int64_t q = -first; q < patches; ++q)
      for (int64_t k = -first; k < patches; ++k) {
        int64_t row = (q / columns - k / columns + rows - 1) * (2 * columns - 1) + q % columns - k % columns +
                      columns - 1;
        if (q < 0 || k < 0) row = q < 0 && k < 0 ? entries - 1 : (q < 0 ? entries - 3 : entries - 2);
        EXPECT_TRUE(torch::equal(bias[0].select(1, q + first).select(1, k + first), table[row]))
            << q << " " << k;
      }
  }
  EXPECT_ANY_THROW(offset_bias(torch::zeros({14, 2}), 2, 3));
}

TEST(RelativePosition, ATableMovesToAnotherGrid) {
  const Tensor table = torch::full({5 * 7 + 3, 2}, 1.5);  // for 3 x 4
  EXPECT_TRUE(torch::equal(resample_offset_bias(table, 3, 4, 3, 4, true), table));
  const Tensor moved = resample_offset_bias(table, 3, 4, 6, 5, true);
  EXPECT_TRUE(torch::allclose(moved, torch::full({11 * 9 + 3, 2}, 1.5)));
  EXPECT_FALSE(fit_offset_bias(table, 6, 5, 2, true).defined());  // not from a square grid
  const Tensor square = torch::randn({5 * 5 + 3, 2});
  EXPECT_TRUE(torch::equal(fit_offset_bias(square, 3, 3, 2, true), square));
  EXPECT_FALSE(fit_offset_bias(square, 3, 3, 2, false).defined());
}

TEST(Positions, SinusoidsHoldTheSameWavesInBothOrders) {
  const Tensor pairs = sinusoids(7, 6, Waves::side_by_side), halves = sinusoids(7, 6, Waves::sines_first);
  EXPECT_TRUE(torch::equal(pairs.index_select(1, torch::tensor({0, 2, 4, 1, 3, 5})), halves));
  const Tensor columns = sincos_2d(3, 4, 8), rows = sincos_2d_rows_first(3, 4, 8);
  EXPECT_TRUE(torch::equal(rows.index_select(1, torch::tensor({2, 3, 6, 7, 0, 1, 4, 5})), columns));
}

}  // namespace
}  // namespace tessera::nn
