// Settings trees, their TOML form, and the typed configs filled from them.
#include <gtest/gtest.h>

#include <limits>

#include "core/config.h"
#include "core/value.h"

namespace tessera {
namespace {

// Returns the message of the usage error that `body` throws; "" if it throws none.
template <class Body>
std::string usage_error(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind, ErrorKind::usage);
    const std::string message = error.what();
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return message;
  }
  return "";
}

// --- values

TEST(Value, DottedPathsGoDownAndMakeTables) {
  Value v;
  v.set("optimiser.lr", 0.1);
  v.set("optimiser.name", "lamb");
  v.set("seed", 3);
  EXPECT_EQ(v.find("optimiser.lr")->as_double(), 0.1);
  EXPECT_EQ(v.find("seed")->as_int(), 3);
  EXPECT_EQ(v.find("seed.x"), nullptr);
  EXPECT_EQ(v.find("optimiser.none"), nullptr);
  v.set("seed", "text");
  EXPECT_EQ(v.find("seed")->as_string(), "text");
  EXPECT_EQ(v.as_table().size(), 2u);
  EXPECT_EQ(v.as_table()[0].first, "optimiser") << "the order of insertion stays";
}

TEST(Value, MergingLaysTablesOverTablesAndReplacesTheRest) {
  Value base = parse_toml("a = 1\n[t]\nx = 1\ny = [1, 2]\n[u]\nz = 1", "base");
  merge(base, parse_toml("b = 2\n[t]\ny = [3]\nw = true\n[u.z]\ndeep = 1", "over"));
  const Value want = parse_toml("a = 1\nb = 2\n[t]\nx = 1\ny = [3]\nw = true\n[u]\nz = {deep = 1}", "want");
  EXPECT_EQ(first_difference(base, want), "");
}

TEST(Value, TheFirstDifferenceIsNamedWithBothSides) {
  const auto difference = [](const std::string& a, const std::string& b) {
    return first_difference(parse_toml(a, "a"), parse_toml(b, "b"));
  };
  EXPECT_EQ(difference("a = 1\n[t]\nx = 'y'", "a = 1\n[t]\nx = 'y'"), "");
  EXPECT_EQ(difference("a = 1\nb = 2", "b = 2\na = 1"), "") << "order is no difference";
  EXPECT_EQ(difference("[t]\nx = 1", "[t]\nx = 2"), "t.x: 1 against 2");
  EXPECT_EQ(difference("[t]\nx = 1", "[t]\nx = 1.0"), "t.x: 1 against 1.0");
  EXPECT_EQ(difference("[t]\nx = 1", "[t]\ny = 1"), "t.x: 1 against nothing");
  EXPECT_EQ(difference("[t]", "[t]\ny = [1, 'a']"), "t.y: nothing against [1, \"a\"]");
  EXPECT_EQ(difference("[t]\nx = 1", "t = 5"), "t: { x = 1 } against 5");
}

// --- TOML

TEST(Toml, ADocumentKeepsItsOrderAndComesBackEqual) {
  const std::string document =
      "name = \"vil\"\nsteps = -5\nlr = 0.001\ntiny = 1e-300\nbig = 1e+22\nwhole = 3.0\nflag = true\n"
      "list = [1, 2.5, \"x\", [true]]\nnone = []\n\"odd key\" = \"q\\\"\\\\\\n\\t\\u0001\\u007f€\"\n"
      "\n[z]\nlast = 1\n\n[z.inner]\nx = 1\n\n[a]\nfirst = \"no\"\n\n[empty]\n";
  const Value value = parse_toml(document, "f");
  EXPECT_EQ(write_toml(value), document);
  EXPECT_EQ(parse_toml(write_toml(value), "g"), value);
}

TEST(Toml, EveryFormMeansTheSame) {
  const Value want = parse_toml("[t]\nx = 1\ny = 2", "f");
  EXPECT_EQ(first_difference(want, parse_toml("t = {x = 1, y = 2}", "f")), "");
  EXPECT_EQ(first_difference(want, parse_toml("t.x = 1\nt.y = 2", "f")), "");
  EXPECT_EQ(parse_toml("a = 0xFF\nb = 1_000\nc = 'raw\\n'\n# comment", "f"),
            parse_toml("a = 255\nb = 1000\nc = \"raw\\\\n\"", "f"));
  const Value tables = parse_toml("[[t]]\nx = 1\n[[t]]\nx = 2", "f");
  EXPECT_EQ(write_toml(tables), "t = [{ x = 1 }, { x = 2 }]\n");
  EXPECT_EQ(parse_toml(write_toml(tables), "f"), tables);
}

TEST(Toml, LettersThatAreNoBlanksStayLetters) {
  EXPECT_EQ(parse_toml("s = \"\"\"\\\n§\"\"\"", "f").find("s")->as_string(), "§");
  EXPECT_NE(usage_error([] { parse_toml("s = [\xEF\xB6\xBF]", "f"); }), "");
}

TEST(Toml, NumbersAreExact) {
  Value v;
  v.set("i", std::numeric_limits<int64_t>::min());
  v.set("j", std::numeric_limits<int64_t>::max());
  v.set("d", 0.1 + 0.2);
  v.set("e", std::numeric_limits<double>::denorm_min());
  v.set("f", std::numeric_limits<double>::infinity());
  EXPECT_EQ(parse_toml(write_toml(v), "f"), v);
}

TEST(Toml, ErrorsNameFileAndLineOnOneLine) {
  const auto said = [](const std::string& document) {
    return usage_error([&] { parse_toml(document, "r.toml"); });
  };
  EXPECT_TRUE(said("a = 1\nb = \n").starts_with("r.toml:2: ")) << said("a = 1\nb = \n");
  EXPECT_TRUE(said("a = 1\na = 2").starts_with("r.toml:2: ")) << said("a = 1\na = 2");
  EXPECT_TRUE(said("a = 1\n\n[t\nx = 1").starts_with("r.toml:3: ")) << said("a = 1\n\n[t\nx = 1");
  EXPECT_TRUE(said("a = {b = na\n").starts_with("r.toml:1: "))
      << "the parser's own words hold the line's end";
  EXPECT_TRUE(said("a = \"\xFF\"").starts_with("r.toml:1: ")) << said("a = \"\xFF\"");
  EXPECT_TRUE(said("a = 99999999999999999999").starts_with("r.toml:1: "));
  EXPECT_EQ(said("x = 1\nd = 2024-01-01"), "r.toml:2: dates and times have no meaning in a recipe");
  EXPECT_EQ(said("a = " + std::string(20, '[') + std::string(20, ']')),
            "r.toml:1: nested deeper than 16 levels");
  EXPECT_NE(said("a = " + std::string(100'000, '[')), "");
  EXPECT_EQ(said(std::string((1 << 20) + 1, '#')), "r.toml: 1048577 bytes, a recipe has at most 1 MiB");
}

TEST(Value, AKeyOfEndlessPartsIsRefused) {
  std::string key = "a";
  for (int i = 1; i < 64; ++i) key += ".a";
  Value tree;
  tree.set(key, 1);
  EXPECT_EQ(*tree.find(key), Value(1));
  for (int i = 0; i < 50000; ++i) key += ".a";
  EXPECT_EQ(usage_error([&] { tree.set(key, 1); }),
            "the key '" + key.substr(0, 40) + "...' has more than 64 parts");
}

TEST(Toml, AKeyOfEndlessPartsIsRefused) {
  std::string parts;
  for (int i = 0; i < 100000; ++i) parts += "a.";
  for (const std::string& document : {parts + "a = 1", "[" + parts + "a]", "b = { " + parts + "a = 1 }",
                                      "b = { t = \"\"\"x\"\"\"\", " + parts + "a = 1 }"})
    EXPECT_EQ(usage_error([&] { parse_toml(document, "r.toml"); }), "r.toml: a key of more than 64 parts");
  std::string numbers = "v = [0.5";
  for (int i = 0; i < 1000; ++i) numbers += ", 0.5";
  const std::string dots(1000, '.');
  const Value read = parse_toml(
      numbers + "]  # " + dots + "\nt = \"a\\\"" + dots + "\"\nm = \"\"\"\n" + dots + "\"\"\"", "r.toml");
  EXPECT_EQ(read.find("v")->as_array().size(), 1001u);
  EXPECT_EQ(read.find("m")->as_string(), dots);
}

TEST(Toml, ASingleValueMayLackItsQuotes) {
  EXPECT_EQ(parse_toml_value("3"), Value(3));
  EXPECT_EQ(parse_toml_value("0.5"), Value(0.5));
  EXPECT_EQ(parse_toml_value("true"), Value(true));
  EXPECT_EQ(parse_toml_value("[1, 2]"), Value(Value::Array{1, 2}));
  EXPECT_EQ(parse_toml_value("\"3\""), Value("3"));
  EXPECT_EQ(parse_toml_value("lamb"), Value("lamb"));
  EXPECT_EQ(parse_toml_value("../data/x"), Value("../data/x"));
  EXPECT_EQ(parse_toml_value(""), Value(""));
  EXPECT_EQ(parse_toml_value("1\nseed = 2"), Value("1\nseed = 2"));
  EXPECT_EQ(parse_toml_value("2024-01-01"), Value("2024-01-01"));
}

// --- configs

struct Inner {
  double lr = 0.1;
  std::vector<double> betas = {0.9, 0.999};
  template <class V>
  void visit(V& v) {
    v("lr", lr, "learning rate");
    v("betas", betas);
  }
};

struct Outer {
  std::string name = "none";
  int64_t steps = 10;
  bool flip = false;
  Inner optimiser;
  std::vector<std::string> freeze;
  std::vector<bool> flags;
  std::vector<Inner> groups;
  Value free;
  template <class V>
  void visit(V& v) {
    v("name", name);
    v("steps", steps);
    v("flip", flip);
    v("optimiser", optimiser);
    v("freeze", freeze);
    v("flags", flags);
    v("groups", groups);
    v("free", free);
  }
};

}  // namespace
enum class Fruit { apple, pear };
template <>
struct EnumNames<Fruit> {
  static constexpr std::array names = {"apple", "pear"};
};
namespace {

struct RuledConfig {
  double share = 0.5, rate = 1;
  int64_t count = 1;
  std::vector<double> betas = {0.9};
  Fruit fruit = Fruit::apple;
  std::vector<Fruit> basket;
  template <class V>
  void visit(V& v) {
    v("share", share, between(0, 1), "of the whole");
    v("rate", rate, above(0), "of learning");
    v("count", count, at_least(1), "of steps");
    v("betas", betas, from_to_below(0, 1), "of Adam");
    v("fruit", fruit, choice<Fruit>(), "of the day");
    v("basket", basket, choice<Fruit>(), "all of them");
  }
};

std::string refusal(const std::string& toml) {
  try {
    read_config<RuledConfig>(parse_toml(toml, "test"), "task");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind, ErrorKind::usage);
    return error.what();
  }
  return "";
}

TEST(Config, RulesStandBesideTheirField) {
  EXPECT_EQ(refusal("share = 1.5"), "task.share = 1.5, must be 0 to 1");
  EXPECT_EQ(refusal("share = nan"), "task.share = nan, must be 0 to 1");
  EXPECT_EQ(refusal("rate = 0"), "task.rate = 0, must be above 0");
  EXPECT_EQ(refusal("count = 0"), "task.count = 0, must be at least 1");
  EXPECT_EQ(refusal("betas = [0.5, 1.0]"), "task.betas = 1, must be at least 0 and below 1");
  EXPECT_EQ(refusal("fruit = \"peer\""), "task.fruit is 'peer', must be apple, pear, did you mean 'pear'?");
  EXPECT_EQ(refusal("fruit = 1"), "task.fruit is an integer, must be a string");
  EXPECT_EQ(refusal("share = 1.0\nfruit = \"pear\"\nbasket = [\"pear\", \"apple\"]"), "");
}

TEST(Config, EnumsAreWrittenByNameAndRulesAreDescribed) {
  const auto config = read_config<RuledConfig>(parse_toml("basket = [\"pear\"]", "test"));
  ASSERT_EQ(config.basket.size(), 1u);
  EXPECT_EQ(config.basket[0], Fruit::pear);
  EXPECT_EQ(*write_config(config).find("fruit"), Value("apple"));
  const auto keys = describe_config(config, "task");
  EXPECT_EQ(keys[0].meaning, "of the whole (0 to 1)");
  EXPECT_EQ(keys[4].meaning, "of the day (apple, pear)");
}

TEST(Config, IsFilledFromATableAndKeepsDefaults) {
  const auto config = read_config<Outer>(
      parse_toml("name = 'a'\nflip = true\nfreeze = ['x', 'y']\nflags = [true, false]\nfree = {any = 1}\n"
                 "optimiser = {lr = 1}\ngroups = [{lr = 2}, {}]",
                 "f"));
  EXPECT_EQ(config.name, "a");
  EXPECT_EQ(config.steps, 10);
  EXPECT_TRUE(config.flip);
  EXPECT_EQ(config.optimiser.lr, 1.0) << "an integer is a number";
  EXPECT_EQ(config.optimiser.betas, (std::vector<double>{0.9, 0.999}));
  EXPECT_EQ(config.freeze, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(config.flags, (std::vector<bool>{true, false}));
  ASSERT_EQ(config.groups.size(), 2u);
  EXPECT_EQ(config.groups[0].lr, 2.0);
  EXPECT_EQ(config.free.find("any")->as_int(), 1);
}

TEST(Config, WrittenAndReadAgainIsTheSame) {
  Outer config;
  config.name = "x";
  config.optimiser.betas = {0.5};
  config.groups.resize(1);
  const Value table = write_config(config);
  EXPECT_EQ(write_config(read_config<Outer>(parse_toml(write_toml(table), "f"))), table);
  EXPECT_EQ(table.as_table().size(), 8u) << "every field is written";
}

TEST(Config, UnknownKeysNameTheirPlaceAndTheNearestRightOne) {
  const auto said = [](const std::string& toml, const std::string& where = "") {
    return usage_error([&] { read_config<Outer>(parse_toml(toml, "f"), where); });
  };
  EXPECT_EQ(said("stesp = 1"), "unknown key 'stesp', did you mean 'steps'?");
  EXPECT_EQ(said("colour = 1"), "unknown key 'colour'");
  EXPECT_EQ(said("[optimiser]\nbeta = 1"), "unknown key 'optimiser.beta', did you mean 'betas'?");
  EXPECT_EQ(said("stesp = 1", "train"), "unknown key 'train.stesp', did you mean 'steps'?");
  EXPECT_EQ(said("groups = [{}, {l = 1}]"), "unknown key 'groups[1].l', did you mean 'lr'?");
}

TEST(Config, WrongTypesNameTheKeyAndWhatIsRight) {
  const auto said = [](const std::string& toml) {
    return usage_error([&] { read_config<Outer>(parse_toml(toml, "f"), "train"); });
  };
  EXPECT_EQ(said("steps = 1.5"), "train.steps is a number, must be an integer");
  EXPECT_EQ(said("steps = '1'"), "train.steps is a string, must be an integer");
  EXPECT_EQ(said("flip = 1"), "train.flip is an integer, must be true or false");
  EXPECT_EQ(said("name = ['a']"), "train.name is an array, must be a string");
  EXPECT_EQ(said("optimiser = 3"), "train.optimiser is an integer, must be a table");
  EXPECT_EQ(said("optimiser.lr = true"), "train.optimiser.lr is a boolean, must be a number");
  EXPECT_EQ(said("freeze = 'x'"), "train.freeze is a string, must be an array");
  EXPECT_EQ(said("freeze = ['x', 1]"), "train.freeze[1] is an integer, must be a string");
  EXPECT_EQ(said("[optimiser]\nbetas = [0.9, {}]"), "train.optimiser.betas[1] is a table, must be a number");
}

}  // namespace
}  // namespace tessera
