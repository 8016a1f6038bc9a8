#include "nn/own_rows.h"

#include <gtest/gtest.h>

#include "core/memory.h"
#include "nn/init.h"
#include "nn/linear.h"

namespace tessera::nn {
namespace {

std::shared_ptr<LinearImpl> drawn(int64_t in, int64_t out) {
  auto layer = std::make_shared<LinearImpl>(in, out);
  initialise(*layer, 7, [](const std::string&, const torch::Tensor&, const Filler& fill) { fill.normal(1); });
  return layer;
}

TEST(OwnRows, AreThoseOfTheWholeModel) {
  const auto whole = drawn(130, 131);
  std::vector<torch::Tensor> parts;
  for (int process = 0; process < 4; ++process) {
    OwnRows rows(process, 4);
    const OwnRowsScope scope(&rows);
    const auto layer = drawn(130, 131);
    const RowRange own = rows.cut(layer->weight).value();
    EXPECT_TRUE(
        torch::equal(layer->weight.slice(0, own.begin, own.end), whole->weight.slice(0, own.begin, own.end)));
    EXPECT_EQ(layer->weight.slice(0, 0, own.begin).abs().sum().item<double>(), 0);
    EXPECT_EQ(layer->weight.slice(0, own.end).abs().sum().item<double>(), 0);
    EXPECT_LE(own.end - own.begin, 131 / 4 + 3);
    EXPECT_TRUE(torch::equal(layer->bias, whole->bias));
    const auto loaded = std::make_shared<LinearImpl>(130, 131);
    copy_rows(loaded->weight.detach(), whole->weight.detach(), /*read=*/true);
    EXPECT_TRUE(torch::equal(loaded->weight, layer->weight));
    parts.push_back(layer->weight.detach().slice(0, own.begin, own.end));
  }
  EXPECT_TRUE(torch::equal(parts[0][0], whole->weight[0]));
  EXPECT_TRUE(torch::equal(parts[3][-1], whole->weight[130]));
}

TEST(OwnRows, OtherRowsTakeNoMemory) {
  constexpr int64_t kIn = 1 << 13, kOut = 1 << 12;  // 128 MiB
  OwnRows rows(1, 8);
  const OwnRowsScope scope(&rows);
  const uint64_t before = resident_bytes();
  const auto layer = drawn(kIn, kOut);
  EXPECT_LT(resident_bytes(), before + (32u << 20));
  EXPECT_EQ(layer->weight[0][0].item<float>(), 0);
}

TEST(OwnRows, WhatTheStateLacksIsSeen) {
  OwnRows rows(0, 2);
  const OwnRowsScope scope(&rows);
  const auto layer = drawn(4, 4);
  EXPECT_TRUE(rows.all_in(named_state(*layer)));
  layer->weight.set_data(torch::zeros({5, 4}));
  EXPECT_FALSE(rows.all_in(named_state(*layer)));
  const auto other = drawn(4, 4);
  EXPECT_FALSE(rows.all_in(named_state(*other)));
}

TEST(OwnRows, TablesStayWhole) {
  OwnRows rows(0, 2);
  const OwnRowsScope scope(&rows);
  const torch::Tensor table = zeros({4, 4});
  keep_whole(table);
  copy_rows(table, torch::ones({4, 4}), /*read=*/true);
  EXPECT_EQ(table.sum().item<double>(), 16);
}

TEST(OwnRows, OtherFilesAreSeen) {
  OwnRows first(0, 2), second(1, 2), third(1, 2);
  const torch::Tensor value = torch::rand({6, 4});
  first.see(value);
  second.see(value);
  third.see(value + 1);
  EXPECT_EQ(first.seen(), second.seen());
  EXPECT_NE(first.seen(), third.seen());
}

}  // namespace
}  // namespace tessera::nn
