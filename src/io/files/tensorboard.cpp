#include "io/files/tensorboard.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>

#include "core/error.h"

namespace tessera {
namespace {

// --- protocol buffers: fields are appended to a string; a message is a string of fields

constexpr int kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5;

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

template <class Bits>
void put_fixed(std::string& out, Bits bits) {
  for (size_t i = 0; i < sizeof bits; ++i) out += static_cast<char>(bits >> (8 * i) & 0xFF);
}

void put_key(std::string& out, int field, int wire_type) {
  put_varint(out, static_cast<uint64_t>(field << 3 | wire_type));
}

void put_int(std::string& out, int field, int64_t value) {
  put_key(out, field, kVarint);
  put_varint(out, static_cast<uint64_t>(value));
}

void put_bytes(std::string& out, int field, std::string_view bytes) {
  put_key(out, field, kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

// Fields of the messages (tensorboard/compat/proto: event, summary, tensor).
namespace event {
constexpr int wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7;
}
namespace summary {
constexpr int value = 1;
}
namespace value {
constexpr int tag = 1, simple_value = 2, image = 4, tensor = 8, metadata = 9;
}
namespace image {
constexpr int height = 1, width = 2, colorspace = 3, encoded = 4;
}
namespace tensor {
constexpr int dtype = 1, shape = 2, string_val = 8;
constexpr int shape_dim = 2, dim_size = 1;
constexpr int64_t dtype_string = 7;
}  // namespace tensor
namespace metadata {
constexpr int plugin_data = 1, plugin_name = 1;
}

std::string scalar_value(const std::string& tag, double number) {
  std::string out;
  put_bytes(out, value::tag, tag);
  put_key(out, value::simple_value, kFixed32);
  put_fixed(out, std::bit_cast<uint32_t>(static_cast<float>(number)));
  return out;
}

// Returns an Event's summary field with these values.
std::string summary_of(std::span<const std::string> values) {
  std::string fields, out;
  for (const std::string& one : values) put_bytes(fields, summary::value, one);
  put_bytes(out, event::summary, fields);
  return out;
}

// --- frames

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
    table[i] = crc;
  }
  return table;
}

void put_masked_crc(std::string& out, std::string_view bytes) {
  put_fixed(out, std::rotr(crc32c(as_bytes(bytes)), 15) + 0xA282EAD8u);
}

std::string frame(std::string_view message) {
  std::string out;
  put_fixed(out, static_cast<uint64_t>(message.size()));
  put_masked_crc(out, std::string(out));
  out += message;
  put_masked_crc(out, message);
  return out;
}

std::string file_name(const std::string& directory, double seconds) {
  static std::atomic<int> made{0};
  std::array<char, 65> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  return tessera::text(directory, "/events.out.tfevents.", static_cast<int64_t>(seconds), ".",
                       host[0] ? host.data() : "localhost", ".", ::getpid(), ".", made++);
}

int64_t big_endian(std::span<const std::byte> bytes) {
  int64_t out = 0;
  for (const std::byte b : bytes) out = out << 8 | std::to_integer<int64_t>(b);
  return out;
}

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes) {
  static constexpr auto table = make_crc_table();
  uint32_t crc = ~0u;
  for (const std::byte b : bytes) crc = crc >> 8 ^ table[(crc ^ std::to_integer<uint32_t>(b)) & 0xFF];
  return ~crc;
}

TensorBoardWriter::TensorBoardWriter(const std::string& directory, int64_t first_step,
                                     std::function<double()> now)
    : now_(std::move(now)), path_(file_name(directory, now_())), file_(path_) {
  std::string version, session, start;
  put_bytes(version, event::file_version, "brain.Event:2");
  write_event(0, version);
  put_int(session, 1, 1);  // SessionLog.status = START
  put_bytes(start, event::session_log, session);
  write_event(first_step, start);
}

void TensorBoardWriter::scalar(const std::string& tag, int64_t step, double number) {
  const std::array values = {scalar_value(tag, number)};
  write_event(step, summary_of(values));
}

void TensorBoardWriter::scalars(int64_t step, std::span<const std::pair<std::string, double>> numbers) {
  std::vector<std::string> values;
  for (const auto& [tag, number] : numbers) values.push_back(scalar_value(tag, number));
  write_event(step, summary_of(values));
}

void TensorBoardWriter::image(const std::string& tag, int64_t step, std::span<const std::byte> png) {
  // Signature, length and name of the first chunk, width, height, depth, colour type.
  check(png.size() > 26 && as_text(png.first(8)) == "\x89PNG\r\n\x1A\n", "TensorBoard image '", tag,
        "' is not a PNG file");
  static constexpr std::array<int64_t, 7> channels_of_type = {1, 0, 3, 3, 2, 0, 4};
  const auto type = std::to_integer<size_t>(png[25]);
  std::string picture, one;
  put_int(picture, image::height, big_endian(png.subspan(20, 4)));
  put_int(picture, image::width, big_endian(png.subspan(16, 4)));
  put_int(picture, image::colorspace, type < channels_of_type.size() ? channels_of_type[type] : 3);
  put_bytes(picture, image::encoded, as_text(png));
  put_bytes(one, value::tag, tag);
  put_bytes(one, value::image, picture);
  const std::array values = {one};
  write_event(step, summary_of(values));
}

void TensorBoardWriter::text(const std::string& tag, int64_t step, std::string_view markdown) {
  std::string dim, shape, content, plugin, about, one;
  put_int(dim, tensor::dim_size, 1);
  put_bytes(shape, tensor::shape_dim, dim);
  put_int(content, tensor::dtype, tensor::dtype_string);
  put_bytes(content, tensor::shape, shape);
  put_bytes(content, tensor::string_val, markdown);
  put_bytes(plugin, metadata::plugin_name, "text");
  put_bytes(about, metadata::plugin_data, plugin);
  put_bytes(one, value::tag, tag);
  put_bytes(one, value::tensor, content);
  put_bytes(one, value::metadata, about);
  const std::array values = {one};
  write_event(step, summary_of(values));
}

void TensorBoardWriter::write_event(int64_t step, std::string_view fields) {
  std::string message;
  put_key(message, event::wall_time, kFixed64);
  put_fixed(message, std::bit_cast<uint64_t>(now_()));
  if (step != 0) put_int(message, event::step, step);
  message += fields;
  file_.write(frame(message));
}

}  // namespace tessera
