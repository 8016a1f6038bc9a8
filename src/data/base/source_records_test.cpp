// CIFAR's binary files and IDX.
#include <gtest/gtest.h>

#include "data/base/data_testing.h"
#include "data/base/source.h"
#include "io/files/file.h"
#include "io/files/gzip.h"

namespace tessera::data {
namespace {

using Labels = std::vector<int64_t>;

std::string error_at(const TemporaryFolder& folder, const SourceConfig& config, Split split = Split::train) {
  return error_of([&] { open_source(config, split); }, &folder);
}

// Returns a record with value, value + 1 and value + 2 in its red, green and blue planes, except 255 in the
// last red pixel.
std::string cifar_record(const std::string& labels, char value) {
  std::string record = labels;
  for (int c = 0; c < 3; ++c) record += std::string(1024, static_cast<char>(value + c));
  record[labels.size() + 1023] = '\xff';
  return record;
}

std::string ten_records() {
  std::string file;
  for (char i = 0; i < 10; ++i) file += cifar_record(std::string(1, static_cast<char>(9 - i)), i);
  return file;
}

const char* const kTenNames = "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n";

TEST(Cifar, ReadsTheFolderOfCifar10) {
  const TemporaryFolder folder;
  folder.write("data_batch_1.bin", ten_records());
  folder.write("data_batch_2.bin", ten_records() + cifar_record(std::string(1, '\3'), 77));
  folder.write("test_batch.bin", cifar_record(std::string(1, '\2'), 9));
  folder.write("batches.meta.txt", kTenNames);
  const SourceConfig config = {.path = folder.path()};
  EXPECT_EQ(source_kind(folder.path()), "CIFAR");
  const auto train = open_source(config, Split::train), held_out = open_source(config, Split::validation);
  EXPECT_EQ(train->size(), 21);
  EXPECT_EQ(labels_in(*train).label(1), 8);
  EXPECT_EQ(labels_in(*train).label(20), 3);
  EXPECT_EQ(labels_in(*train).class_names()[3], "d");
  const RawSample sample = train->read(20);
  EXPECT_EQ(sample.name, folder.path("data_batch_2.bin") + ": record 10");
  const Image& image = std::get<Image>(sample.picture);
  ASSERT_EQ(image.pixels.size(), 3072u);
  EXPECT_EQ((std::vector<uint8_t>(image.pixels.begin(), image.pixels.begin() + 3)),
            (std::vector<uint8_t>{77, 78, 79}));
  EXPECT_EQ((std::vector<uint8_t>(image.pixels.end() - 3, image.pixels.end())),
            (std::vector<uint8_t>{255, 78, 79}));
  EXPECT_EQ(held_out->size(), 1);
  EXPECT_EQ(labels_in(*held_out).label(0), 2);
  EXPECT_EQ(train->describe(), "CIFAR-10 " + folder.path() + ", 21 images, 10 classes");
}

TEST(Cifar, ReadsTheFineLabelsOfCifar100) {
  const TemporaryFolder folder;
  std::string all;
  for (int i = 0; i < 100; ++i) all += cifar_record({static_cast<char>(i / 5), static_cast<char>(i)}, 1);
  folder.write("train.bin", all);
  folder.write("test.bin", cifar_record({'\1', '\x63'}, 1));
  const SourceConfig config = {.path = folder.path()};
  const auto train = open_source(config, Split::train), held_out = open_source(config, Split::validation);
  EXPECT_EQ(train->size(), 100);
  EXPECT_EQ(labels_in(*train).label(42), 42);
  EXPECT_EQ(labels_in(*held_out).label(0), 99);
  EXPECT_EQ(labels_in(*train).class_names().size(), 100u);
}

TEST(Cifar, WrongFilesAreNamed) {
  const TemporaryFolder folder;
  folder.write("gap/data_batch_1.bin", ten_records());
  folder.write("gap/data_batch_3.bin", ten_records());
  EXPECT_EQ(error_of([&] { open_source({.path = folder.path("gap")}, Split::train); }, &folder),
            "DIR/gap/data_batch_2.bin is missing: DIR/gap/data_batch_3.bin exists");
  folder.write("tests/test_batch.bin", ten_records());
  EXPECT_EQ(error_of([&] { open_source({.path = folder.path("tests")}, Split::train); }, &folder),
            "DIR/tests has test_batch.bin but no data_batch_1.bin or train.bin to train on");
  const std::string file = folder.write("some.bin", ten_records().substr(0, 30000));
  EXPECT_EQ(error_at(folder, {.path = file, .val_share = 0}),
            "DIR/some.bin has 30000 bytes, not a whole number of CIFAR-10 records of 3073 (and 1 more)");
  folder.write("some.bin", ten_records() + cifar_record(std::string(1, '\x0a'), 1));
  EXPECT_EQ(error_at(folder, {.path = file, .val_share = 0}),
            "DIR/some.bin: record 10 has label 10, must be 0 to 9");
  folder.write("batches.meta.txt", "a\nb\n");
  EXPECT_EQ(error_at(folder, {.path = file}), "DIR/batches.meta.txt holds 2 class names, CIFAR-10 has 10");
}

std::string big_endian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 255);
  return bytes;
}

std::string idx(const std::vector<uint32_t>& shape, const std::string& values) {
  std::string file = {0, 0, 8, static_cast<char>(shape.size())};
  for (const uint32_t extent : shape) file += big_endian(extent);
  return file + values;
}

std::string gzipped(const std::string& content) {
  std::string packed;
  GzipEncoder encoder([&](std::span<const std::byte> bytes) {
    packed.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  encoder.write(std::as_bytes(std::span(content)));
  encoder.finish();
  return packed;
}

TEST(Idx, ReadsThePairsOfAFolderGzippedOrNot) {
  const TemporaryFolder folder;
  folder.write("train-images-idx3-ubyte", idx({3, 2, 1}, {10, 20, 30, 40, 50, 60}));
  folder.write("train-labels-idx1-ubyte.gz", gzipped(idx({3}, {2, 0, 1})));
  folder.write("t10k-images.idx3-ubyte.gz", gzipped(idx({1, 1, 2, 3}, {1, 2, 3, 4, 5, 6})));
  folder.write("t10k-labels.idx1-ubyte", idx({1}, {1}));
  const SourceConfig config = {.path = folder.path()};
  EXPECT_EQ(source_kind(folder.path()), "IDX");
  const auto train = open_source(config, Split::train);
  EXPECT_EQ(train->size(), 3);
  EXPECT_EQ(labels_in(*train).class_names().size(), 3u);
  EXPECT_EQ(labels_in(*train).label(0), 2);
  const RawSample sample = train->read(1);
  const Image& gray = std::get<Image>(sample.picture);
  EXPECT_EQ(gray.width, 1);
  EXPECT_EQ(gray.height, 2);
  EXPECT_EQ(gray.pixels, (std::vector<uint8_t>{30, 30, 30, 40, 40, 40}));
  const auto held_out = open_source(config, Split::validation);
  const RawSample coloured = held_out->read(0);
  EXPECT_EQ(std::get<Image>(coloured.picture).pixels, (std::vector<uint8_t>{1, 2, 3, 4, 5, 6}));
}

TEST(Idx, WrongFilesAreNamed) {
  const TemporaryFolder folder;
  const SourceConfig config = {.path = folder.path("x-images-idx3-ubyte"), .val_share = 0};
  const auto error_with = [&](const std::string& pictures, const std::string& labels) {
    folder.write("x-images-idx3-ubyte", pictures);
    folder.write("x-labels-idx1-ubyte", labels);
    return error_at(folder, config);
  };
  const std::string pictures = idx({2, 1, 1}, "ab"), labels = idx({2}, {0, 1});
  EXPECT_EQ(error_with(pictures, labels), "no error");
  EXPECT_EQ(error_with(pictures, idx({3}, {0, 1, 1})),
            "DIR/x-labels-idx1-ubyte holds 3 labels, but DIR/x-images-idx3-ubyte 2 images");
  EXPECT_EQ(error_with(idx({2, 1, 2}, "abc"), labels),
            "DIR/x-images-idx3-ubyte has 3 bytes of values, its header requires 2x1x2");
  EXPECT_EQ(
      error_with(idx({4000000000, 4000000000, 4000000000}, "abc"), labels),
      "DIR/x-images-idx3-ubyte has 3 bytes of values, its header requires 4000000000x4000000000x4000000000");
  EXPECT_EQ(error_with(std::string("\0\0\x0d\3", 4), labels),
            "DIR/x-images-idx3-ubyte holds IDX values of type 13, must be 8 (unsigned bytes)");
  EXPECT_EQ(error_with("PNG!", labels),
            "DIR/x-images-idx3-ubyte is no IDX file: it does not start with two zero bytes");
  EXPECT_EQ(error_with(std::string("\0\0\x08\3\0", 5), labels),
            "DIR/x-images-idx3-ubyte is truncated: its header has 16 bytes, the file 5");
  EXPECT_EQ(error_with(idx({2}, "ab"), labels),
            "DIR/x-images-idx3-ubyte must hold images: 3 dimensions (n, height, width), or 4 with 1 or 3 "
            "channels");
  std::filesystem::remove(folder.path("x-labels-idx1-ubyte"));
  EXPECT_EQ(error_at(folder, config),
            "DIR/x-images-idx3-ubyte has no labels next to it: DIR/x-labels-idx1-ubyte[.gz] does not exist");
}

}  // namespace
}  // namespace tessera::data
