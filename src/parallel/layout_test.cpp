#include "parallel/layout.h"

#include <gtest/gtest.h>

#include "core/core_testing.h"
#include "core/random.h"
#include "core/text.h"
#include "nn/own_rows.h"

namespace tessera::parallel {
namespace {

// The axis of one of `size` processes, for layouts alone.
Axis axis_of(int size, int rank) {
  std::vector<int> members;
  for (int i = 0; i < size; ++i) members.push_back(i);
  return {"shard", members, rank, nullptr};
}

NamedTensors draw_tensors(uint64_t seed) {
  RandomStream random(seed, "layout", 0);
  NamedTensors tensors;
  for (int i = 0; i < 20; ++i) {
    std::vector<int64_t> shape;
    for (uint64_t d = random.below(4); d > 0; --d)
      shape.push_back(1 + static_cast<int64_t>(random.below(40)));
    tensors.emplace_back(text("t", i), torch::rand(shape));
  }
  return tensors;
}

TEST(Layout, TheRowsOfAllProcessesAreTheTensor) {
  for (uint64_t seed = 0; seed < 20; ++seed)
    for (const int size : {2, 3, 5}) {
      const NamedTensors tensors = draw_tensors(seed);
      const Layout layout(tensors, axis_of(size, 1), [](const std::string& name) { return name == "t3"; });
      for (const auto& [name, whole] : tensors) {
        std::vector<torch::Tensor> parts;
        int holders = 0;
        for (int rank = 0; rank < size; ++rank) {
          parts.push_back(layout.cut(name, whole, rank).flatten());
          holders += parts.back().numel() > 0;
        }
        EXPECT_TRUE(torch::equal(torch::cat(parts), whole.flatten())) << name << " of " << size;
        EXPECT_EQ(holders, name == "t3" || whole.dim() < 2 || whole.size(0) < size ? 1 : size) << name;
        EXPECT_TRUE(torch::equal(layout.cut(name, whole), layout.cut(name, whole, 1)));
        const auto& rows = layout.rows(name);
        EXPECT_EQ(rows[static_cast<size_t>(layout.owner(name))], *std::max_element(rows.begin(), rows.end()));
      }
    }
}

TEST(Layout, TheRowsOfAProcessAreAmongThoseThatItDrew) {
  for (uint64_t seed = 0; seed < 20; ++seed)
    for (const int size : {2, 3, 5}) {
      const NamedTensors tensors = draw_tensors(seed);
      const Layout layout(tensors, axis_of(size, 0), [](const std::string&) { return false; });
      for (const auto& [name, whole] : tensors) {
        int64_t begin = 0;
        for (int rank = 0; rank < size; ++rank) {
          const int64_t end = begin + layout.rows(name)[static_cast<size_t>(rank)];
          if (const auto drew = nn::OwnRows(rank, size).cut(whole); drew && begin < end) {
            EXPECT_LE(drew->begin, begin) << name;
            EXPECT_GE(drew->end, end) << name;
          }
          begin = end;
        }
      }
    }
}

TEST(Layout, ATensorThatAProcessMustHoldIsThereWhole) {
  const NamedTensors tensors = draw_tensors(1);
  const std::string& name = tensors[0].first;
  const Layout layout(tensors, axis_of(3, 1), [](const std::string&) { return false; }, {{name, 2}});
  EXPECT_EQ(layout.owner(name), 2);
  EXPECT_EQ(layout.cut(name, tensors[0].second).numel(), 0);
  EXPECT_TRUE(torch::equal(layout.cut(name, tensors[0].second, 2), tensors[0].second));
}

// Rows that divide evenly are no reason for one process to write all tensors.
TEST(Layout, OwnersWriteAboutAsManyBytes) {
  NamedTensors tensors;
  for (int i = 0; i < 24; ++i) tensors.emplace_back(text("t", i), torch::empty({8 << (i % 3), 16}));
  const Layout layout(tensors, axis_of(4, 0), [](const std::string&) { return false; });
  std::vector<int64_t> bytes(4, 0);
  for (const auto& [name, whole] : tensors)
    bytes[static_cast<size_t>(layout.owner(name))] += static_cast<int64_t>(whole.nbytes());
  const auto [least, most] = std::minmax_element(bytes.begin(), bytes.end());
  EXPECT_LE(*most - *least, 32 * 16 * 4) << "the largest tensor";
}

// Writing into a part writes into the tensor.
TEST(Layout, PartsAreViews) {
  const NamedTensors tensors = {{"weight", torch::zeros({6, 2}).requires_grad_()},
                                {"scale", torch::zeros({})}};
  const Layout layout(tensors, axis_of(3, 2), [](const std::string&) { return false; });
  layout.cut("weight", tensors[0].second).fill_(1);
  EXPECT_TRUE(tensors[0].second.narrow(0, 4, 2).eq(1).all().item<bool>());
  EXPECT_TRUE(tensors[0].second.narrow(0, 0, 4).eq(0).all().item<bool>());
  EXPECT_EQ(layout.cut("scale", tensors[1].second).dim() == 0, layout.owner("scale") == 2);
}

TEST(Layout, ProcessesHoldAboutAsManyBytes) {
  NamedTensors tensors;
  for (int block = 0; block < 12; ++block) {
    tensors.emplace_back(text("fc", block), torch::zeros({97, 64}));
    tensors.emplace_back(text("bias", block), torch::zeros({97}));
    tensors.emplace_back(text("norm", block), torch::zeros({64}));
  }
  for (const int size : {2, 3, 4, 7}) {
    const Layout layout(tensors, axis_of(size, 0), [](const std::string&) { return false; });
    std::vector<int64_t> numbers(static_cast<size_t>(size), 0);
    for (const auto& [name, whole] : tensors)
      for (int rank = 0; rank < size; ++rank)
        numbers[static_cast<size_t>(rank)] += layout.cut(name, whole, rank).numel();
    const auto [least, most] = std::minmax_element(numbers.begin(), numbers.end());
    EXPECT_LE(*most - *least, 2 * 97) << size;
  }
}

TEST(Layout, AnotherTensorIsNamed) {
  const Layout layout({{"a", torch::zeros({4, 2})}}, axis_of(2, 0), [](const std::string&) { return false; });
  EXPECT_EQ(error_of([&] { layout.rows("b"); }), "layout: no tensor 'b'");
  EXPECT_EQ(error_of([&] {
              layout.cut("a", torch::zeros({3, 2}));
            }),
            "layout: tensor 'a' has shape [3, 2], must be [4, 2]");
}

}  // namespace
}  // namespace tessera::parallel
