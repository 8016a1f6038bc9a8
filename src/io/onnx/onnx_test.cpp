#include <gtest/gtest.h>

#include "io/files/file.h"
#include "io/files/io_testing.h"
#include "io/onnx/onnx_model.h"

namespace tessera {
namespace {

class OnnxTest : public TemporaryFolder {
 protected:
  OnnxModel small() const {
    OnnxModel model;
    model.producer = "tessera", model.producer_version = "1", model.description = "a test";
    model.metadata = {{"key", "value"}};
    model.graph.name = "graph";
    model.graph.inputs = {{"x", OnnxType::f32, {{.name = "batch"}, {.size = 2}}}};
    model.graph.outputs = {{"y", OnnxType::f32, {{.name = "batch"}, {.size = 2}}}};
    model.graph.weights = {{"w", OnnxType::f32, {2, 2}, std::as_bytes(std::span(numbers_))}};
    model.graph.nodes = {{"product", "MatMul", {"x", "w"}, {"p"}},
                         {"norm",
                          "LayerNormalization",
                          {"p", "w"},
                          {"y"},
                          {{"axis", int64_t{-1}},
                           {"epsilon", 1e-5f},
                           {"name", std::string("n")},
                           {"axes", std::vector<int64_t>{-2, 3}},
                           {"scales", std::vector<float>{0.5f}}}}};
    return model;
  }
  static constexpr float numbers_[] = {1, 2, 3, 4};
};

void expect_same(const OnnxModel& a, const OnnxModel& b) {
  EXPECT_EQ(a.opset, b.opset);
  EXPECT_EQ(a.producer, b.producer);
  EXPECT_EQ(a.metadata, b.metadata);
  ASSERT_EQ(a.graph.nodes.size(), b.graph.nodes.size());
  for (size_t i = 0; i < a.graph.nodes.size(); ++i) {
    EXPECT_EQ(a.graph.nodes[i].operation, b.graph.nodes[i].operation);
    EXPECT_EQ(a.graph.nodes[i].inputs, b.graph.nodes[i].inputs);
    EXPECT_EQ(a.graph.nodes[i].outputs, b.graph.nodes[i].outputs);
    ASSERT_EQ(a.graph.nodes[i].attributes.size(), b.graph.nodes[i].attributes.size());
    for (size_t k = 0; k < a.graph.nodes[i].attributes.size(); ++k)
      EXPECT_EQ(a.graph.nodes[i].attributes[k].value.index(), b.graph.nodes[i].attributes[k].value.index());
  }
  EXPECT_EQ(a.graph.inputs[0].shape, b.graph.inputs[0].shape);
  ASSERT_EQ(a.graph.weights.size(), b.graph.weights.size());
  EXPECT_EQ(as_text(a.graph.weights[0].bytes), as_text(b.graph.weights[0].bytes));
}

TEST_F(OnnxTest, IsReadAsWritten) {
  write_onnx(path("a.onnx"), small());
  expect_same(small(), read_onnx(path("a.onnx")));
}

TEST_F(OnnxTest, LargeWeightsAreNextToTheModel) {
  write_onnx(path("a.onnx"), small(), /*most_bytes=*/8);
  EXPECT_TRUE(file_exists(path("a.onnx.data")));
  expect_same(small(), read_onnx(path("a.onnx")));
  cut_file(path("a.onnx.data"), 3);
  EXPECT_NE(error_of([&] { read_onnx(path("a.onnx")); }).find("tensor 'w' ends beyond"), std::string::npos);
}

TEST_F(OnnxTest, ExternalDataAreInTheFolderOfTheModel) {
  write_onnx(path("a.onnx"), small(), /*most_bytes=*/8);
  std::string bytes = read_text(path("a.onnx"));
  const size_t at = bytes.find("a.onnx.data");
  bytes.replace(at, 11, "../../a.dat");
  write_text_atomic(path("b.onnx"), bytes);
  EXPECT_NE(error_of([&] { read_onnx(path("b.onnx")); }).find("must be a file in the folder of the model"),
            std::string::npos);
}

// Every prefix and every changed byte is read or refused, never more.
TEST_F(OnnxTest, DamagedFilesAreRefused) {
  write_onnx(path("a.onnx"), small());
  const std::vector<std::byte> whole = read_file(path("a.onnx"));
  for (size_t length = 0; length < whole.size(); ++length) try {
      parse_onnx(std::span(whole).first(length), "a.onnx");
    } catch (const Error&) {
    }
  for (size_t at = 0; at < whole.size(); ++at)
    for (const int flip : {1, 8, 128, 255}) {
      std::vector<std::byte> other = whole;
      other[at] ^= static_cast<std::byte>(flip);
      try {
        parse_onnx(other, "a.onnx");
      } catch (const Error&) {
      }
    }
  EXPECT_NE(error_of([&] { parse_onnx(as_bytes("GIF89a"), "a.onnx"); }).find("'a.onnx' is not an ONNX model"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera
