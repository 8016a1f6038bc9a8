#include "serve/bodies.h"

#include <algorithm>

#include "core/text.h"
#include "io/files/gzip.h"
#include "io/files/json.h"
#include "io/images/image.h"

namespace tessera::serve {
namespace {

using answer::Request;

constexpr size_t kMostImages = 256,
                 kMostPiece = size_t{2} << 20;  // pieces of inflated bytes; the limit is checked after each
constexpr JsonLimits kLimits{.max_bytes = uint64_t{256} << 20, .max_depth = 4};

std::span<const std::byte> bytes_of(std::string_view content) {
  return std::as_bytes(std::span(content.data(), content.size()));
}

void add_image(Request& request, std::string content) {
  if (request.inputs.empty())
    request.inputs.push_back({.name = "image", .type = answer::Datatype::bytes, .shape = {0}});
  answer::Array& images = request.inputs[0];
  if (images.texts.size() == kMostImages) fail_usage("a request has at most ", kMostImages, " images");
  images.texts.push_back(std::move(content));
  ++images.shape[0];
}

// The words of each option, in order; if an option is repeated, its words are a list.
using Words = std::vector<std::pair<std::string, std::vector<std::string>>>;

void add_word(Words& words, const std::string& key, const std::string& word) {
  for (auto& [name, all] : words)
    if (name == key) return all.push_back(word);
  words.push_back({key, {word}});
}

void add_options(Request& request, const Words& words) {
  for (const auto& [key, all] : words)
    request.options.as_table().emplace_back(
        key, all.size() == 1 ? Value(all[0]) : Value(Value::Array(all.begin(), all.end())));
}

void add_base64(Request& request, const nlohmann::json& value) {
  if (!value.is_string()) fail_usage("'image' must be an image in base64, or a list of such");
  std::string_view words = value.get_ref<const std::string&>();
  if (words.starts_with("data:")) {
    const size_t comma = words.find(";base64,");
    if (comma == std::string_view::npos) fail_usage("'image' is a data URI without ;base64,");
    words.remove_prefix(comma + 8);
  }
  const auto bytes = from_base64(words);
  if (!bytes) fail_usage("'image' is no base64");
  add_image(request, std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size()));
}

void read_json(Request& request, const std::string& body) {
  const auto document = parse_json<nlohmann::json>(body, "the body", kLimits);
  if (!document.is_object()) fail_usage("the body is no JSON object");
  nlohmann::json options = nlohmann::json::object();
  for (const auto& [key, value] : document.items()) {
    if (key != "image") {
      options[key] = value;
    } else if (value.is_array()) {
      for (const auto& one : value) add_base64(request, one);
    } else {
      add_base64(request, value);
    }
  }
  const Value read = parse_json_value(options.dump(), "the body");
  for (const auto& [key, value] : read.as_table()) request.options.as_table().emplace_back(key, value);
}

void read_form(Request& request, Words& words, const std::string& body, const std::string& boundary) {
  for (const FormPart& part : parse_multipart(body, boundary)) {
    if (part.name == "image")
      add_image(request, std::string(part.content));
    else if (part.name.empty() || !part.file.empty())
      fail_usage("the form has a file in part '", printable(part.name), "', must be 'image'");
    else
      add_word(words, part.name, std::string(part.content));
  }
}

}  // namespace

std::string inflated_body(const HttpRequest& request, uint64_t most) {
  const std::string coding = lower(request.header("content-encoding"));
  if (coding.empty() || coding == "identity") return request.body;
  if (coding != "gzip" && coding != "x-gzip")
    throw HttpError(415, "Content-Encoding is '" + printable(coding) + "', must be gzip or identity");
  std::string out;
  inflate_gzip(bytes_of(request.body), "the body", {.max_bytes = most + kMostPiece, .max_ratio = 1100},
               [&](std::span<const std::byte> piece) {
                 if (out.size() + piece.size() > most)
                   throw HttpError(413, text("the inflated body has more than ", most, " bytes"));
                 out.append(reinterpret_cast<const char*>(piece.data()), piece.size());
               });
  return out;
}

answer::Request parse_plain(const HttpRequest& http, const std::string& body, const RequestTarget& target) {
  Request request;
  Words words;
  for (const auto& [key, word] : target.query) add_word(words, key, word);
  const std::string type =
      lower(trim(http.header("content-type").substr(0, http.header("content-type").find(';'))));
  if (type == "application/json") {
    read_json(request, body);
  } else if (type == "multipart/form-data") {
    read_form(request, words, body, boundary_of(http.header("content-type")));
  } else if (!body.empty()) {
    // `curl --data-binary` sends a fixed type.
    const bool raw = type.empty() || type.starts_with("image/") || type == "application/octet-stream" ||
                     is_image(bytes_of(std::string_view(body).substr(0, kImageHeadBytes)));
    if (!raw)
      throw HttpError(
          415, "the body is no JPEG, PNG, WebP, GIF, BMP or TIFF image, and its Content-Type is '" +
                   printable(type) + "', must be of an image, application/json or multipart/form-data");
    add_image(request, body);
  }
  add_options(request, words);
  return request;
}

}  // namespace tessera::serve
