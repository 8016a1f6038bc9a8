// Fields of a config as options: names, values, and which values are refused.
#include <gtest/gtest.h>

#include "core/options.h"

namespace tessera {
namespace {

enum class Method { tsne, pca };

}  // namespace

template <>
struct EnumNames<Method> {
  static constexpr std::array names = {"tsne", "pca"};
};

namespace {

struct Inner {
  double last_step_size = 0.5;
  template <class V>
  void visit(V& v) {
    v("last_step_size", last_step_size, above_to(0, 1), "length of the last step");
  }
};

struct Outer {
  std::vector<std::string> images;
  std::optional<int64_t> size;
  Method method = Method::tsne;
  std::string split = "all";
  bool json = false;
  Inner inner;
  template <class V>
  void visit(V& v) {
    v("images", images, {.argument = "IMAGES", .required = true}, "images");
    v("size", size, at_least(1), "side");
    v("method", method, "projection");
    v("split", split, {.choices = {"train", "all"}, .names = "-s"}, "split of the set");
    v("json", json, "one JSON object");
    v("inner", inner, {.only_for = "walks"}, "");
  }
};

std::string refusal(const OptionField& field, const std::string& word) {
  try {
    field.parsed({word});
  } catch (const Error& error) {
    EXPECT_EQ(error.kind, ErrorKind::usage);
    return error.what();
  }
  return "";
}

TEST(Options, KeysAreNamesAndConfigsWithinAreLaidOut) {
  Outer outer;
  std::vector<std::string> names;
  const auto fields = option_fields(outer);
  for (const OptionField& field : fields) names.push_back(field.name());
  EXPECT_EQ(names, (std::vector<std::string>{"IMAGES", "--size", "--method", "--split", "--json",
                                             "--last-step-size"}));
  EXPECT_EQ(fields[4].kind, OptionField::Kind::flag);
  EXPECT_EQ(fields[5].rules.only_for, "walks") << "as of the config that it is in";
  EXPECT_EQ(fields[3].rules.only_for, "");
}

TEST(Options, ValuesAreSetAndRead) {
  Outer outer;
  const auto fields = option_fields(outer);
  EXPECT_FALSE(fields[1].get()) << "unset";
  const auto give = [&](size_t field, std::vector<std::string> words) {
    fields[field].set(fields[field].parsed(words));
  };
  give(0, {"a.png", "b.png"});
  give(1, {"224"});
  give(2, {"pca"});
  give(3, {"train"});
  give(5, {"1e-2"});
  EXPECT_EQ(outer.images, (std::vector<std::string>{"a.png", "b.png"}));
  EXPECT_EQ(outer.size, 224);
  EXPECT_EQ(outer.method, Method::pca);
  EXPECT_EQ(outer.split, "train");
  EXPECT_EQ(outer.inner.last_step_size, 0.01);
  EXPECT_EQ(*fields[1].get(), Value(224));
  EXPECT_EQ(*fields[2].get(), Value("pca"));
}

TEST(Options, RefusalsNameOptionValueAndWhatIsRight) {
  Outer outer;
  const auto fields = option_fields(outer);
  EXPECT_EQ(refusal(fields[1], "0"), "--size is '0', must be a whole number at least 1");
  EXPECT_EQ(refusal(fields[1], "1.5"), "--size is '1.5', must be a whole number at least 1");
  EXPECT_EQ(refusal(fields[2], "tsn"), "--method is 'tsn', must be one of tsne, pca, did you mean 'tsne'?");
  EXPECT_EQ(refusal(fields[3], "validation"), "--split is 'validation', must be one of train, all");
  EXPECT_EQ(refusal(fields[5], "0"), "--last-step-size is '0', must be a number above 0 and at most 1");
  EXPECT_EQ(refusal(fields[5], "nan"), "--last-step-size is 'nan', must be a number above 0 and at most 1");
}

}  // namespace
}  // namespace tessera
