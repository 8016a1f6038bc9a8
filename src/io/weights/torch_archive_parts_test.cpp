// Archives made by hand: all kinds of faulty files.
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "core/random.h"
#include "io/files/io_testing.h"
#include "io/files/zip.h"
#include "io/weights/torch_archive.h"

namespace tessera {
namespace {

const std::string kFolder = std::string(TESSERA_TEST_DATA) + "/torch/";

std::string le(uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(i < 8 ? value >> (8 * i) & 255 : 0);
  return out;
}

struct Member {
  std::string name = "", content = "";
  uint64_t method = 0, flags = 0;
  std::string local_name = "";                 // another name in its own header
  std::optional<uint64_t> size = {}, at = {};  // wrong values for the directory
  bool wide = false;                           // sizes and place in a zip64 field
};

std::string zip(const std::vector<Member>& members, bool wide_end = false, const std::string& comment = "") {
  std::string out, directory;
  for (const Member& m : members) {
    const uint64_t at = m.at.value_or(out.size()), size = m.size.value_or(m.content.size());
    const std::string& own = m.local_name.empty() ? m.name : m.local_name;
    out += "PK\3\4" + le(20, 2) + le(m.flags, 2) + le(m.method, 2) + le(0, 8) + le(size, 4) + le(size, 4) +
           le(own.size(), 2) + le(3, 2) + own + "pad" + m.content;
    const std::string extra = m.wide ? le(1, 2) + le(24, 2) + le(size, 8) + le(size, 8) + le(at, 8) : "";
    const uint64_t none = 0xFFFFFFFF;
    directory += "PK\1\2" + le(20, 2) + le(20, 2) + le(m.flags, 2) + le(m.method, 2) + le(0, 8) +
                 le(m.wide ? none : size, 4) + le(m.wide ? none : size, 4) + le(m.name.size(), 2) +
                 le(extra.size(), 2) + le(0, 10) + le(m.wide ? none : at, 4) + m.name + extra;
  }
  const uint64_t begin = out.size();
  out += directory;
  if (wide_end) {
    const uint64_t at = out.size();
    out += "PK\6\6" + le(44, 8) + le(0, 4) + le(0, 8) + le(members.size(), 8) + le(members.size(), 8) +
           le(directory.size(), 8) + le(begin, 8);
    out += "PK\6\7" + le(0, 4) + le(at, 8) + le(1, 4);
    return out + "PK\5\6" + le(0, 4) + le(0xFFFF, 2) + le(0xFFFF, 2) + le(0xFFFFFFFF, 4) + le(0xFFFFFFFF, 4) +
           le(comment.size(), 2) + comment;
  }
  return out + "PK\5\6" + le(0, 4) + le(members.size(), 2) + le(members.size(), 2) + le(directory.size(), 4) +
         le(begin, 4) + le(comment.size(), 2) + comment;
}

// Opcodes.
std::string S(const std::string& s) { return "X" + le(s.size(), 4) + s; }
std::string I(int64_t value) { return "\x8A\x08" + le(static_cast<uint64_t>(value), 8); }
std::string G(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
std::string tuple(const std::vector<std::string>& items) {
  std::string out = "(";
  for (const auto& item : items) out += item;
  return out + "t";
}
std::string integers(const std::vector<int64_t>& values) {
  std::vector<std::string> items;
  for (const int64_t v : values) items.push_back(I(v));
  return tuple(items);
}
std::string storage(const std::string& type, const std::string& key, int64_t elements) {
  return tuple({S("storage"), G("torch", type), S(key), S("cpu"), I(elements)}) + "Q";
}
std::string tensor(const std::string& from, int64_t offset, const std::vector<int64_t>& shape,
                   const std::vector<int64_t>& strides) {
  return G("torch._utils", "_rebuild_tensor_v2") +
         tuple({from, I(offset), integers(shape), integers(strides), "\x89",
                G("collections", "OrderedDict") + ")R"}) +
         "R";
}
std::string dict(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string out = "}(";
  for (const auto& [key, value] : entries) out += S(key) + value;
  return out + "u";
}
std::string pickle(const std::string& body) { return "\x80\x02" + body + "."; }

// Returns an archive with this pickle and one storage, "0", of 24 bytes.
std::string archive(const std::string& data_pkl) {
  return zip({{"m/data.pkl", data_pkl}, {"m/byteorder", "little"}, {"m/data/0", "abcdefghijklmnopqrstuvwx"}});
}

std::string refusal(const std::string& file) {
  const std::string message = error_of([&] { parse_torch_archive(as_bytes(file), "f"); });
  return message;
}

std::string refused_tensor(const std::string& from, int64_t offset, const std::vector<int64_t>& shape,
                           const std::vector<int64_t>& strides) {
  return refusal(archive(pickle(dict({{"a", tensor(from, offset, shape, strides)}}))));
}

const std::string kFloats = storage("FloatStorage", "0", 6);

TEST(TorchArchive, TensorsReachIntoTheirStorage) {
  const std::string file = archive(pickle(dict({{"whole", tensor(kFloats, 0, {2, 3}, {3, 1})},
                                                {"turned", tensor(kFloats, 0, {3, 2}, {1, 3})},
                                                {"last", tensor(kFloats, 5, {}, {})},
                                                {"ones", tensor(kFloats, 4, {1, 2, 1}, {77, 1, 99})}})));
  const auto content = parse_torch_archive(as_bytes(file), "f");
  ASSERT_EQ(content.groups.size(), 1u);
  const auto& t = content.groups[0].tensors;
  EXPECT_EQ(as_text(t[0].bytes), "abcdefghijklmnopqrstuvwx");
  EXPECT_EQ(as_text(t[1].bytes), "abcdmnopefghqrstijkluvwx");
  EXPECT_EQ(as_text(t[2].bytes), "uvwx");
  EXPECT_EQ(as_text(t[3].bytes), "qrstuvwx");
  EXPECT_EQ(content.copies.size(), 1u) << "what is contiguous is not copied";
}

TEST(TorchArchive, ArraysOfNumpyBesideTensorsAreLeftUnread) {
  const std::string array = G("numpy.core.multiarray", "_reconstruct") + ")R";
  const std::string file = archive(pickle(dict({{"history", array}, {"a", tensor(kFloats, 0, {6}, {1})}})));
  const auto content = parse_torch_archive(as_bytes(file), "f");
  ASSERT_EQ(content.groups.size(), 1U);
  ASSERT_EQ(content.groups[0].tensors.size(), 1U);
  EXPECT_EQ(content.groups[0].tensors[0].name, "a");
}

// Returns an object of a TorchScript program with this state.
std::string module(const std::vector<std::pair<std::string, std::string>>& state) {
  return G("__torch__", "M") + ")\x81" + dict(state) + "b";
}

std::string script(const std::string& root) {
  return zip(
      {{"m/data.pkl", pickle(root)}, {"m/constants.pkl", ""}, {"m/data/0", "abcdefghijklmnopqrstuvwx"}});
}

TEST(TorchArchive, TensorsOfAProgramHaveThePathsOfTheirModules) {
  const std::string one = tensor(kFloats, 0, {6}, {1});
  const std::string file =
      script(module({{"training", "\x88"}, {"a", module({{"w", one}, {"name", S("x")}})}, {"b", one}}));
  const auto content = parse_torch_archive(as_bytes(file), "f");
  ASSERT_EQ(content.groups.size(), 1U);
  ASSERT_EQ(content.groups[0].tensors.size(), 2U);
  EXPECT_EQ(content.groups[0].tensors[0].name, "a.w");
  EXPECT_EQ(content.groups[0].tensors[1].name, "b");
  EXPECT_EQ(refusal(script(module({{"a.w", one}, {"a", module({{"w", one}})}}))),
            "f: 'a.w' occurs twice in ''");
  EXPECT_EQ(refusal(script(module({{std::string(2000, 'x'), one}}))),
            "f: a module or tensor has a name of more than 1024 bytes");
  EXPECT_EQ(refusal(script(module({{"a", S("b")}}))), "f: is a TorchScript program without weights");
  std::string deep = one;
  for (int i = 0; i < 200; ++i) deep = module({{"m", deep}});
  EXPECT_EQ(refusal(script(deep)), "f: is a TorchScript program without weights");
}

TEST(TorchArchive, RefusesTensorsThatDoNotFitTheirStorage) {
  const int64_t huge = int64_t{1} << 62;
  EXPECT_EQ(refused_tensor(kFloats, 0, {7}, {1}), "f: tensor 'a' reaches to element 6 of a storage of 6");
  EXPECT_EQ(refused_tensor(kFloats, 6, {}, {}), "f: tensor 'a' reaches to element 6 of a storage of 6");
  EXPECT_EQ(refused_tensor(kFloats, 1, {2, 3}, {3, 1}),
            "f: tensor 'a' reaches to element 6 of a storage of 6");
  EXPECT_EQ(refused_tensor(kFloats, 0, {2}, {6}), "f: tensor 'a' reaches to element 6 of a storage of 6");
  EXPECT_EQ(refused_tensor(kFloats, -1, {2}, {1}), "f: tensor 'a' has a size that overflows");
  EXPECT_EQ(refused_tensor(kFloats, 0, {huge, 4}, {4, 1}), "f: tensor 'a' has a size that overflows");
  EXPECT_EQ(refused_tensor(kFloats, 0, {huge}, {0}), "f: tensor 'a' has a size that overflows");
  EXPECT_EQ(refused_tensor(kFloats, 0, {3}, {huge}), "f: tensor 'a' has a size that overflows");
  EXPECT_EQ(refused_tensor(kFloats, huge, {2}, {huge}), "f: tensor 'a' has a size that overflows");
  EXPECT_EQ(refused_tensor(kFloats, 0, {-1}, {1}), "f: tensor 'a' has a shape or strides of an unknown form");
  EXPECT_EQ(refused_tensor(kFloats, 5, {2}, {-1}), "f: tensor 'a' has a shape or strides of an unknown form");
  EXPECT_EQ(refused_tensor(kFloats, 0, {2, 3}, {1}), "f: tensor 'a' has 2 dimensions and 1 strides");
  EXPECT_EQ(refused_tensor(kFloats, 0, std::vector<int64_t>(9, 1), std::vector<int64_t>(9, 1)),
            "f: tensor 'a' has more than 8 dimensions");
  EXPECT_EQ(refused_tensor(kFloats, 0, {0, huge, huge}, {1, 1, 1}),
            "f: tensor 'a' has a size that overflows");
}

TEST(TorchArchive, ATensorThatExpandsIsBoundedByTheFile) {
  EXPECT_EQ(refused_tensor(kFloats, 0, {1000, 1000}, {0, 0}), "") << "4 MB is little";
  EXPECT_EQ(refused_tensor(kFloats, 0, {1000000, 1000000}, {0, 0}),
            "f: tensor 'a' expands to 4.00 TB, far more than the file holds");
  std::vector<std::pair<std::string, std::string>> many;
  for (int i = 0; i < 10; ++i) many.emplace_back(std::to_string(i), tensor(kFloats, 0, {1000, 1000}, {0, 0}));
  EXPECT_EQ(refusal(archive(pickle(dict(many)))),
            "f: tensor '4' expands to 4.00 MB, far more than the file holds");
}

TEST(TorchArchive, RefusesWrongStorages) {
  const auto with = [](const std::string& from) { return refused_tensor(from, 0, {1}, {1}); };
  EXPECT_EQ(with(storage("FloatStorage", "1", 6)), "f: tensor 'a': the file has no storage '1'");
  EXPECT_EQ(with(storage("FloatStorage", "../data.pkl", 6)),
            "f: tensor 'a': the file has no storage '../data.pkl'");
  const std::string has = "f: tensor 'a': storage '0' has 24 bytes, must have ";
  EXPECT_EQ(with(storage("FloatStorage", "0", 7)), has + "7 elements of torch.FloatStorage");
  EXPECT_EQ(with(storage("DoubleStorage", "0", 6)), has + "6 elements of torch.DoubleStorage");
  EXPECT_EQ(with(storage("FloatStorage", "0", -6)), has + "-6 elements of torch.FloatStorage");
  EXPECT_EQ(with(storage("DoubleStorage", "0", (int64_t{1} << 61) + 3)),
            has + "2305843009213693955 elements of torch.DoubleStorage");  // times 8 is 24 in 64 bits
  EXPECT_EQ(with(storage("Size", "0", 6)),
            "f: tensor 'a' has a storage of type 'torch.Size', which is not supported");
  EXPECT_EQ(with(storage("BoolStorage", "0", 24)),
            "f: tensor 'a' is of bool and holds a byte that is neither 0 nor 1");
  EXPECT_EQ(with("N"), "f: tensor 'a' has no storage");
  EXPECT_EQ(with(S("0") + "Q"), "f: tensor 'a' has a storage of an unknown form");
  EXPECT_EQ(with(tuple({S("module"), G("torch", "FloatStorage"), S("0"), S("cpu"), I(6)}) + "Q"),
            "f: tensor 'a' has a storage of an unknown form");
  // Two tensors on one storage: the second description is checked too.
  EXPECT_EQ(refusal(archive(pickle(dict({{"a", tensor(kFloats, 0, {6}, {1})},
                                         {"b", tensor(storage("FloatStorage", "0", 60), 0, {60}, {1})}})))),
            "f: tensor 'b': storage '0' has 24 bytes, must have 60 elements of torch.FloatStorage");
}

TEST(TorchArchive, NoCodeIsEverNamed) {
  const std::string rest =
      ": it holds a pickled model or program, which was not run; save model.state_dict()";
  const auto call = [](const std::string& module, const std::string& name) {
    return refusal(archive(pickle(G(module, name) + tuple({S("touch /tmp/x")}) + "R")));
  };
  EXPECT_EQ(call("os", "system"), "f: data.pkl: names 'os.system'" + rest);
  EXPECT_EQ(call("posix", "system"), "f: data.pkl: names 'posix.system'" + rest);
  EXPECT_EQ(call("builtins", "eval"), "f: data.pkl: names 'builtins.eval'" + rest);
  EXPECT_EQ(call("torch", "load"), "f: data.pkl: names 'torch.load'" + rest);
  EXPECT_EQ(call("torch._utils", "_rebuild_tensor_v2.__globals__"),
            "f: data.pkl: names 'torch._utils._rebuild_tensor_v2.__globals__'" + rest);
  EXPECT_EQ(call("torch\x1b[2J", "x"), "f: data.pkl: names 'torch\\x1b[2J.x'" + rest);
  EXPECT_EQ(refusal(archive("\x80\x04" + std::string("\x8C\x02os\x8C\x06system\x93") + ")R.")),
            "f: data.pkl: names 'os.system'" + rest);
  // Names from the list cannot be combined: the list contains whole names.
  EXPECT_EQ(call("torch", "_utils"), "f: data.pkl: names 'torch._utils'" + rest);
  // A name on the list is only a node: here it makes no tensor.
  EXPECT_EQ(
      refusal(archive(pickle(dict({{"a", G("torch.nn.parameter", "Parameter") + tuple({I(1)}) + "R"}})))),
      "");
}

// Objects that training programs save next to the weights are neither run nor read, and do not hide them.
TEST(TorchArchive, ObjectsBesideTheWeightsAreLeftUnread) {
  const std::string object =
      G("mmengine.logging.history_buffer", "HistoryBuffer") + ")\x81" + dict({{"_max_length", I(3)}}) + "b";
  const std::string weights = dict({{"a", tensor(kFloats, 0, {6}, {1})}});
  const std::string file =
      archive(pickle(dict({{"message_hub", dict({{"loss", object}})}, {"state_dict", weights}})));
  const TorchContent content = parse_torch_archive(as_bytes(file), "f");
  ASSERT_EQ(content.groups.size(), 1u);
  EXPECT_EQ(content.groups[0].key, "state_dict");
  EXPECT_EQ(content.groups[0].tensors.size(), 1u);
  EXPECT_EQ(content.unread, std::vector<std::string>{"mmengine.logging.history_buffer.HistoryBuffer"});
  // Next to tensors of the file's own dictionary, unknown objects and tensors on unknown storages are errors.
  EXPECT_NE(refusal(archive(pickle(dict({{"a", tensor(kFloats, 0, {6}, {1})}, {"b", object}})))), "");
  const std::string odd = dict({{"a", tensor(storage("ComplexFloatStorage", "0", 3), 0, {3}, {1})}});
  EXPECT_EQ(refusal(archive(pickle(dict({{"state_dict", odd}})))),
            "f: data.pkl: names 'torch.ComplexFloatStorage', a kind of tensor that is not read");
}

TEST(TorchArchive, OpcodesThatWeightsDoNotNeedAreRefusedByName) {
  const auto with = [](const std::string& code) { return refusal(archive("\x80\x02" + code + ".")); };
  EXPECT_EQ(with("(" + S("x") + "ios\nsystem\n"),
            "f: data.pkl: the pickle holds INST at byte 9, which is not allowed");
  EXPECT_EQ(with("(ccollections\nOrderedDict\no"),
            "f: data.pkl: the pickle holds OBJ at byte 28, which is not allowed");
  EXPECT_EQ(with("}2"), "f: data.pkl: the pickle holds DUP at byte 3, which is not allowed");
  EXPECT_EQ(with("\x82\x01"), "f: data.pkl: the pickle holds EXT1 at byte 2, which is not allowed");
  EXPECT_EQ(with("}}}\x92"), "f: data.pkl: the pickle holds NEWOBJ_EX at byte 5, which is not allowed");
  EXPECT_EQ(with("S'x'\n"), "f: data.pkl: the pickle holds STRING at byte 2, which is not allowed");
  EXPECT_EQ(with("\xFF"), "f: data.pkl: damaged pickle at byte 2: no such opcode as 255");
  EXPECT_EQ(refusal(archive("\x80\x05}.")), "f: data.pkl: a pickle of protocol 5, at most 4 is read");
}

TEST(TorchArchive, DamagedPicklesAreRefused) {
  const auto with = [](const std::string& code) {
    const std::string said = refusal(archive("\x80\x02" + code));
    const std::string start = "f: data.pkl: damaged pickle at byte ";
    return said.starts_with(start) ? said.substr(start.size()) : said;
  };
  EXPECT_EQ(with(""), "2: it ends too early");
  EXPECT_EQ(with("X\xFF\xFF\xFF\xFF"), "2: it ends too early");
  EXPECT_EQ(with("."), "2: it takes from an empty stack");
  EXPECT_EQ(with("}}."), "4: it leaves things on the stack");
  EXPECT_EQ(with("(}."), "4: it leaves things on the stack");
  EXPECT_EQ(with("}.x"), "f: data.pkl: bytes after the end of the pickle at byte 4");
  EXPECT_EQ(with("t."), "2: it lacks a mark");
  EXPECT_EQ(with("N(\x85."), "4: it takes from an empty stack") << "nothing is taken from below a mark";
  EXPECT_EQ(with("h\x05."), "2: it recalls an unknown value");
  EXPECT_EQ(with("q\x05."), "2: it looks at an empty stack");
  EXPECT_EQ(with("]NNs."), "5: it adds keys to a non-dictionary");
  EXPECT_EQ(with("}Na."), "4: it adds items to a non-list");
  EXPECT_EQ(with("}(Nu."), "5: a key without a value");
  EXPECT_EQ(with("N)R."), "4: it calls a non-function");
  EXPECT_EQ(with("ccollections\nOrderedDict\n}R."), "28: its call has no tuple of arguments");
  EXPECT_EQ(with("}}b."), "4: it sets the state of an object that no call made");
  EXPECT_EQ(with("X\x01" + std::string(3, '\0') + "\xFF."), "2: a text that is not UTF-8");
  EXPECT_EQ(with("cno end of the line"), "2: a name that does not end");
  EXPECT_EQ(with("\x8A\xFF" + std::string(255, '\1') + "."), "2: an integer that is too long");
  EXPECT_EQ(with(std::string(2000, '(')), "1002: it nests too deep");
}

TEST(TorchArchive, BombsOfManyThingsAreRefused) {
  EXPECT_EQ(refusal(archive(pickle(std::string((4 << 20) + 10, 'N')))),
            "f: data.pkl: damaged pickle at byte 4194306: it builds too many things");
  EXPECT_EQ(refusal(archive("\x80\x04}" + std::string((4 << 20) + 10, '\x94') + ".")),
            "f: data.pkl: damaged pickle at byte 4194307: it remembers too many things");
  EXPECT_EQ(refusal(archive(pickle(S(std::string(64 << 20, 'N'))))),
            "f: data.pkl: a pickle of 67108872 bytes, at most 67108864 are read");
  // Each dictionary contains the previous one twice: 2^40 paths, but each dictionary is visited once.
  std::string doubled = "}q\x01";
  for (int i = 0; i < 40; ++i)
    doubled = "}q" + le(static_cast<uint64_t>(i + 2), 1) + "(" + S("a") + doubled + S("b") + "h" +
              le(static_cast<uint64_t>(i == 0 ? 1 : i + 1), 1) + "u";
  EXPECT_EQ(refusal(archive(pickle(doubled))), "");
  // A dictionary that contains itself.
  EXPECT_EQ(refusal(archive(pickle("}q\x01(" + S("me") + "h\x01u"))), "");
}

TEST(TorchArchive, NamesAreCheckedAndDuplicatesRefused) {
  const std::string t = tensor(kFloats, 0, {6}, {1});
  EXPECT_EQ(refusal(archive(pickle(dict({{"a", t}, {"a", t}})))), "f: 'a' occurs twice in ''");
  EXPECT_EQ(refusal(archive(pickle(dict({{"a\n", t}})))),
            "f: a tensor has the name 'a\\x0a': must have 1 to 1024 bytes and no control characters");
  EXPECT_EQ(refusal(archive(pickle(dict({{"", t}})))),
            "f: a tensor has the name '': must have 1 to 1024 bytes and no control characters");
}

TEST(TorchArchive, OrderedDictsMayGetTheirEntriesInEveryWay) {
  const std::string t = tensor(kFloats, 0, {6}, {1});
  const std::string made = G("collections", "OrderedDict") +
                           tuple({"](" + tuple({S("a"), t}) + "](" + S("b") + t + "ee"}) + "R" + S("c") + t +
                           "s" + dict({{"_metadata", "N"}}) + "b";
  const std::string file = archive(pickle(dict({{"net", made}})));
  const auto content = parse_torch_archive(as_bytes(file), "f");
  ASSERT_EQ(content.groups.size(), 1u);
  EXPECT_EQ(content.groups[0].key, "net");
  std::string order;
  for (const TensorView& v : content.groups[0].tensors) order += v.name;
  EXPECT_EQ(order, "abc");
}

class TorchWeights : public TemporaryFolder {
 protected:
  std::string names_in(const std::string& body, const std::string& key = "") {
    write_text_atomic(path("f"), archive(pickle(body)));
    std::string out;
    const TorchArchive file(path("f"));
    for (const TensorView& t : file.weights(key)) out += t.name + ";";
    return out;
  }
};

TEST_F(TorchWeights, AreTakenFromTheUsualPlaces) {
  const std::string t = tensor(kFloats, 0, {6}, {1});
  const auto set = [&](const std::string& name) { return dict({{name, t}}); };
  EXPECT_EQ(names_in(dict({{"model_ema", set("e")}, {"model", set("m")}})), "m;");
  EXPECT_EQ(names_in(dict({{"model_ema", set("e")}, {"model", set("m")}}), "model_ema"), "e;");
  EXPECT_EQ(names_in(dict({{"odd", set("o")}})), "o;");
  EXPECT_EQ(names_in(dict({{"odd", dict({{"inner", set("o")}})}}), "odd.inner"), "o;");
  EXPECT_EQ(names_in(dict({{"module.a", t}, {"module.b", t}})), "a;b;");
  EXPECT_EQ(names_in(dict({{"module.a", t}, {"b", t}})), "module.a;b;");
  EXPECT_EQ(names_in(dict({{"_orig_mod.module.a", t}})), "a;");
  EXPECT_EQ(error_of([&] {
              names_in(dict({{"x", set("a")}, {"y", set("b")}}));
            }),
            path("f") + ": has no weights, must be one of 'x', 'y'");
  EXPECT_EQ(error_of([&] { names_in("}"); }), path("f") + ": has no weights");
}

// --- zip

std::string zip_refusal(const std::string& file) {
  return error_of([&] { index_zip(as_bytes(file), "f"); });
}

TEST(Zip, EntriesLieWhereTheDirectorySays) {
  for (const bool wide : {false, true}) {
    const std::string file =
        zip({{.name = "a", .content = "one", .wide = wide}, {.name = "b/c", .content = ""}}, wide,
            wide ? "" : "comment");
    const auto entries = index_zip(as_bytes(file), "f");
    ASSERT_EQ(entries.size(), 2u);
    EXPECT_EQ(entries[0].name, "a");
    EXPECT_EQ(as_text(entries[0].bytes), "one");
    EXPECT_EQ(entries[1].name, "b/c");
    EXPECT_TRUE(entries[1].bytes.empty());
  }
  EXPECT_TRUE(index_zip(as_bytes(zip({})), "f").empty());
}

TEST(Zip, RefusesWhatItDoesNotKnowAndWhatLies) {
  const Member a = {.name = "a", .content = "0123456789"};
  const auto with = [&](const std::function<void(Member&)>& change) {
    Member changed = a;
    change(changed);
    return zip_refusal(zip({changed, {.name = "b", .content = "bb"}}));
  };
  EXPECT_EQ(with([](Member&) {}), "");
  EXPECT_EQ(with([](Member& m) { m.flags = 1; }), "f: zip entry 'a' is encrypted");
  EXPECT_EQ(with([](Member& m) { m.name = m.local_name = "b"; }),
            "f: zip entry 'b' occurs twice in the directory");
  EXPECT_EQ(with([](Member& m) { m.local_name = "x"; }),
            "f: zip entry 'a' has another name in its own header");
  EXPECT_EQ(with([](Member& m) { m.local_name = "long"; }),
            "f: zip entry 'a' has another name in its own header");
  EXPECT_EQ(with([](Member& m) { m.size = 11; }), "f: zip entry 'b' overlaps 'a'");
  EXPECT_EQ(with([](Member& m) { m.size = 1000; }),
            "f: zip entry 'a' has 1000 bytes and would end outside the file");
  EXPECT_EQ(with([](Member& m) { m.size = ~uint64_t{0}, m.wide = true; }),
            "f: zip entry 'a' has 18446744073709551615 bytes and would end outside the file");
  EXPECT_EQ(with([](Member& m) { m.at = 5; }), "f: zip entry 'a' has no header of its own at byte 5");
  EXPECT_EQ(with([](Member& m) { m.at = ~uint64_t{0} - 3, m.wide = true; }),
            "f: zip entry 'a' has no header of its own at byte 18446744073709551612");
  EXPECT_EQ(with([](Member& m) { m.size = 0xFFFFFFFF; }), "f: zip entry 'a' lacks its 64-bit sizes");
  EXPECT_EQ(zip_refusal("PK"), "f: is no zip archive, or truncated: it has no end mark");
  std::string volumes = zip({a});
  volumes[volumes.size() - 18] = 1;
  EXPECT_EQ(zip_refusal(volumes), "f: a zip archive of several volumes");
  std::string many = zip({a});
  many[many.size() - 11] = '\x7F';
  EXPECT_EQ(zip_refusal(many), "f: the zip directory has 47 bytes, too few for 32513 entries");
  std::string far = zip({a});
  far[far.size() - 3] = '\x7F';
  EXPECT_EQ(zip_refusal(far), "f: the zip directory is outside the file");
}

TEST(Zip, NoTruncationIsTakenForAWhole) {
  const std::string whole = archive(pickle(dict({{"a", tensor(kFloats, 0, {6}, {1})}})));
  EXPECT_EQ(refusal(whole), "");
  for (size_t size = 0; size < whole.size(); ++size) EXPECT_NE(refusal(whole.substr(0, size)), "") << size;
}

TEST(TorchArchive, OtherArchivesAreNamed) {
  EXPECT_EQ(refusal(zip({{"a", "x"}})), "f: is a zip archive, but not one of PyTorch: it has no data.pkl");
  EXPECT_EQ(refusal(zip({{"m/data.pkl", pickle("}")}, {"m/byteorder", "big"}})),
            "f: its numbers are big-endian, must be little-endian");
  EXPECT_EQ(refusal(zip({{"m/data.pkl", pickle("}")}, {.name = "m/data/0", .content = "x", .method = 8}})),
            "f: zip entry 'm/data/0' is compressed, PyTorch stores its own as they are");
  EXPECT_EQ(refusal(zip({{"m/data.pkl", pickle("}")}, {"n/data.pkl", pickle("}")}})), "f: holds two pickles");
  EXPECT_EQ(refusal("\x80\x04}."),
            "f: is a bare pickle without arrays of numpy, which can run code when Python loads it: "
            "torch.save(model.state_dict(), FILE) with PyTorch 1.6 or later");
  EXPECT_EQ(refusal(""), "f: is no PyTorch file: must be a zip archive of PyTorch 1.6 or later");
}

// Random damage: an error, or tensors inside the file (or a copy); the sanitizers watch.
TEST(TorchArchive, DamagedFilesAreRefusedOrStayInBounds) {
  const std::string whole = read_text(kFolder + "views.pth");
  RandomStream random(5, "damage");
  for (int i = 0; i < 3000; ++i) {
    std::string bad = whole;
    for (int64_t n = random.integer(1, 4); n > 0; --n)
      bad[random.below(1600)] = static_cast<char>(random.next_u32());  // mostly in the pickle
    try {
      const auto content = parse_torch_archive(as_bytes(bad), "f");
      for (const TorchGroup& group : content.groups)
        for (const TensorView& t : group.tensors) {
          const std::string bytes(as_text(t.bytes));
          uint64_t size = size_of(t.dtype);
          for (const int64_t extent : t.shape) size *= static_cast<uint64_t>(extent);
          ASSERT_EQ(bytes.size(), size);
        }
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace tessera
