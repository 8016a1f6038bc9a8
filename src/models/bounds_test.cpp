// A setting, of a recipe or of a file's metadata, may hold any number. Either it is refused, or the model can
// be described in little memory.
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <limits>

#include "core/error.h"
#include "models/base/model.h"
#include "models/heads/class_head.h"

namespace tessera::models::bounds_test {
namespace {

constexpr int64_t kMostBytes = int64_t{512} << 20;

// Returns the peak memory of this process.
int64_t peak_bytes() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  return int64_t{used.ru_maxrss} * 1024;
}

// Returns the family's own settings with one block per stage: quick to build.
Value smallest(const std::string& family) {
  Value settings = resolve_model(family).settings;
  for (auto& [key, value] : settings.as_table()) {
    if (key == "depth") value = 1;
    if (key == "depths")
      for (Value& depth : value.as_array()) depth = 1;
  }
  return settings;
}

const std::vector<Value>& numbers() {
  static const std::vector<Value> all = {-1,
                                         0,
                                         1000,
                                         1 << 20,
                                         int64_t{1} << 31,
                                         int64_t{1} << 40,
                                         std::numeric_limits<int64_t>::max(),
                                         1e18,
                                         std::numeric_limits<double>::quiet_NaN()};
  return all;
}

// Returns the setting with that number, in each element in turn if it is a list; empty without any number.
std::vector<Value> variants(const Value& setting, const Value& number) {
  if (setting.is_number()) return {number};
  if (!setting.is_array()) return {};
  std::vector<Value> found;
  for (size_t i = 0; i < setting.as_array().size(); ++i) {
    if (!setting.as_array()[i].is_number()) continue;
    Value changed = setting;
    changed.as_array()[i] = number;
    found.push_back(std::move(changed));
  }
  return found;
}

class Bounds : public testing::TestWithParam<std::string> {};

TEST_P(Bounds, NoNumberTakesMuchMemory) {
  const Value standard = smallest(GetParam());
  for (const auto& [key, setting] : standard.as_table())
    for (const Value& number : numbers())
      for (const Value& variant : variants(setting, number)) {
        Value changed = standard;
        changed.set(key, variant);
        const int64_t before = peak_bytes();
        try {
          meta_classifier(resolve_model(GetParam(), changed));
        } catch (const Error& error) {
          EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << key << ": " << error.what();
        } catch (const std::exception& error) {
          ADD_FAILURE() << key << ": " << error.what();
        }
        EXPECT_LT(peak_bytes(), before + kMostBytes) << key;
      }
}

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const Family& family : families()) names.push_back(family.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Families, Bounds, testing::ValuesIn(family_names()),
                         [](const auto& family) { return family.param; });

}  // namespace
}  // namespace tessera::models::bounds_test
