// The parsers of a server: whole requests round trip, and each broken one is refused by name.
#include <gtest/gtest.h>

#include <cstring>

#include "io/files/gzip.h"
#include "serve/bodies.h"
#include "serve/metrics.h"
#include "serve/v2.h"

namespace tessera::serve {
namespace {

using answer::Datatype;

template <class Act>
std::string error_of(const Act& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string v2_error(const std::string& body, int64_t json_bytes = -1) {
  return error_of([&] { parse_v2(body, json_bytes); });
}

std::string with_input(const std::string& fields) { return R"({"inputs": [{"name": "x", )" + fields + "}]}"; }

TEST(V2, ReadsListsOfEveryDatatype) {
  const V2Request read = parse_v2(
      R"({"id": "7", "parameters": {"top": 3, "share": 0.5, "words": ["a", "b"]}, "inputs": [
          {"name": "a", "datatype": "FP32", "shape": [2, 2], "data": [[1, 2], [3, 4.5]]},
          {"name": "b", "datatype": "BYTES", "shape": [2], "data": ["one", ""]},
          {"name": "c", "datatype": "INT64", "shape": [1], "data": [-9223372036854775808]},
          {"name": "d", "datatype": "BOOL", "shape": [3], "data": [true, false, true]}]})",
      -1);
  EXPECT_EQ(read.id, "7");
  ASSERT_EQ(read.request.inputs.size(), 4u);
  float values[4] = {};
  ASSERT_EQ(read.request.inputs[0].data.size(), sizeof values);
  std::memcpy(values, read.request.inputs[0].data.data(), sizeof values);
  EXPECT_EQ(values[3], 4.5F);
  EXPECT_EQ(read.request.inputs[1].texts, (std::vector<std::string>{"one", ""}));
  EXPECT_EQ(read.request.options.find("top")->as_int(), 3);
  EXPECT_EQ(read.request.options.find("words")->as_array().size(), 2u);
}

TEST(V2, ReadsBinaryTensorsAfterTheJson) {
  const std::string head =
      R"({"inputs": [{"name": "n", "datatype": "INT32", "shape": [2], "parameters": {"binary_data_size": 8}},
                     {"name": "t", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 7}}]})";
  const int32_t numbers[2] = {5, -6};
  const uint32_t length = 3;
  std::string body = head + std::string(reinterpret_cast<const char*>(numbers), sizeof numbers);
  body += std::string(reinterpret_cast<const char*>(&length), sizeof length) + "a\0b";
  body = body.substr(0, head.size() + 8 + 4) + std::string("a\0b", 3);
  const V2Request read = parse_v2(body, std::ssize(head));
  EXPECT_EQ(std::memcmp(read.request.inputs[0].data.data(), numbers, sizeof numbers), 0);
  EXPECT_EQ(read.request.inputs[1].texts, (std::vector<std::string>{std::string("a\0b", 3)}));
  for (size_t cut = head.size(); cut < body.size(); ++cut)
    EXPECT_NE(v2_error(body.substr(0, cut), std::ssize(head)), "") << cut;
  EXPECT_NE(v2_error(body + "x", std::ssize(head)).find("belong to no input"), std::string::npos);
}

TEST(V2, RefusesEachLieByName) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("datatype": "FP23", "shape": [1], "data": [1])", "did you mean 'FP32'"},
      {R"("datatype": "FP32", "shape": [2], "data": [1])", "has 1 elements, its shape has 2"},
      {R"("datatype": "FP32", "shape": [1], "data": [1, 2])", "more elements than its shape"},
      {R"("datatype": "FP32", "shape": [-1], "data": [1])", "negative extent"},
      {R"("datatype": "FP32", "shape": [1.5], "data": [1])", "whole numbers"},
      {R"("datatype": "FP32", "shape": [18446744073709551615], "data": [1])", "whole numbers"},
      {R"("datatype": "FP32", "shape": [4294967296, 4294967296], "data": [1])", "has more than"},
      {R"("datatype": "FP32", "shape": [1,1,1,1,1,1,1,1,1], "data": [1])", "extents"},
      {R"("datatype": "FP32", "shape": [1], "data": ["a"])", "no number"},
      {R"("datatype": "UINT8", "shape": [1], "data": [256])", "whole number of its datatype"},
      {R"("datatype": "UINT8", "shape": [1], "data": [-1])", "whole number of its datatype"},
      {R"("datatype": "INT64", "shape": [1], "data": [9223372036854775808])", "whole number of its datatype"},
      {R"("datatype": "BYTES", "shape": [1], "data": [1])", "no string"},
      {R"("datatype": "FP32", "shape": [1])", "neither 'data' nor binary_data_size"},
      {R"("datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": 4})", "0 bytes are left"},
      {R"("datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": -4})", "whole number"},
      {R"("datatype": "FP32", "shape": [1], "data": [1], "parameters": {"binary_data_size": 4})",
       "give one"}};
  for (const auto& [fields, why] : cases)
    EXPECT_NE(v2_error(with_input(fields)).find(why), std::string::npos)
        << fields << ": " << v2_error(with_input(fields));
  EXPECT_NE(v2_error("[1]"), "");
  EXPECT_NE(v2_error("{"), "");
  EXPECT_NE(v2_error("{}", 3).find("the body has 2 bytes"), std::string::npos);
  EXPECT_NE(v2_error(R"({"parameters": {"a": {"b": 1}}})").find("option 'a'"), std::string::npos);
}

answer::Reply sample_reply() {
  const double shares[2] = {0.75, 0.25};
  answer::Reply reply;
  reply.outputs = {{.name = "share",
                    .type = Datatype::fp64,
                    .shape = {1, 2},
                    .data = std::string(reinterpret_cast<const char*>(shares), sizeof shares)},
                   {.name = "class", .type = Datatype::bytes, .shape = {2}, .texts = {"cat", "\xff"}}};
  return reply;
}

TEST(V2, WritesListsAndBinary) {
  const V2Reply lists = write_v2("m", parse_v2(R"({"id": "a"})", -1), sample_reply());
  EXPECT_EQ(lists.json_bytes, -1);
  const auto json = nlohmann::json::parse(lists.body);
  EXPECT_EQ(json["id"], "a");
  EXPECT_EQ(json["outputs"][0]["data"][1], 0.25);
  const V2Request asked = parse_v2(
      R"({"outputs": [{"name": "class", "parameters": {"binary_data": true}}, {"name": "share"}]})", -1);
  const V2Reply mixed = write_v2("m", asked, sample_reply());
  const auto head = nlohmann::json::parse(mixed.body.substr(0, static_cast<size_t>(mixed.json_bytes)));
  EXPECT_EQ(head["outputs"][0]["parameters"]["binary_data_size"], 12);
  EXPECT_EQ(mixed.body.size(), static_cast<size_t>(mixed.json_bytes) + 12);
  EXPECT_NE(error_of([&] {
              write_v2("m", parse_v2(R"({"outputs": [{"name": "clas"}]})", -1), sample_reply());
            }).find("did you mean 'class'"),
            std::string::npos);
}

// Few bytes of a request make many of its reply.
TEST(V2, ListsAndRepetitionsAreBounded) {
  answer::Reply reply;
  reply.outputs = {{.name = "mask",
                    .type = Datatype::uint8,
                    .shape = {1, 4096, 4097},
                    .data = std::string(4096 * 4097, 1)}};
  EXPECT_THROW(write_v2("m", parse_v2("{}", -1), reply), answer::TooLarge);
  const V2Request binary = parse_v2(R"({"parameters": {"binary_data_output": true}})", -1);
  EXPECT_GT(write_v2("m", binary, reply).body.size(), size_t{4096 * 4097});
  EXPECT_NE(error_of([] {
              parse_v2(R"({"outputs": [{"name": "mask"}, {"name": "mask"}]})", -1);
            }).find("requested twice"),
            std::string::npos);
}

TEST(Multipart, SplitsPartsWhateverTheyHold) {
  const std::string file = std::string("\x89PNG\r\n--bound\r\n-", 16) + std::string("\0\r\n--boun", 9);
  const std::string body =
      "--boundary\r\nContent-Disposition: form-data; name=\"image\"; filename=\"a;\\\"b.png\"\r\n"
      "Content-Type: image/png\r\n\r\n" +
      file + "\r\n--boundary\r\ncontent-disposition: form-data; name=top\r\n\r\n3\r\n--boundary--\r\n";
  const std::vector<FormPart> parts = parse_multipart(body, "boundary");
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].name, "image");
  EXPECT_EQ(parts[0].file, "a;\"b.png");
  EXPECT_EQ(parts[0].content, file);
  EXPECT_EQ(parts[1].name, "top");
  EXPECT_EQ(parts[1].content, "3");
  for (size_t cut = 0; cut + 4 < body.size(); ++cut)
    EXPECT_NE(error_of([&] { parse_multipart(body.substr(0, cut), "boundary"); }), "") << cut;
  EXPECT_EQ(boundary_of("multipart/form-data; boundary=\"a b\""), "a b");
  EXPECT_EQ(boundary_of("multipart/mixed; boundary=a"), "");
}

TEST(Multipart, AnEmptyPartHasNoContent) {
  const std::vector<FormPart> parts = parse_multipart("--b\r\nA: b\r\n\r\n\r\n--b\r\n\r\nx\r\n--b--", "b");
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].content, "");
  EXPECT_EQ(parts[1].content, "x");
}

TEST(Target, DecodesPathAndQuery) {
  const RequestTarget target = parse_target("/models/a%20b/predict?top=3&class=x%26y&class=");
  EXPECT_EQ(target.path, (std::vector<std::string>{"models", "a b", "predict"}));
  ASSERT_EQ(target.query.size(), 3u);
  EXPECT_EQ(target.query[1].second, "x&y");
  EXPECT_EQ(parse_target("/v2/").path, std::vector<std::string>{"v2"});
  EXPECT_TRUE(parse_target("/").path.empty());
  for (const std::string& bad : std::vector<std::string>{"", "*", "http://a/b", "/%", "/%0", "/%zz", "/a%00b",
                                                         "/%ff", "/a b", "/" + std::string(3000, 'a')})
    EXPECT_NE(error_of([&] { parse_target(bad); }), "") << bad;
  EXPECT_EQ(host_name("LOCALHOST:8080"), "localhost");
  EXPECT_EQ(host_name("[::1]:8080"), "[::1]");
  EXPECT_EQ(host_name("[::1]"), "[::1]");
}

answer::Request plain(const std::string& type, const std::string& body, const std::string& target = "/") {
  HttpRequest http{"POST", target, body};
  if (!type.empty()) http.headers.emplace_back("content-type", type);
  return parse_plain(http, body, parse_target(target));
}

TEST(Bodies, OneImageInEveryForm) {
  const std::string png = std::string("\x89PNG\r\n\x1a\n", 8) + "rest";
  for (const auto& request :
       {plain("image/png", png, "/?top=2"), plain("application/x-www-form-urlencoded", png, "/?top=2"),
        plain("application/json", R"({"image": "iVBORw0KGgpyZXN0", "top": 2})"),
        plain("application/json", R"({"image": ["data:image/png;base64,iVBORw0KGgpyZXN0"], "top": 2})"),
        plain("multipart/form-data; boundary=b",
              "--b\r\nContent-Disposition: form-data; name=image\r\n\r\n" + png +
                  "\r\n--b\r\nContent-Disposition: form-data; name=top\r\n\r\n2\r\n--b--")}) {
    ASSERT_EQ(request.inputs.size(), 1u);
    EXPECT_EQ(request.inputs[0].texts, std::vector<std::string>{png});
    EXPECT_EQ(request.inputs[0].shape, std::vector<int64_t>{1});
    ASSERT_NE(request.options.find("top"), nullptr);
  }
  EXPECT_NE(error_of([] { plain("text/plain", "hello"); }).find("Content-Type"), std::string::npos);
  EXPECT_NE(error_of([] { plain("application/json", R"({"image": "*"})"); }).find("no base64"),
            std::string::npos);
  EXPECT_NE(error_of([] { plain("application/json", R"({"image": {"file": "/etc/passwd"}})"); }), "");
}

TEST(Bodies, AreInflatedUnderTheLimit) {
  std::string packed;
  GzipEncoder encoder([&](std::span<const std::byte> piece) {
    packed.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  });
  const std::string zeros(5 << 20, '\0');
  encoder.write(std::as_bytes(std::span(zeros)));
  encoder.finish();
  HttpRequest http{"POST", "/", packed, {{"content-encoding", "gzip"}}};
  EXPECT_EQ(inflated_body(http, zeros.size()), zeros);
  EXPECT_NE(error_of([&] { inflated_body(http, zeros.size() - 1); }).find("inflated body"),
            std::string::npos);
  http.headers = {{"content-encoding", "br"}};
  EXPECT_NE(error_of([&] { inflated_body(http, 100); }).find("Content-Encoding"), std::string::npos);
}

TEST(Metrics, WritesHistogramsOfPrometheus) {
  Metrics metrics;
  metrics.count("a_total", "A.", {{"model", "x\"\\\n"}});
  for (const double value : {0.5, 3.0, 9.0}) metrics.observe("b", "B.", {}, value, {1, 4});
  EXPECT_EQ(
      metrics.text(),
      "# HELP a_total A.\n# TYPE a_total counter\na_total{model=\"x\\\"\\\\\\n\"} 1\n"
      "# HELP b B.\n# TYPE b histogram\nb_bucket{le=\"1\"} 1\nb_bucket{le=\"4\"} 2\nb_bucket{le=\"+Inf\"} 3\n"
      "b_sum 12.5\nb_count 3\n");
}

}  // namespace
}  // namespace tessera::serve
