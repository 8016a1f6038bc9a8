// CIFAR's binary files and IDX.
#include <gtest/gtest.h>

#include <cmath>

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

// Planes are stored column by column, labels from 1.
TEST(Cifar, ReadsStl10) {
  const TemporaryFolder folder;
  const auto pixels = [](char first) {
    std::string planes(3 * 96 * 96, first);
    planes[5] = 'b', planes[96] = 'c', planes[96 * 96] = 'g';  // rows 5 and 0 of columns 0 and 1; green
    return planes;
  };
  std::string images;
  for (char i = 0; i < 10; ++i) images += pixels(static_cast<char>('k' + i));
  folder.write("stl10_binary/train_X.bin", images);
  folder.write("stl10_binary/train_y.bin", "\x0a\x09\x08\x07\x06\x05\x04\x03\x02\x01");
  folder.write("stl10_binary/test_X.bin", pixels('e')), folder.write("stl10_binary/test_y.bin", "\x02");
  folder.write("stl10_binary/class_names.txt", kTenNames);
  const SourceConfig config = {.path = folder.path()};
  const auto train = open_source(config, Split::train);
  EXPECT_EQ(train->describe(), "STL-10 " + folder.path() + ", 10 images, 10 classes");
  EXPECT_EQ(labels_of(*train), (Labels{9, 8, 7, 6, 5, 4, 3, 2, 1, 0}));
  EXPECT_EQ(labels_in(*train).class_names()[9], "j");
  EXPECT_EQ(labels_of(*open_source(config, Split::validation)), Labels{1});
  const Image image = std::get<Image>(train->read(0).picture);
  EXPECT_EQ(image.width, 96);
  EXPECT_EQ(image.row(5)[0], 'b');
  EXPECT_EQ(image.row(0)[3], 'c');
  EXPECT_EQ(image.row(0)[1], 'g');
  folder.write("stl10_binary/train_y.bin", "\x0a");
  EXPECT_EQ(error_at(folder, config),
            "DIR/stl10_binary/train_X.bin has 276480 bytes, must have 27648 for each of the 1 labels in "
            "DIR/stl10_binary/train_y.bin");
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

// Returns a pickle as Python 2 writes it: bytes [rows, 3072] under `data`, and a list of numbers under `labels`.
std::string python_batch(const std::string& labels_key, const std::vector<int>& labels, char value) {
  using namespace std::string_literals;
  const auto number = [](int small) { return "K"s + static_cast<char>(small); };
  const auto word = [](const std::string& text) { return "U"s + static_cast<char>(text.size()) + text; };
  std::string bytes;
  for (size_t i = 0; i < labels.size(); ++i)
    bytes += cifar_record("", static_cast<char>(value + static_cast<int>(i)));
  std::string size;
  for (int i = 0; i < 4; ++i) size += static_cast<char>(bytes.size() >> (8 * i) & 255);
  std::string list;
  for (const int label : labels) list += number(label);
  return "\x80\x02}("s + word("data") + "cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" +
         number(0) + "\x85" + word("b") + "tR(" + number(1) + number(static_cast<int>(labels.size())) +
         "M\x00\x0c\x86"s + "cnumpy\ndtype\n(" + word("u1") + number(0) + number(1) + "tR(" + number(3) +
         word("|") + "NNN" + "J\xff\xff\xff\xff" + "J\xff\xff\xff\xff" + number(0) + "tb\x89T" + size +
         bytes + "tb" + word(labels_key) + "](" + list + "eu.";
}

TEST(Cifar, ReadsThePythonFormInAFolderOfTheOneGiven) {
  const TemporaryFolder folder;
  const std::string inner = "cifar-10-batches-py/";
  folder.write("cifar-10-python.tar.gz", "the archive that was unpacked");
  folder.write(inner + "data_batch_1", python_batch("labels", {3, 9}, 5));
  folder.write(inner + "data_batch_2", python_batch("labels", {0}, 50));
  folder.write(inner + "test_batch", python_batch("labels", {7}, 70));
  folder.write(inner + "batches.meta",
               "\x80\x02}U\x0blabel_names](U\x01"
               "aU\x01"
               "bU\x01"
               "cU\x01"
               "dU\x01"
               "eU\x01"
               "fU\x01"
               "gU\x01"
               "hU\x01"
               "iU\x01"
               "jes.");
  const SourceConfig config = {.path = folder.path()};
  const auto train = open_source_with_problems(config, Split::train),  // seven classes are empty
      held_out = open_source(config, Split::validation);
  EXPECT_EQ(source_kind(config.path), std::string("CIFAR"));
  ASSERT_EQ(train->size(), 3);
  EXPECT_EQ(labels_in(*train).label(1), 9);
  EXPECT_EQ(label_text(labels_in(*held_out), 0, ","), "h");
  const Image image = std::get<Image>(train->read(1).picture);
  EXPECT_EQ(image.pixels[0], 6);
  EXPECT_EQ(image.pixels[1], 7);
  EXPECT_EQ(image.pixels[3 * 1023], 255);
  folder.write(inner + "test_batch", python_batch("names", {7}, 70));
  EXPECT_EQ(error_at(folder, config, Split::validation),
            "DIR/cifar-10-batches-py/test_batch has no 'data' and labels of CIFAR");
}

TEST(Cifar, ReadsThePythonFormOfCifar100) {
  const TemporaryFolder folder;
  folder.write("train", python_batch("fine_labels", {42, 99}, 1));
  folder.write("test", python_batch("fine_labels", {98}, 1));
  std::string names =
      "\x80\x02}U\x10"
      "fine_label_names](";
  for (int i = 0; i < 100; ++i) names += "U\x03" + std::to_string(100 + i);
  folder.write("meta", names + "es.");
  const auto train = open_source_with_problems({.path = folder.path()}, Split::train);
  EXPECT_EQ(labels_in(*train).label(0), 42);
  EXPECT_EQ(label_text(labels_in(*train), 1, ","), "199");
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

TEST(Idx, TheFilesMayBeInAFolderOfTheOneGiven) {
  const TemporaryFolder folder;
  folder.write("MNIST/raw/train-images-idx3-ubyte", idx({3, 1, 1}, {10, 20, 30}));
  folder.write("MNIST/raw/train-labels-idx1-ubyte", idx({3}, {2, 0, 1}));
  folder.write("MNIST/raw/t10k-images-idx3-ubyte", idx({1, 1, 1}, {7}));
  folder.write("MNIST/raw/t10k-labels-idx1-ubyte", idx({1}, {1}));
  folder.write("MNIST/processed/training.pt", "an older copy");
  const SourceConfig config = {.path = folder.path()};
  EXPECT_EQ(source_kind(config.path), std::string("IDX"));
  EXPECT_EQ(open_source(config, Split::train)->size(), 3);
  EXPECT_EQ(labels_in(*open_source(config, Split::validation)).label(0), 1);
}

// As in EMNIST's letters.
TEST(Idx, LabelsCountFromTheFirstNumberOfTheList) {
  const TemporaryFolder folder, stl;
  folder.write("train-images-idx3-ubyte", idx({3, 1, 1}, {10, 20, 30}));
  folder.write("train-labels-idx1-ubyte", idx({3}, {2, 1, 3}));
  stl.write("train_X.bin", std::string(3 * 96 * 96, 'x')), stl.write("train_y.bin", "\x02");
  SourceConfig config = {.path = folder.path(),
                         .val_share = 0,
                         .class_names = folder.write("names.json", R"({"1": "a", "2": "b", "3": "c"})")};
  EXPECT_EQ(labels_of(*open_source(config, Split::train)), (Labels{1, 0, 2}));
  folder.write("train-labels-idx1-ubyte", idx({3}, {2, 0, 1}));
  EXPECT_EQ(error_at(folder, config),
            "DIR/train-images-idx3-ubyte: record 1 has label 0, must be 1 to 3 (and 1 more)");
  config = {.path = stl.path(), .val_share = 0, .class_names = folder.write("ten.txt", kTenNames)};
  EXPECT_EQ(labels_of(*open_source_with_problems(config, Split::train)), Labels{1});
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

std::string little_endian(uint32_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 255);
  return out;
}

uint32_t checksum(const std::string& content) {
  uint32_t sum = ~0u;
  for (const char c : content) {
    sum ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) sum = sum >> 1 ^ (sum & 1 ? 0xedb88320u : 0);
  }
  return ~sum;
}

// Returns an array in NumPy's form.
std::string npy(const std::string& shape, const std::string& bytes, const std::string& type = "|u1") {
  const std::string header =
      "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + shape + "), }\n";
  return std::string("\x93NUMPY\x01\x00", 8) + little_endian(static_cast<uint32_t>(header.size()), 2) +
         header + bytes;
}

// Returns an .npz of stored arrays.
std::string npz(const std::vector<std::pair<std::string, std::string>>& arrays) {
  std::string out, directory;
  for (const auto& [key, content] : arrays) {
    const std::string name = key + ".npy";
    const auto size = static_cast<uint32_t>(content.size());
    const std::string front = little_endian(0, 8) + little_endian(checksum(content), 4) +
                              little_endian(size, 4) + little_endian(size, 4) +
                              little_endian(static_cast<uint32_t>(name.size()), 2);
    directory += "PK\x01\x02" + little_endian(20, 2) + little_endian(20, 2) + front + little_endian(0, 4) +
                 little_endian(0, 4) + little_endian(0, 4) +
                 little_endian(static_cast<uint32_t>(out.size()), 4) + name;
    out += "PK\x03\x04" + little_endian(20, 2) + front + little_endian(0, 2) + name + content;
  }
  const auto count = static_cast<uint32_t>(arrays.size());
  return out + directory + "PK\x05\x06" + little_endian(0, 4) + little_endian(count, 2) +
         little_endian(count, 2) + little_endian(static_cast<uint32_t>(directory.size()), 4) +
         little_endian(static_cast<uint32_t>(out.size()), 4) + little_endian(0, 2);
}

// Returns numbers of a type as bytes.
template <class Number>
std::string raw(const std::vector<Number>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}

TEST(Npz, ArraysByOtherNames) {
  const TemporaryFolder folder;
  using Names = std::vector<std::string>;
  const std::string image = npy("2, 1, 1", {1, 2}), labels = npy("2", {0, 1});
  for (const auto& [images, classes] : {std::pair("X", "y"),
                                        {"data", "target"},
                                        {"train_X", "train_y"},
                                        {"images_train", "labels_train"},
                                        {"Xtrain", "ytrain"},
                                        {"imgs", "targets"}}) {
    const std::string path = folder.write("set.npz", npz({{classes, labels}, {images, image}}));
    const auto source = open_source({.path = path, .val_share = 0}, Split::train);
    EXPECT_EQ(source->size(), 2) << images;
    EXPECT_EQ(labels_in(*source).label(1), 1) << images;
    EXPECT_EQ(source->warnings(), Names{}) << images;
  }
  const std::string other = folder.write("other.npz", npz({{"pixels", image}, {"kind", labels}}));
  EXPECT_EQ(error_at(folder, {.path = other}),
            "'DIR/other.npz' has no images, it holds pixels, kind: arrays of images are arr_0, images, x or "
            "data, also "
            "with train_, val_ or test_");
  const std::string bare = folder.write("bare.npz", npz({{"X", image}, {"kind", labels}}));
  EXPECT_EQ(open_source({.path = bare, .val_share = 0}, Split::train)->warnings(),
            Names{"'" + bare + "' has no labels for X, such as labels, y or target; kind is not read"});
}

TEST(Npz, OtherNumbersBecomeBytes) {
  const TemporaryFolder folder;
  const auto pixels = [&](const std::string& array) {
    const std::string path = folder.write("set.npz", npz({{"X", array}, {"y", npy("1", {0})}}));
    const auto source = open_source({.path = path, .val_share = 0}, Split::train);
    EXPECT_EQ(source->warnings().size(), 1u);
    const auto all = std::get<Image>(source->read(0).picture).pixels;
    return std::vector<int>{all[0], all[3], all[6]};
  };
  using Pixels = std::vector<int>;
  EXPECT_EQ(pixels(npy("1, 1, 3", raw<float>({0, 0.5, 1}), "<f4")), (Pixels{0, 128, 255}));
  EXPECT_EQ(pixels(npy("1, 1, 3", raw<double>({0, 100.4, 255}), "<f8")), (Pixels{0, 100, 255}));
  EXPECT_EQ(pixels(npy("1, 1, 3", raw<int64_t>({0, 1, 255}), "<i8")), (Pixels{0, 1, 255}));
  EXPECT_EQ(pixels(npy("1, 1, 3", raw<uint16_t>({0, 7, 255}), "<u2")), (Pixels{0, 7, 255}));
  EXPECT_EQ(pixels(npy("1, 1, 3", raw<uint16_t>({255, 256, 65535}), "<u2")), (Pixels{0, 1, 255}));
  const auto error = [&](const std::string& array) {
    return error_at(folder, {.path = folder.write("set.npz", npz({{"X", array}}))});
  };
  EXPECT_EQ(error(npy("1, 1, 3", raw<float>({-1, 0, 1}), "<f4")),
            "'DIR/set.npz': X has numbers from -1.0 to 1.0, must be bytes, 0 to 255, or floats from 0 to 1");
  EXPECT_EQ(error(npy("1, 1, 1", raw<float>({NAN}), "<f4")), "'DIR/set.npz': X has nan, must hold images");
  EXPECT_EQ(error(npy("1, 1, 1", "cat", "|S3")),
            "'DIR/set.npz': X is [1, 1, 1] of texts, must hold images, bytes [n, height, width, 3]");
}

TEST(Npz, TextsAreTheNamesOfTheClasses) {
  const TemporaryFolder folder;
  using Names = std::vector<std::string>;
  const std::string image = npy("2, 1, 1", {1, 2});
  const auto set = [&](const std::string& train, const std::string& test) {
    return folder.write("set.npz", npz({{"x_train", image},
                                        {"y_train", npy("2", train, "|S3")},
                                        {"x_test", image},
                                        {"y_test", npy("2", test, "|S3")}}));
  };
  const std::string path = set("owlcat", "owlowl");
  const auto train = open_source({.path = path}, Split::train),
             held_out = open_source({.path = path}, Split::validation);
  EXPECT_EQ(labels_in(*train).class_names(), (Names{"cat", "owl"}));
  EXPECT_EQ(labels_in(*train).label(0), 1);
  EXPECT_EQ(labels_in(*held_out).label(0), 1);
  set("owlcat", "owldog");
  EXPECT_EQ(error_of([&] { open_source({.path = path}, Split::validation); }, &folder),
            "DIR/set.npz: record 1 has label 'dog', which is no class");
  set("007011", "007007");
  EXPECT_EQ(labels_in(*open_source({.path = path}, Split::train)).class_names(), (Names{"7", "11"}));
  const std::string half =
      folder.write("half.npz", npz({{"X", image}, {"y", npy("2", raw<float>({0, 0.5}), "<f4")}}));
  EXPECT_EQ(error_at(folder, {.path = half}),
            "'DIR/half.npz': y has 0.5 for record 1, must be a whole number or the name of a class");
}

TEST(Npz, DataSetsHaveAPairOfArraysForEachSplit) {
  const TemporaryFolder folder;
  const std::string path = folder.write("set.npz", npz({{"train_images", npy("2, 1, 2", {10, 20, 30, 40})},
                                                        {"train_labels", npy("2, 1", {1, 0})},
                                                        {"test_images", npy("1, 1, 2", {9, 9})},
                                                        {"test_labels", npy("1, 1", {0})},
                                                        {"val_images", npy("1, 1, 2", {50, 60})},
                                                        {"val_labels", npy("1, 1", {1})}}));
  const auto train = open_source({.path = path}, Split::train),
             held_out = open_source({.path = path}, Split::validation);
  ASSERT_EQ(train->size(), 2);
  ASSERT_EQ(held_out->size(), 1);
  EXPECT_EQ(labels_in(*train).label(0), 1);
  EXPECT_EQ(labels_in(*held_out).label(0), 1);
  EXPECT_EQ(std::get<Image>(train->read(1).picture).pixels, (std::vector<uint8_t>{30, 30, 30, 40, 40, 40}));
  EXPECT_EQ(std::get<Image>(held_out->read(0).picture).pixels[3], 60);
  const std::string planes = folder.write("planes.npz", npz({{"arr_0", npy("1, 3, 1, 2", "abcdef")}}));
  EXPECT_EQ(error_at(folder, {.path = planes}),
            "'DIR/planes.npz': arr_0 is [1, 3, 1, 2], must hold images, bytes [n, height, width, 3]");
}

}  // namespace
}  // namespace tessera::data
