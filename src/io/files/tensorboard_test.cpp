#include "io/files/tensorboard.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "io/files/file_faults.h"
#include "io/files/io_testing.h"

namespace tessera {
namespace {

// A small independent decoder of the published formats.
struct Field {
  int number = 0;
  uint64_t integer = 0;  // varint, or the bits of a fixed field
  std::string bytes;
};

uint64_t little_endian(std::string_view bytes) {
  uint64_t out = 0;
  for (size_t i = bytes.size(); i-- > 0;) out = out << 8 | static_cast<unsigned char>(bytes[i]);
  return out;
}

std::vector<Field> fields_of(std::string_view message) {
  std::vector<Field> out;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto c = static_cast<unsigned char>(message.at(0));
      message.remove_prefix(1);
      value |= static_cast<uint64_t>(c & 0x7F) << shift;
      if (c < 0x80) return value;
    }
  };
  const auto take = [&](size_t size) {
    if (size > message.size()) throw std::runtime_error("a field is longer than its message");
    const std::string_view bytes = message.substr(0, size);
    message.remove_prefix(size);
    return bytes;
  };
  while (!message.empty()) {
    const uint64_t key = varint();
    Field field{static_cast<int>(key >> 3), 0, ""};
    switch (key & 7) {
      case 0:
        field.integer = varint();
        break;
      case 1:
        field.integer = little_endian(take(8));
        break;
      case 2:
        field.bytes = take(varint());
        break;
      case 5:
        field.integer = little_endian(take(4));
        break;
      default:
        throw std::runtime_error("a wire type that does not exist");
    }
    out.push_back(field);
  }
  return out;
}

const Field& field(const std::vector<Field>& fields, int number) {
  for (const Field& f : fields)
    if (f.number == number) return f;
  throw std::runtime_error("no field " + std::to_string(number));
}

uint32_t masked(std::string_view bytes) {
  const uint32_t crc = crc32c(as_bytes(bytes));
  return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

// Returns the events of a file, after checking every frame.
std::vector<std::vector<Field>> events_of(const std::string& path) {
  const std::string content = read_text(path);
  std::string_view rest = content;
  std::vector<std::vector<Field>> out;
  while (!rest.empty()) {
    const uint64_t length = little_endian(rest.substr(0, 8));
    EXPECT_EQ(little_endian(rest.substr(8, 4)), masked(rest.substr(0, 8)));
    EXPECT_LE(length + 16, rest.size());
    const std::string_view message = rest.substr(12, length);
    EXPECT_EQ(little_endian(rest.substr(12 + length, 4)), masked(message));
    out.push_back(fields_of(message));
    rest.remove_prefix(length + 16);
  }
  return out;
}

std::vector<Field> first_value(const std::vector<Field>& event) {
  return fields_of(field(fields_of(field(event, 5).bytes), 1).bytes);
}

class TensorBoardTest : public TemporaryFolder {
 protected:
  void TearDown() override { FileFaults::set(""); }
};

TEST(Crc32c, GivesThePublishedValues) {  // RFC 3720, B.4
  EXPECT_EQ(crc32c({}), 0u);
  EXPECT_EQ(crc32c(as_bytes("123456789")), 0xE3069283u);
  EXPECT_EQ(crc32c(as_bytes(std::string(32, '\0'))), 0x8A9136AAu);
  EXPECT_EQ(crc32c(as_bytes(std::string(32, '\xFF'))), 0x62A8AB43u);
}

// The first bytes that TensorBoard's own writer produces, at time 1000.
TEST_F(TensorBoardTest, AFileStartsWithItsVersion) {
  const TensorBoardWriter writer(folder(), 0, [] { return 1000.0; });
  EXPECT_TRUE(writer.path().starts_with(path("events.out.tfevents.1000."))) << writer.path();
  const std::string want("\x18\0\0\0\0\0\0\0\xA3\x7FK\"\t\0\0\0\0\0@\x8F@\x1A\rbrain.Event:2s\xAEkV", 40);
  EXPECT_EQ(read_text(writer.path()).substr(0, 40), want);
}

TEST_F(TensorBoardTest, EventsCarryTimeStepAndScalars) {
  double now = 1700000000.25;
  TensorBoardWriter writer(folder(), 7, [&] { return now += 1; });
  writer.scalar("loss", 8, 0.1);
  const std::vector<std::pair<std::string, double>> values = {{"a", -2}, {"b", std::nan("")}};
  writer.scalars(int64_t{1} << 40, values);
  writer.sync();
  const auto events = events_of(writer.path());
  ASSERT_EQ(events.size(), 4u);
  // The second event makes readers drop events of older files from step 7 on.
  EXPECT_EQ(field(events[1], 2).integer, 7u);
  EXPECT_EQ(field(fields_of(field(events[1], 7).bytes), 1).integer, 1u);
  EXPECT_EQ(std::bit_cast<double>(field(events[2], 1).integer), 1700000004.25);
  EXPECT_EQ(field(events[2], 2).integer, 8u);
  EXPECT_EQ(field(first_value(events[2]), 1).bytes, "loss");
  EXPECT_EQ(std::bit_cast<float>(static_cast<uint32_t>(field(first_value(events[2]), 2).integer)), 0.1f);
  EXPECT_EQ(field(events[3], 2).integer, uint64_t{1} << 40);
  const auto both = fields_of(field(events[3], 5).bytes);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(field(fields_of(both[0].bytes), 1).bytes, "a");
  EXPECT_EQ(std::bit_cast<float>(static_cast<uint32_t>(field(fields_of(both[0].bytes), 2).integer)), -2.0f);
  EXPECT_TRUE(
      std::isnan(std::bit_cast<float>(static_cast<uint32_t>(field(fields_of(both[1].bytes), 2).integer))));
}

TEST_F(TensorBoardTest, PicturesAndTextsAreStoredWhole) {
  TensorBoardWriter writer(folder());
  // Width 300, height 2, 8 bits, RGB; bytes after the header are ignored.
  const std::string png("\x89PNG\r\n\x1A\n\0\0\0\rIHDR\0\0\x01\x2C\0\0\0\x02\x08\x02\0\0\0some data", 38);
  writer.image("grid", 3, as_bytes(png));
  writer.text("recipe", 0, "# a\n\n    lr = 1");
  const auto events = events_of(writer.path());
  ASSERT_EQ(events.size(), 4u);
  const auto picture = fields_of(field(first_value(events[2]), 4).bytes);
  EXPECT_EQ(field(picture, 1).integer, 2u);
  EXPECT_EQ(field(picture, 2).integer, 300u);
  EXPECT_EQ(field(picture, 3).integer, 3u);
  EXPECT_EQ(field(picture, 4).bytes, png);
  const auto words = first_value(events[3]);
  EXPECT_EQ(field(words, 1).bytes, "recipe");
  EXPECT_EQ(field(fields_of(field(words, 8).bytes), 1).integer, 7u);
  EXPECT_EQ(field(fields_of(field(words, 8).bytes), 8).bytes, "# a\n\n    lr = 1");
  EXPECT_EQ(field(fields_of(field(fields_of(field(words, 9).bytes), 1).bytes), 1).bytes, "text");
  EXPECT_EQ(error_of([&] { writer.image("grid", 3, as_bytes("JPEG")); }),
            "TensorBoard image 'grid' is not a PNG file");
}

// Steps order the events, not times: a clock that goes back changes nothing else.
TEST_F(TensorBoardTest, AClockThatGoesBackLeavesWholeEvents) {
  double now = 1700000000;
  TensorBoardWriter writer(folder(), 0, [&] { return now -= 3600; });
  for (int64_t step = 1; step <= 3; ++step) writer.scalar("loss", step, 1.0 / static_cast<double>(step));
  const TensorBoardWriter later(folder(), 3, [&] { return now -= 3600; });
  EXPECT_NE(writer.path(), later.path());
  const auto events = events_of(writer.path());
  ASSERT_EQ(events.size(), 5u);
  for (size_t step = 1; step <= 3; ++step) EXPECT_EQ(field(events[step + 1], 2).integer, step);
}

TEST_F(TensorBoardTest, TwoWritersNeverShareAFile) {
  const TensorBoardWriter a(folder(), 0, [] { return 1000.0; }), b(folder(), 0, [] { return 1000.0; });
  EXPECT_NE(a.path(), b.path());
}

TEST_F(TensorBoardTest, AFullDiskLeavesWholeEvents) {
  TensorBoardWriter writer(folder());
  FileFaults::set("write:1:ENOSPC");
  EXPECT_EQ(error_of([&] { writer.scalar("loss", 1, 1); }),
            "cannot write '" + writer.path() + "': No space left on device");
  writer.scalar("loss", 2, 1);
  EXPECT_EQ(events_of(writer.path()).size(), 3u);
  EXPECT_EQ(
      error_of([] { TensorBoardWriter("/no/such/folder"); }).find("cannot write '/no/such/folder/events"),
      0u);
}

}  // namespace
}  // namespace tessera
