#include "io/weights/safetensors.h"

#include <gtest/gtest.h>

#include "core/random.h"
#include "io/files/file_faults.h"
#include "io/files/io_testing.h"

namespace tessera {
namespace {

class SafetensorsTest : public TemporaryFolder {
 protected:
  void TearDown() override { FileFaults::set(""); }
};

// Returns a file with this header (length first) and `data_bytes` data bytes.
std::string file_of(const std::string& header, size_t data_bytes = 0) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(header.size() >> (8 * i) & 255);
  return out + header + std::string(data_bytes, '\0');
}

std::string refusal(const std::string& file) {
  return error_of([&] { parse_safetensors(as_bytes(file), "f"); });
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets +
         "}";
}

struct Case {
  std::string file, message;
};

void expect_each(const std::vector<Case>& cases) {
  for (const Case& c : cases) EXPECT_EQ(refusal(c.file), c.message) << c.file.substr(8, 300);
}

TEST_F(SafetensorsTest, WhatIsWrittenIsRead) {
  RandomStream random(1, "safetensors test");
  std::string noise(4000, '\0');
  for (char& c : noise) c = static_cast<char>(random.next_u32());
  const auto cut = [&](size_t begin, size_t size) { return as_bytes(noise).subspan(begin, size); };
  const std::vector<TensorView> tensors = {
      {"blocks.0.weight", DType::f32, {3, 4, 5}, cut(0, 240)},
      {"scalar", DType::f64, {}, cut(240, 8)},
      {"empty", DType::f16, {3, 0, 2}, {}},
      {"größe \"quoted\\\"", DType::bf16, {7}, cut(248, 14)},
      {"i64", DType::i64, {2}, cut(262, 16)},
      {"i32", DType::i32, {1, 1, 1, 1, 1, 1, 1, 2}, cut(278, 8)},
      {"i16", DType::i16, {5}, cut(286, 10)},
      {"i8", DType::i8, {5}, cut(296, 5)},
      {"u8", DType::u8, {3}, cut(301, 3)},
      {"flags", DType::boolean, {4}, as_bytes(std::string_view("\0\1\1\0", 4))},
  };
  const Metadata metadata = {{"format", "tessera"}, {"recipe", "a = \"b\"\nc = 1\n"}, {"ü", ""}};
  const std::string checksum = write_safetensors(path("f"), tensors, metadata);
  EXPECT_EQ(checksum, checksum_of(read_file(path("f"))));
  const SafetensorsFile file(path("f"));
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_EQ(file.tensors().size(), tensors.size());
  for (const TensorView& want : tensors) {
    const TensorView* got = file.find(want.name);
    ASSERT_NE(got, nullptr) << want.name;
    EXPECT_EQ(got->dtype, want.dtype) << want.name;
    EXPECT_EQ(got->shape, want.shape) << want.name;
    EXPECT_EQ(as_text(got->bytes), as_text(want.bytes)) << want.name;
  }
  EXPECT_EQ(file.find("no such tensor"), nullptr);
  // The data starts at a multiple of 8 bytes, so that a map of it is aligned.
  EXPECT_EQ((file.tensors()[0].bytes.data() - MappedFile(path("f")).bytes().data()) % 8, 0);
}

TEST_F(SafetensorsTest, WritingIsDeterministicAndOrdered) {
  const std::vector<TensorView> tensors = {{"b", DType::u8, {1}, as_bytes("2")},
                                           {"a", DType::u8, {1}, as_bytes("1")}};
  write_safetensors(path("f"), tensors);
  EXPECT_EQ(read_text(path("f")).substr(8),
            "{\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
            "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}       21");
  write_safetensors(path("nothing"), {});
  EXPECT_EQ(read_text(path("nothing")), file_of("{}      "));
  EXPECT_TRUE(SafetensorsFile(path("nothing")).tensors().empty());
}

TEST_F(SafetensorsTest, OddFilesThatAreLegalAreRead) {
  EXPECT_EQ(refusal(file_of("{}")), "");
  EXPECT_EQ(refusal(file_of("{} \n\t ")), "") << "blanks after the header";
  EXPECT_EQ(refusal(file_of("{\"__metadata__\":{}}")), "");
  // Tensors may be in any order, may be empty, and may share an offset if they are empty.
  const auto content = parse_safetensors(
      as_bytes(file_of(
          "{" + tensor("last", "U8", "[2]", "[3,5]") + "," + tensor("none", "F32", "[0]", "[3,3]") + "," +
              tensor("also none", "F64", "[2,0,9]", "[3,3]") + "," + tensor("first", "U8", "[3]", "[0,3]") +
              "," + tensor("at the end", "F32", "[0]", "[5,5]") + "}",
          5)),
      "f");
  std::string order;
  for (const TensorView& t : content.tensors) order += t.name + ";";
  EXPECT_EQ(order, "first;none;also none;last;at the end;");
  // Keys of a tensor in any order; escapes in names.
  EXPECT_EQ(refusal(file_of("{\"a\\u00e9\":{\"data_offsets\":[0,8],\"shape\":[],\"dtype\":\"I64\"}}", 8)),
            "");
}

TEST_F(SafetensorsTest, RefusesBrokenFrames) {
  std::string over = file_of("{}");
  over[3] = '\x06';  // 0x06000002 bytes
  expect_each({
      {"", "f: has 0 bytes, a safetensors file has at least 8"},
      {"1234567", "f: has 7 bytes, a safetensors file has at least 8"},
      {over, "f: declares a header of 100663298 bytes, at most 100000000 are allowed"},
      {std::string(8, '\xFF'),
       "f: declares a header of 18446744073709551615 bytes, at most 100000000 are allowed"},
      {file_of("{}").substr(0, 9), "f: truncated: the header has 2 bytes, the file ends after 1"},
      {file_of(""), "f: the header does not start with '{'"},
      {file_of(" {}"), "f: the header does not start with '{'"},
      {file_of("[]"), "f: the header does not start with '{'"},
      {file_of("{\"\xFF\":1}"), "f: the header is not UTF-8"},
      {file_of("{\"\xC0\xAF\":1}"), "f: the header is not UTF-8"},
      {file_of("{} x"), "f: the header is no valid JSON at byte 11"},
      {file_of("{}{}"), "f: the header is no valid JSON at byte 10"},
      {file_of("{"), "f: the header is no valid JSON at byte 9"},
      {file_of("{\"a\":{\"dtype\":\"F32\",}}"), "f: the header is no valid JSON at byte 28"},
      {file_of(std::string("{}\0", 3)), "f: the header is no valid JSON at byte 10"},
      {file_of(std::string("{}\0{\"a\":1}", 10)), "f: the header is no valid JSON at byte 10"},
      {file_of("{\"\\ud800\":1}"), "f: the header is no valid JSON at byte 16"},
      {"version https://git-lfs.github.com/spec/v1\n",
       "f: declares a header of 2336927755350992246 bytes, at most 100000000 are allowed"
       " (it is a Git LFS pointer: fetch the file itself)"},
      {"{\n  \"weight_map\": {}}",
       "f: declares a header of 7594607335081773691 bytes, at most 100000000 are allowed"
       " (it is JSON: an index of shards has a name that ends in .json)"},
  });
  EXPECT_TRUE(
      refusal(std::string("PK\x03\x04xxxxxxxx")).ends_with(" (it is a zip archive: a PyTorch file?)"));
}

TEST_F(SafetensorsTest, RefusesHeadersOfAnotherForm) {
  const auto with = [](const std::string& entry) { return file_of("{" + entry + "}", 4); };
  const std::string deep = std::string(90'000, '[');
  expect_each({
      {with("\"a\":1"), "f: tensor 'a' is a number, must be an object"},
      {with("\"a\":-1"), "f: tensor 'a' is the number -1, must be an object"},
      {with("\"a\":null"), "f: tensor 'a' is null, must be an object"},
      {with("\"a\":" + deep), "f: tensor 'a' is an array, must be an object"},
      {with("\"a\":{\"shape\":" + deep), "f: tensor 'a': shape holds an array, must hold integers from 0"},
      {with("\"a\":{\"dtype\":{\"b\":{}}}"), "f: tensor 'a': dtype is an object, must be a string"},
      {with("\"a\":{\"shape\":{\"b\":{}}}"), "f: tensor 'a': shape is an object, must be an array"},
      {with("\"a\":{\"shape\":[{}]}"), "f: tensor 'a': shape holds an object, must hold integers from 0"},
      {with("\"a\":{\"shape\":[\"1\"]}"), "f: tensor 'a': shape holds a string, must hold integers from 0"},
      {with("\"a\":{\"shape\":[true]}"), "f: tensor 'a': shape holds a boolean, must hold integers from 0"},
      {with("\"a\":{\"shape\":[-1]}"), "f: tensor 'a': shape holds the number -1, must hold integers from 0"},
      {with("\"a\":{\"shape\":[1.0]}"),
       "f: tensor 'a': shape holds the number 1.0, must hold integers from 0"},
      {with("\"a\":{\"shape\":[1e3]}"),
       "f: tensor 'a': shape holds the number 1e3, must hold integers from 0"},
      {with("\"a\":{\"shape\":[18446744073709551616]}"),
       "f: tensor 'a': shape holds the number 18446744073709551616, must hold integers from 0"},
      {with("\"a\":{\"dtype\":4}"), "f: tensor 'a': dtype is a number, must be a string"},
      {with("\"a\":{\"strides\":[1]}"), "f: tensor 'a' has the unknown key 'strides'"},
      {with("\"a\":{}"), "f: tensor 'a' has no dtype"},
      {with("\"a\":{\"dtype\":\"F32\"}"), "f: tensor 'a' has no shape"},
      {with("\"a\":{\"dtype\":\"F32\",\"shape\":[]}"), "f: tensor 'a' has no data_offsets"},
      {with(tensor("a", "F32", "[1]", "[0]")), "f: tensor 'a' has 1 data_offsets, must be two"},
      {with(tensor("a", "F32", "[1]", "[0,4,4]")), "f: tensor 'a' has more than two data_offsets"},
      {with(tensor("a", "F32", "[1]", "[-4,0]")),
       "f: tensor 'a': data_offsets holds the number -4, must hold integers from 0"},
      {with("\"__metadata__\":3"), "f: __metadata__ is a number, must be an object"},
      {with("\"__metadata__\":{\"k\":3}"), "f: metadata 'k' is a number, must be a string"},
      {with("\"__metadata__\":{\"k\":{}}"), "f: metadata 'k' is an object, must be a string"},
      {with("\"__metadata__\":{\"k\":[\"v\"]}"), "f: metadata 'k' is an array, must be a string"},
      {with("\"__metadata__\":{\"k\":null}"), "f: metadata 'k' is null, must be a string"},
  });
}

TEST_F(SafetensorsTest, RefusesDuplicates) {
  const std::string one = tensor("a", "U8", "[2]", "[0,2]"), two = tensor("a", "U8", "[2]", "[2,4]");
  const std::string metadata = "\"__metadata__\":{\"k\":\"v\"}";
  expect_each({
      {file_of("{" + one + "," + two + "}", 4), "f: the header has 'a' twice"},
      {file_of("{" + one + "," + tensor("\\u0061", "U8", "[2]", "[2,4]") + "}", 4),
       "f: the header has 'a' twice"},
      {file_of("{" + metadata + "," + metadata + "}"), "f: the header has '__metadata__' twice"},
      {file_of("{\"__metadata__\":{\"k\":\"v\",\"k\":\"w\"}}"), "f: the metadata has 'k' twice"},
      {file_of("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"I8\"}}"), "f: tensor 'a' has 'dtype' twice"},
      {file_of("{\"a\":{\"shape\":[1],\"shape\":[2]}}"), "f: tensor 'a' has 'shape' twice"},
      {file_of("{\"a\":{\"data_offsets\":[0,1],\"data_offsets\":[0,1]}}"),
       "f: tensor 'a' has 'data_offsets' twice"},
  });
}

TEST_F(SafetensorsTest, RefusesWrongNamesDtypesAndShapes) {
  const std::string dtypes = "must be F64, F32, F16, BF16, I64, I32, I16, I8, U8 or BOOL";
  expect_each({
      {file_of("{" + tensor("", "U8", "[0]", "[0,0]") + "}"), "f: the name of tensor '' is empty"},
      {file_of("{" + tensor("a\\nb", "U8", "[0]", "[0,0]") + "}"),
       "f: the name of tensor 'a\\x0ab' holds control characters"},
      {file_of("{" + tensor(std::string(1025, 'n'), "U8", "[0]", "[0,0]") + "}"),
       "f: the name of tensor '" + std::string(200, 'n') + "...' is longer than 1024 bytes"},
      {file_of("{" + tensor("a", "f32", "[1]", "[0,4]") + "}", 4),
       "f: tensor 'a' has the dtype 'f32', " + dtypes},
      {file_of("{" + tensor("a", "F4", "[1]", "[0,4]") + "}", 4),
       "f: tensor 'a' has the dtype 'F4', " + dtypes},
      {file_of("{" + tensor("a", "", "[1]", "[0,4]") + "}", 4), "f: tensor 'a' has the dtype '', " + dtypes},
      {file_of("{" + tensor("a", "F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") + "}", 4),
       "f: tensor 'a' has more than 8 dimensions"},
      {file_of("{" + tensor("a", "F32", "[9223372036854775808]", "[0,4]") + "}", 4),
       "f: tensor 'a' has the extent 9223372036854775808, its size overflows"},
      {file_of("{" + tensor("a", "F32", "[4611686018427387905]", "[0,4]") + "}", 4),
       "f: tensor 'a' has the shape [4611686018427387905], its size overflows"},  // times 4 is 4 in 64 bits
      {file_of("{" + tensor("a", "U8", "[4294967296,4294967296]", "[0,0]") + "}"),
       "f: tensor 'a' has the shape [4294967296, 4294967296], its size overflows"},
      {file_of("{" + tensor("a", "U8", "[9223372036854775807,9223372036854775807,0]", "[0,0]") + "}"),
       "f: tensor 'a' has the shape [9223372036854775807, 9223372036854775807, 0], its size overflows"},
      {file_of("{" + tensor("a", "F64", "[1152921504606846976]", "[0,9223372036854775808]") + "}"),
       "f: tensor 'a' has the shape [1152921504606846976], its size overflows"},
      {file_of("{" + tensor("a", "F32", "[2]", "[0,4]") + "}", 4),
       "f: tensor 'a' has 4 bytes, F32 [2] needs 8"},
      {file_of("{" + tensor("a", "F32", "[]", "[0,0]") + "}"), "f: tensor 'a' has 0 bytes, F32 [] needs 4"},
      {file_of("{" + tensor("a", "BOOL", "[2]", "[0,2]") + "}") + "\1\2",
       "f: tensor 'a' is BOOL and holds a byte that is neither 0 nor 1"},
  });
}

TEST_F(SafetensorsTest, RefusesWrongLayouts) {
  const auto two = [](const std::string& first, const std::string& second, size_t bytes) {
    return file_of("{" + tensor("a", "U8", "[4]", first) + "," + tensor("b", "U8", "[4]", second) + "}",
                   bytes);
  };
  expect_each({
      {two("[0,4]", "[4,8]", 8), ""},
      {two("[4,0]", "[4,8]", 8), "f: tensor 'a' begins at byte 4, after its end at 0"},
      {two("[0,4]", "[0,4]", 4), "f: tensor 'b' overlaps tensor 'a' at byte 0"},
      {two("[0,4]", "[3,7]", 7), "f: tensor 'b' overlaps tensor 'a' at byte 3"},
      {two("[3,7]", "[0,4]", 7), "f: tensor 'a' overlaps tensor 'b' at byte 3"},
      {two("[0,4]", "[5,9]", 9), "f: no tensor holds the bytes from 4 to 'b' at 5"},
      {two("[1,5]", "[5,9]", 9), "f: no tensor holds the bytes from 0 to 'a' at 1"},
      {two("[0,4]", "[4,8]", 7), "f: truncated: the tensors need 8 bytes, the file ends after 7"},
      {two("[0,4]", "[18446744073709551611,18446744073709551615]", 8),
       "f: no tensor holds the bytes from 4 to 'b' at 18446744073709551611"},
      {two("[0,4]", "[4,8]", 9), "f: 1 bytes after the last tensor"},
      {file_of("{}", 1), "f: 1 bytes after the last tensor"},
      {file_of("{" + tensor("a", "U8", "[4]", "[0,4]") + "," + tensor("b", "U8", "[0]", "[2,2]") + "}", 4),
       "f: tensor 'b' overlaps tensor 'a' at byte 2"},
  });
}

TEST_F(SafetensorsTest, EveryTruncationOfAFileIsAnError) {
  write_safetensors(path("f"),
                    {{"a", DType::u8, {3}, as_bytes("abc")}, {"b", DType::f32, {1}, as_bytes("1234")}},
                    {{"k", "v"}});
  const std::string whole = read_text(path("f"));
  EXPECT_EQ(refusal(whole), "");
  for (size_t size = 0; size < whole.size(); ++size) EXPECT_NE(refusal(whole.substr(0, size)), "") << size;
}

// No changed byte makes reading go out of bounds (the sanitizers watch) or puts a tensor outside the file.
TEST_F(SafetensorsTest, DamagedFilesAreRefusedOrStayInBounds) {
  write_safetensors(path("f"),
                    {{"a", DType::u8, {3}, as_bytes("abc")}, {"b", DType::f32, {1}, as_bytes("1234")}},
                    {{"k", "v"}});
  const std::string whole = read_text(path("f"));
  RandomStream random(3, "damage");
  for (int i = 0; i < 20000; ++i) {
    std::string bad = whole;
    for (int64_t n = random.integer(1, 3); n > 0; --n)
      bad[random.below(bad.size())] = static_cast<char>(random.next_u32());
    try {
      for (const TensorView& t : parse_safetensors(as_bytes(bad), "f").tensors) {
        ASSERT_GE(as_text(t.bytes).data(), bad.data());
        ASSERT_LE(as_text(t.bytes).data() + t.bytes.size(), bad.data() + bad.size());
      }
    } catch (const Error&) {
    }
  }
}

TEST_F(SafetensorsTest, TensorsThatExistOneAtATimeMakeTheSameFile) {
  const auto bytes = as_bytes("12345678");
  const std::vector<TensorView> whole = {{"a", DType::f32, {2}, bytes},
                                         {"b", DType::u8, {3}, bytes.subspan(5)}};
  std::vector<TensorView> none = whole;
  for (TensorView& view : none) view.bytes = {};
  const Metadata metadata = {{"format", "pt"}};
  const std::string sum = write_safetensors(path("whole"), whole, metadata);
  EXPECT_EQ(
      stream_safetensors(path("one by one"), none, metadata,
                         [&](const TensorView& view) { return view.name == "a" ? bytes : bytes.subspan(5); }),
      sum);
  EXPECT_TRUE(read_file(path("whole")) == read_file(path("one by one")));
  EXPECT_EQ(error_of([&] {
              stream_safetensors(path("whole"), none, metadata, [&](const TensorView&) { return bytes; });
            }),
            "cannot write '" + path("whole") + "': tensor 'b' has 8 bytes, U8 [3] needs 3");
  EXPECT_TRUE(read_file(path("whole")) == read_file(path("one by one")));
}

TEST_F(SafetensorsTest, TheWriterRefusesWhatTheReaderWould) {
  const std::string start = "cannot write '" + path("f") + "': ";
  const auto said = [&](const std::vector<TensorView>& tensors, const Metadata& metadata = {}) {
    return error_of([&] { write_safetensors(path("f"), tensors, metadata); });
  };
  const auto bytes = as_bytes("1234");
  EXPECT_EQ(said({{"a", DType::f32, {2}, bytes}}), start + "tensor 'a' has 4 bytes, F32 [2] needs 8");
  EXPECT_EQ(said({{"a", DType::f32, {-1}, bytes}}),
            start + "tensor 'a' has 4 bytes, F32 [-1] needs more than there are");
  EXPECT_EQ(said({{"a", DType::f32, {1}, bytes}, {"a", DType::f32, {}, bytes}}),
            start + "tensor 'a': the name is taken");
  EXPECT_EQ(said({{"__metadata__", DType::f32, {1}, bytes}}),
            start + "tensor '__metadata__': the name is taken");
  EXPECT_EQ(said({{"", DType::f32, {1}, bytes}}), start + "tensor '': the name is empty");
  EXPECT_EQ(said({{"\xFF", DType::f32, {1}, bytes}}), start + "tensor '\\xff': the name is not UTF-8");
  EXPECT_EQ(said({{"a\n", DType::f32, {1}, bytes}}),
            start + "tensor 'a\\x0a': the name holds control characters");
  EXPECT_EQ(said({{"a", DType::f32, std::vector<int64_t>(9, 1), bytes}}),
            start + "tensor 'a' has more than 8 dimensions");
  EXPECT_EQ(said({}, {{"k", "\xFF"}}), start + "metadata 'k' is not UTF-8");
  EXPECT_TRUE(names().empty());
}

TEST_F(SafetensorsTest, AFullDiskLeavesTheOldFile) {
  write_safetensors(path("f"), {{"a", DType::u8, {3}, as_bytes("old")}});
  FileFaults::set("write:1:ENOSPC");
  EXPECT_EQ(error_of([&] {
              write_safetensors(path("f"), {{"a", DType::u8, {3}, as_bytes("new")}});
            }),
            "cannot write '" + path("f") + "': No space left on device");
  EXPECT_EQ(as_text(SafetensorsFile(path("f")).tensors().at(0).bytes), "old");
  EXPECT_EQ(names(), std::vector<std::string>{"f"});
}

}  // namespace
}  // namespace tessera
