// Hostile requests over a socket: each gets a status of the right kind, and the next good request is answered.
// `make sanitize` runs this without LibTorch.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <set>
#include <thread>

#include "answer/options.h"
#include "core/text.h"
#include "io/images/image.h"
#include "serve/http_server.h"
#include "serve/service.h"

namespace tessera::serve {
namespace {

using namespace std::string_literals;

constexpr int64_t kMostPixels = 1'000'000;
constexpr uint64_t kMostBody = uint64_t{1} << 20;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Reads images as the answers of models do, and returns their sizes.
class Sizes final : public answer::Answerer {
 public:
  Sizes() {
    description_.kind = "sizes";
    description_.inputs = {{"image", answer::Datatype::bytes, {-1}, "encoded images"},
                           {"pixels", answer::Datatype::uint8, {-1, -1, -1, 3}, "pixels"}};
    description_.alternatives = {"image", "pixels"};
    description_.outputs = {{"width", answer::Datatype::int64, {-1}, "of each"}};
  }
  const answer::Description& description() const override { return description_; }

  std::unique_ptr<answer::Prepared> prepare(const answer::Request& request) const override {
    answer::check_inputs(request, description_);
    answer::read_options<answer::NoOptions>(request.options);
    auto prepared = std::make_unique<Widths>();
    for (const std::string& encoded : request.inputs.at(0).texts) {
      const ImageInfo info = image_info(bytes_of(encoded), "image");
      if (static_cast<int64_t>(info.width) * info.height > kMostPixels)
        throw answer::TooLarge("image: too many pixels");
      prepared->widths.push_back(decode_image(bytes_of(encoded), "image", {.max_pixels = kMostPixels}).width);
    }
    if (request.inputs[0].texts.empty()) prepared->widths.push_back(request.inputs[0].shape.at(2));
    return prepared;
  }

  std::vector<answer::Reply> answer(std::span<answer::Prepared* const> requests,
                                    const answer::Control&) override {
    std::vector<answer::Reply> replies;
    for (const answer::Prepared* one : requests) {
      const auto& widths = static_cast<const Widths*>(one)->widths;
      answer::Reply& reply = replies.emplace_back();
      reply.outputs = {
          {.name = "width",
           .type = answer::Datatype::int64,
           .shape = {std::ssize(widths)},
           .data = std::string(reinterpret_cast<const char*>(widths.data()), 8 * widths.size())}};
      for (const int64_t width : widths) reply.results.push_back({{"width", width}});
    }
    return replies;
  }

 private:
  struct Widths : answer::Prepared {
    std::vector<int64_t> widths;
  };
  answer::Description description_;
};

class Hostile : public testing::Test {
 protected:
  void SetUp() override {
    models_.open();
    service_.set_ready(true);
    thread_ = std::thread([this] { server_.run(); });
    const std::string address = server_.address();
    port_ = static_cast<uint16_t>(*parse_int(address.substr(address.rfind(':') + 1)));
  }
  void TearDown() override {
    server_.post([this] { server_.drain(10); });
    thread_.join();
  }

  int connected() const {
    const int caller = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in place{};
    place.sin_family = AF_INET, place.sin_port = htons(port_);
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(caller, reinterpret_cast<const sockaddr*>(&place), sizeof place), 0);
    return caller;
  }

  // Sends bytes and returns the whole reply of a connection that then closes, or that has a whole response.
  std::string exchange(const std::string& bytes) const {
    const int caller = connected();
    const timeval patience{.tv_sec = 20, .tv_usec = 0};
    ::setsockopt(caller, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t count = ::send(caller, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) break;  // refused already
      sent += static_cast<size_t>(count);
    }
    std::string reply(65536, '\0');
    const ssize_t count = ::recv(caller, reply.data(), reply.size(), 0);
    ::close(caller);
    reply.resize(count > 0 ? static_cast<size_t>(count) : 0);
    return reply;
  }

  // 0: the connection was closed without a response.
  int status(const std::string& bytes) const {
    const std::string reply = exchange(bytes);
    return reply.size() < 12 ? 0 : static_cast<int>(parse_int(reply.substr(9, 3)).value_or(-1));
  }

  static std::string post(const std::string& path, const std::string& body, const std::string& headers = "") {
    return text("POST ", path, " HTTP/1.1\r\nHost: localhost\r\n", headers, "Content-Length: ", body.size(),
                "\r\n\r\n", body);
  }
  static std::string good() {
    const std::vector<std::byte> png = encode_png(Image(3, 2));
    return post("/models/sizes/predict", std::string(reinterpret_cast<const char*>(png.data()), png.size()),
                "Content-Type: image/png\r\n");
  }

  static ServiceOptions service_options() {
    ServiceOptions options;
    options.body_bytes = kMostBody;
    return options;
  }

  struct Case {
    std::string bytes;
    std::set<int> allowed;
  };
  void check(const std::vector<Case>& cases) const {
    for (size_t i = 0; i < cases.size(); ++i) {
      const int found = status(cases[i].bytes);
      EXPECT_TRUE(cases[i].allowed.count(found))
          << "case " << i << ": status " << found << " of " << printable(cases[i].bytes.substr(0, 120), 200);
      const std::string reply = exchange(good());
      ASSERT_NE(reply.find("{\"width\":3}"), std::string::npos) << "after case " << i << ": " << reply;
    }
  }

  Metrics metrics_;
  Jobs jobs_{4};
  HttpServer server_{"127.0.0.1:0",
                     {.body_bytes = kMostBody, .header_seconds = 2, .body_seconds = 2, .idle_seconds = 2},
                     [this](HttpRequest request, const std::shared_ptr<Exchange>& exchange) {
                       service_.handle(std::move(request), exchange);
                     }};
  Decoders decoders_{1};
  Computer computer_{metrics_};
  Models models_{{{"sizes", ""}},
                 {},
                 {.batch = 4},
                 computer_,
                 [](const answer::OpenRequest&, std::vector<std::string>&) {
                   return std::vector<answer::NamedAnswerer>{{"", std::make_shared<Sizes>()}};
                 }};
  Service service_{service_options(), models_, computer_, decoders_, jobs_, metrics_};
  std::thread thread_;
  uint16_t port_ = 0;
};

const std::string kPost = "POST /models/sizes/predict HTTP/1.1\r\nHost: localhost\r\n";
const std::string kGet = "GET /models HTTP/1.1\r\n";

std::string repeated(const std::string& piece, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += piece;
  return out;
}

TEST_F(Hostile, Framing) {
  check({
      // Two lengths, two codings: another server might see another request in it.
      {kPost + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", {400}},
      {kPost + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", {400}},
      {kPost + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", {400}},
      {kPost + "Content-Length: 3, 4\r\n\r\nabcd", {400}},
      {kPost + "Content-Length: +3\r\n\r\nabc", {400}},
      {kPost + "Content-Length: 0x3\r\n\r\nabc", {400}},
      {kPost + "Content-Length: -1\r\n\r\n", {400}},
      {kPost + "Content-Length: 18446744073709551616\r\n\r\n", {400}},
      {kPost + "Content-Length: 18446744073709551615\r\n\r\n", {400, 413}},
      {kPost + "Content-Length: 9999999999\r\n\r\n", {413}},
      {kPost + "Content-Length : 3\r\n\r\nabc", {400}},
      {kPost + "Transfer-Encoding: chunked\r\n\r\n-5\r\nabc\r\n0\r\n\r\n", {400}},
      {kPost + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc", {400}},
      {kPost + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nabc", {400, 413}},
      {kPost + "Transfer-Encoding: chunked\r\n\r\nfffffff0\r\nabc", {413}},
      {kPost + "Transfer-Encoding: chunked\r\n\r\n5\r\nabcdefgh\r\n0\r\n\r\n", {400}},
      {kPost + "Transfer-Encoding: chunked\r\n\r\n0x5\r\nabcde\r\n0\r\n\r\n", {400}},
      {kPost + "Transfer-Encoding: chunked\r\n\r\n" + repeated("1\r\na\r\n", 20000) + "0\r\n\r\n",
       {415, 422}},
      {kPost + "Transfer-Encoding: chunked\r\n\r\n3;" + std::string(300000, 'x') + "\r\nabc\r\n0\r\n\r\n",
       {400, 413, 431}},
      {kPost + "Transfer-Encoding: gzip, identity\r\n\r\n", {400, 411}},
      {kPost + "Transfer-Encoding: xchunked\r\n\r\n", {400, 411}},
      {kPost + "\r\n", {411}},
      {kPost + "Content-Length: 50\r\n\r\nabc", {408}},
      {kPost + "Conten", {408}},
  });
}

TEST_F(Hostile, Heads) {
  std::string thousand;
  for (int i = 0; i < 1000; ++i) thousand += text("X-", i, ": ", std::string(12, 'a'), "\r\n");
  check({
      {kGet + "Host: localhost\r\n" + thousand + "\r\n", {431}},
      {kGet + "Host: localhost\r\nX: " + std::string(20000, 'a') + "\r\n\r\n", {431}},
      {kGet + "Host: localhost\r\n" + std::string(20000, 'a') + ": a\r\n\r\n", {400, 431}},
      {"GET /" + std::string(20000, 'a') + " HTTP/1.1\r\n\r\n", {431}},
      {"GET /" + std::string(3000, 'a') + " HTTP/1.1\r\nHost: localhost\r\n\r\n", {400}},
      {"GET /models\0x HTTP/1.1\r\nHost: localhost\r\n\r\n"s, {400}},
      {kGet + "Host: local\0host\r\n\r\n"s, {400}},
      {"GET /models%00 HTTP/1.1\r\nHost: localhost\r\n\r\n", {400}},
      {"GET /models%zz HTTP/1.1\r\nHost: localhost\r\n\r\n", {400}},
      {"GET /models%c0%ae HTTP/1.1\r\nHost: localhost\r\n\r\n", {400}},
      {"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", {400, 404}},
      {"GET http://localhost/models HTTP/1.1\r\nHost: localhost\r\n\r\n", {400}},
      {"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", {400}},
      {"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", {400, 404, 405}},
      {"BREW /models HTTP/1.1\r\nHost: localhost\r\n\r\n", {405}},
      {std::string(20000, 'A') + " / HTTP/1.1\r\nHost: localhost\r\n\r\n", {400, 431}},
      {"GET /models HTTP/9.9\r\nHost: localhost\r\n\r\n", {400}},
      {"GET /models\r\n\r\n", {400}},
      {"\x16\x03\x01\x02" + std::string(100, '\xfc'), {400}},
      {kGet + "\r\n", {403}},
      {kGet + "Host: attacker.example\r\n\r\n", {403}},
      {kGet + "Host: localhost.attacker.example\r\n\r\n", {403}},
      {kGet + "Host: 127.0.0.1.attacker.example:8080\r\n\r\n", {403}},
      {kGet + "Host: localhost\r\nOrigin: http://attacker.example\r\n\r\n", {403}},
      {kGet + "Host: localhost\r\nOrigin: null\r\n\r\n", {403}},
      {kGet + "Host: localhost\r\n folded\r\n\r\n", {400, 403}},
  });
}

std::string big_endian(uint32_t number) {
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(number >> shift);
  return out;
}

std::string png_of(uint32_t width, uint32_t height) {
  const auto chunk = [](const std::string& kind, const std::string& data) {
    const std::string whole = kind + data;
    const auto sum =
        ::crc32(0, reinterpret_cast<const Bytef*>(whole.data()), static_cast<uInt>(whole.size()));
    return big_endian(static_cast<uint32_t>(data.size())) + whole + big_endian(static_cast<uint32_t>(sum));
  };
  const std::string head = big_endian(width) + big_endian(height) + "\x08\x02\0\0\0"s;
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", head) + chunk("IDAT", std::string(100, 'x')) + chunk("IEND", "");
}

std::string gzip_of(const std::string& piece, int count) {
  z_stream stream{};
  ::deflateInit2(&stream, 9, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY);
  std::string out, buffer(1 << 16, '\0');
  for (int i = 0; i <= count; ++i) {
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(piece.data()));
    stream.avail_in = i < count ? static_cast<uInt>(piece.size()) : 0;
    do {
      stream.next_out = reinterpret_cast<Bytef*>(buffer.data()),
      stream.avail_out = static_cast<uInt>(buffer.size());
      ::deflate(&stream, i < count ? Z_NO_FLUSH : Z_FINISH);
      out.append(buffer, 0, buffer.size() - stream.avail_out);
    } while (stream.avail_out == 0);
  }
  ::deflateEnd(&stream);
  return out;
}

TEST_F(Hostile, Bodies) {
  const std::string path = "/models/sizes/predict", json = "Content-Type: application/json\r\n",
                    form = "Content-Type: multipart/form-data; boundary=b\r\n",
                    png = "Content-Type: image/png\r\n", gzip = png + "Content-Encoding: gzip\r\n";
  const std::string part = "--b\r\nContent-Disposition: form-data; name=\"image\"\r\n\r\nx\r\n";
  check({
      {post(path, png_of(65535, 65535), png), {413}},
      {post(path, png_of(0x7fffffff, 0x7fffffff), png), {413, 422}},
      {post(path, png_of(0, 5), png), {422}},
      {post(path, png_of(5, 5), png), {422}},
      {post(path, png_of(5, 5).substr(0, 20), png), {422}},
      {post(path, gzip_of(std::string(1 << 20, '\0'), 200), gzip), {413}},
      {post(path, gzip_of("abc", 1).substr(0, 12), gzip), {400}},
      {post(path, "no gzip", gzip), {400}},
      {post(path, "abc", png + "Content-Encoding: br\r\n"), {415}},
      {post(path, "abc", "Content-Type: text/html\r\n"), {415}},
      {post(path, std::string(kMostBody + 1, 'a'), png), {413}},
      {post(path, repeated("[", 100000), json), {400}},
      {post(path, "{\"image\": \"" + repeated("=", 1000) + "\"}", json), {400}},
      {post(path, "{\"image\": [1, {}]}", json), {400}},
      {post(path, "{\"image\": \"\\u0000\"}", json), {400}},
      {post(path, "{\"image\": \"iVBORw0KGgo=\", \"image\": \"\"}", json), {400, 422}},
      {post(path, "{\"top\": 1e999}", json), {400}},
      {post(path, "\xff\xfe{}", json), {400}},
      {post(path, part + "--b--\r\n", form), {422}},
      {post(path, part, form), {400}},
      {post(path, repeated(part, 65) + "--b--\r\n", form), {400}},
      {post(path, "--b\r\n" + repeated("X: a\r\n", 2000) + "\r\nx\r\n--b--\r\n", form), {400}},
      {post(path,
            "--b\r\nContent-Disposition: form-data; name=\"a\"; filename=\"../x\"\r\n\r\nx\r\n--b--\r\n",
            form),
       {400}},
      {post(path, "x", "Content-Type: multipart/form-data; boundary=" + std::string(1000, 'b') + "\r\n"),
       {400}},
      {post(path, "x", "Content-Type: multipart/form-data\r\n"), {400}},
      {post(path + "?image=x&a=%ff", "", ""), {400}},
  });
}

std::string tensor(const std::string& fields) {
  return "{\"inputs\": [{\"name\": \"pixels\", " + fields + "}]}";
}

TEST_F(Hostile, Tensors) {
  const std::string path = "/v2/models/sizes/infer", uint8 = "\"datatype\": \"UINT8\", ";
  const auto binary = [&](const std::string& head, const std::string& rest, int64_t length) {
    return post(path, head + rest, text("Inference-Header-Content-Length: ", length, "\r\n"));
  };
  const std::string words =
      "{\"inputs\": [{\"name\": \"image\", \"datatype\": \"BYTES\", \"shape\": [1], "
      "\"parameters\": {\"binary_data_size\": 8}}]}";
  const auto size = static_cast<int64_t>(words.size());
  check({
      {post(path, tensor(uint8 + "\"shape\": [1, 1, 1, 3], \"data\": [1, 2]")), {400}},
      {post(path, tensor(uint8 + "\"shape\": [1, 1, 1, 3], \"data\": [1, 2, 256]")), {400}},
      {post(path, tensor(uint8 + "\"shape\": [1, -1, 1, 3], \"data\": []")), {400}},
      {post(path, tensor(uint8 + "\"shape\": [4294967296, 4294967296, 1, 3], \"data\": []")), {413}},
      {post(path, tensor(uint8 + "\"shape\": [9223372036854775807, 2, 1, 3], \"data\": []")), {413}},
      {post(path, tensor(uint8 + "\"shape\": [18446744073709551615, 1, 1, 3], \"data\": []")), {400}},
      {post(path, tensor(uint8 + "\"shape\": [0, 4294967296, 4294967296, 3], \"data\": []")), {400, 413}},
      {post(path, tensor(uint8 + "\"shape\": [1.5, 1, 1, 3], \"data\": []")), {400}},
      {post(path, tensor(uint8 + "\"shape\": [1, 1, 1, 3], \"data\": [[[[1, 2, [3]]]]]")), {200}},
      {post(path, tensor(uint8 + "\"shape\": \"3\", \"data\": []")), {400}},
      {post(path, tensor("\"datatype\": \"FP99\", \"shape\": [3], \"data\": []")), {400}},
      {post(path, "{\"inputs\": " + repeated("[", 5000) + "}"), {400}},
      {post(path, "{\"inputs\": {\"a\": 1}}"), {400}},
      {binary("{}", "", 99), {400}},
      {binary("{}", "", -1), {400}},
      {post(path, "{}", "Inference-Header-Content-Length: 99999999999999999999\r\n"), {400}},
      {post(path, "{}", "Inference-Header-Content-Length: 0x2\r\n"), {400}},
      {binary(words, "\xff\xff\xff\xff"s + "abcd", size), {400}},
      {binary(words, "\x05\0\0\0"s + "abcd", size), {400}},
      {binary(words, "\x03\0\0\0"s + "abcd", size), {400}},
      {binary(words, "ab", size), {400}},
      {binary(words, "\x04\0\0\0"s + "abcdefgh", size), {400}},
      {binary(words, "\x04\0\0\0"s + "abcd", size), {422}},
  });
}

// Callers that stop halfway hold nothing: all their connections close within the limits, while good ones are answered.
TEST_F(Hostile, HalfRequests) {
  std::vector<int> callers;
  for (int i = 0; i < 100; ++i) {
    callers.push_back(connected());
    const std::string half = i % 3 == 0   ? ""
                             : i % 3 == 1 ? kPost.substr(0, 20)
                                          : kPost + "Content-Length: 9\r\n\r\na";
    ::send(callers.back(), half.data(), half.size(), MSG_NOSIGNAL);
  }
  check({{kGet + "Host: localhost\r\n\r\n", {200}}});
  for (size_t i = 0; i < callers.size(); ++i) {
    char head[13] = {};
    const timeval patience{.tv_sec = 20, .tv_usec = 0};
    ::setsockopt(callers[i], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    const ssize_t count = ::recv(callers[i], head, 12, MSG_WAITALL);  // 0: closed
    EXPECT_EQ(count, i % 3 == 0 ? 0 : 12) << i;
    EXPECT_STREQ(head, i % 3 == 0 ? "" : "HTTP/1.1 408") << i;
    ::close(callers[i]);
  }
}

}  // namespace
}  // namespace tessera::serve
