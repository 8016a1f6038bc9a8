#include "tests/parity/handlers.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "core/random.h"

namespace tessera::parity {
namespace {

std::string name_of(const HandlerTable& table, const std::string& golden, const std::string& named = "") {
  const HandlerRow* row = table.find(golden, named);
  return row ? row->name : "";
}

HandlerTable table_of(const std::vector<HandlerRow>& rows) {
  HandlerTable table;
  for (const HandlerRow& row : rows) table.add(row);
  return table;
}

std::string random_word(RandomStream& random, int64_t longest) {
  std::string word;
  for (int64_t i = random.integer(1, longest); i > 0; --i) word += "ab_"[random.below(3)];
  return word;
}

// Every order of the same rows gives the handler of the longest kind that fits.
TEST(Handlers, OrderHasNoEffect) {
  for (uint64_t sample = 0; sample < 100; ++sample) {
    RandomStream random(3, "handlers", sample);
    std::vector<HandlerRow> rows;
    std::vector<std::string> kinds;
    for (int row = 0; row < 8; ++row) {
      rows.push_back({"handler" + std::to_string(row), {}, {}});
      for (int i = 0; i < 2; ++i) {
        const std::string kind = random_word(random, 4);
        if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) continue;
        kinds.push_back(kind);
        rows.back().kinds.push_back(kind);
      }
    }
    std::vector<HandlerRow> shuffled = rows;
    for (size_t i = shuffled.size(); i > 1; --i) std::swap(shuffled[i - 1], shuffled[random.below(i)]);
    const HandlerTable first = table_of(rows), second = table_of(shuffled);
    for (int query = 0; query < 50; ++query) {
      const std::string golden = random_word(random, 8);
      std::string longest, wanted;
      for (const HandlerRow& row : rows)
        for (const std::string& kind : row.kinds)
          if (golden.starts_with(kind) && kind.size() > longest.size()) longest = kind, wanted = row.name;
      EXPECT_EQ(name_of(first, golden), wanted) << golden;
      EXPECT_EQ(name_of(second, golden), wanted) << golden;
    }
  }
}

TEST(Handlers, TwoOfAKindOrNameFail) {
  HandlerTable table = table_of({{"swin", {}, {"components/model_swin"}}});
  EXPECT_THROW(table.add({"other", {}, {"components/model_swin"}}), Error);
  EXPECT_THROW(table.add({"swin", {}, {"components/model_swin_v2"}}), Error);
}

TEST(Handlers, GoldenNamesItsHandler) {
  const HandlerTable table = table_of({{"vit", {}, {"components/model_vit"}}, {"swin", {}, {}}});
  EXPECT_EQ(name_of(table, "components/model_vit_b"), "vit");
  EXPECT_EQ(name_of(table, "components/model_vit_b", "swin"), "swin");
  EXPECT_EQ(name_of(table, "models/model_vit_b"), "");
  EXPECT_THROW(table.find("components/model_vit_b", "none"), Error);
}

}  // namespace
}  // namespace tessera::parity
