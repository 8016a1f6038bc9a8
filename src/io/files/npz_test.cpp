#include "io/files/zip.h"

#include <zlib.h>

#include <cstring>

#include "io/files/io_testing.h"
#include "io/weights/array_file.h"

namespace tessera {
namespace {

std::string little_endian(uint64_t number, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(i < 8 ? number >> (8 * i) & 255 : 0);
  return out;
}

std::string npy(const std::string& dictionary, const std::string& numbers, int version = 1) {
  return std::string("\x93NUMPY", 6) + little_endian(static_cast<uint64_t>(version), 1) +
         little_endian(0, 1) + little_endian(dictionary.size(), version == 1 ? 2 : 4) + dictionary + numbers;
}

std::string deflated(const std::string& content) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY);
  std::string out(content.size() + 100, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}

struct Entry {
  std::string name, content;
  bool deflate = false;
  uint32_t sum_error = 0;
  int64_t size_error = 0;
};

// Returns a zip archive of these entries.
std::string zip(const std::vector<Entry>& entries) {
  std::string out, directory;
  for (const Entry& entry : entries) {
    const std::string packed = entry.deflate ? deflated(entry.content) : entry.content;
    const auto sum = static_cast<uint32_t>(::crc32(0, reinterpret_cast<const Bytef*>(entry.content.data()),
                                                   static_cast<uInt>(entry.content.size())));
    const std::string front =
        little_endian(0, 2) + little_endian(entry.deflate ? 8 : 0, 2) + little_endian(0, 4) +
        little_endian(sum + entry.sum_error, 4) + little_endian(packed.size(), 4) +
        little_endian(entry.content.size() + static_cast<uint64_t>(entry.size_error), 4) +
        little_endian(entry.name.size(), 2);
    directory += "PK\x01\x02" + little_endian(20, 2) + little_endian(20, 2) + front + little_endian(0, 12) +
                 little_endian(out.size(), 4) + entry.name;
    out += "PK\x03\x04" + little_endian(20, 2) + front + little_endian(0, 2) + entry.name + packed;
  }
  const size_t begin = out.size();
  out += directory;
  return out + "PK\x05\x06" + little_endian(0, 4) + little_endian(entries.size(), 2) +
         little_endian(entries.size(), 2) + little_endian(directory.size(), 4) + little_endian(begin, 4) +
         little_endian(0, 2);
}

class NpzTest : public TemporaryFolder {
 protected:
  std::string file(const std::vector<Entry>& entries) const {
    write_text_atomic(path("a.npz"), zip(entries));
    return path("a.npz");
  }
  std::string error_reading(const std::vector<Entry>& entries, const std::string& name = "x") const {
    std::string line = error_of([&] { NpzFile(file(entries)).read(name); });
    for (size_t at = line.find(folder()); at != std::string::npos; at = line.find(folder()))
      line.replace(at, folder().size() + 1, "");
    return line;
  }
  static std::vector<int16_t> numbers(const NpzArray& array) {
    std::vector<int16_t> out(static_cast<size_t>(array.numel()));
    std::memcpy(out.data(), array.bytes.data(), array.bytes.size());
    return out;
  }
};

const std::string kSix = little_endian(1, 2) + little_endian(2, 2) + little_endian(3, 2) +
                         little_endian(4, 2) + little_endian(5, 2) + little_endian(6, 2);

TEST_F(NpzTest, ReadsWhatArrayFileWrites) {
  const float features[] = {1, 2, 3, 4, 5, 6};
  const int64_t labels[] = {7, -8};
  {
    ArrayFile out(path("b.npz"), {{"features", DType::f32, {2, 3}}, {"labels", DType::i64, {2}}});
    out.write(std::as_bytes(std::span(features)));
    out.write(std::as_bytes(std::span(labels)));
    out.commit();
  }
  const NpzFile in(path("b.npz"));
  EXPECT_EQ(in.names(), (std::vector<std::string>{"features", "labels"}));
  EXPECT_TRUE(in.holds("labels"));
  EXPECT_FALSE(in.holds("label"));
  std::vector<int64_t> shape;
  EXPECT_EQ(in.read_doubles("features", shape), (std::vector<double>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(in.read_doubles("labels", shape), (std::vector<double>{7, -8}));
}

TEST_F(NpzTest, EveryVersionStoredAndDeflated) {
  for (int version = 1; version <= 3; ++version)
    for (const bool deflate : {false, true}) {
      const std::string content =
          npy("{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }", kSix, version);
      const NpzFile in(file({{"x.npy", content, deflate}}));
      const NpzArray array = in.read("x");
      EXPECT_EQ(array.shape, (std::vector<int64_t>{2, 3}));
      EXPECT_EQ(array.dtype, DType::i16);
      EXPECT_EQ(numbers(array), (std::vector<int16_t>{1, 2, 3, 4, 5, 6}));
    }
}

TEST_F(NpzTest, ColumnsBecomeRows) {
  const NpzFile in(file({{"x.npy", npy("{'descr': '<i2', 'fortran_order': True, 'shape': (2, 3), }", kSix)},
                         {"y.npy", npy("{'descr': '<i2', 'fortran_order': True, 'shape': (6,), }", kSix)}}));
  EXPECT_EQ(numbers(in.read("x")), (std::vector<int16_t>{1, 3, 5, 2, 4, 6}));
  EXPECT_EQ(numbers(in.read("y")), (std::vector<int16_t>{1, 2, 3, 4, 5, 6}));
}

TEST_F(NpzTest, NumbersWithoutASignAndTexts) {
  const std::string wide("\x41\0\0\0\xe9\0\0\0\x0d\x54\0\0\x3c\xf4\x01\0\0\0\0\0\0\0\0\0", 24);
  const NpzFile in(
      file({{"u.npy", npy("{'descr': '<u2', 'fortran_order': False, 'shape': (2,), }", "\xff\xff\1\2")},
            {"s.npy",
             npy("{'descr': '|S3', 'fortran_order': False, 'shape': (2,), }", std::string("cat\0\0\0", 6))},
            {"t.npy", npy("{'descr': '<U3', 'fortran_order': False, 'shape': (2,), }", wide)}}));
  std::vector<int64_t> shape;
  EXPECT_EQ(in.read_doubles("u", shape), (std::vector<double>{65535, 513}));
  EXPECT_EQ(in.read_texts("s", shape), (std::vector<std::string>{"cat", ""}));
  EXPECT_EQ(shape, (std::vector<int64_t>{2}));
  EXPECT_EQ(in.read_texts("t", shape),
            (std::vector<std::string>{"A\xc3\xa9\xe5\x90\x8d", "\xf0\x9f\x90\xbc"}));
  EXPECT_EQ(error_of([&] { in.read_doubles("t", shape); }),
            text("'", path("a.npz"), "': array 't' holds texts, must hold numbers"));
  EXPECT_EQ(error_of([&] { in.read_texts("u", shape); }),
            text("'", path("a.npz"), "': array 'u' holds numbers, must hold texts"));
}

TEST_F(NpzTest, NamesWhatIsWrong) {
  const std::string good = npy("{'descr': '<i2', 'fortran_order': False, 'shape': (6,), }", kSix);
  EXPECT_EQ(error_reading({{"x.npy", good}}, "y"), "'a.npz' has no array 'y', it holds x");
  EXPECT_EQ(error_reading({{"x.npy", good, false, 1}}),
            "'a.npz': array 'x': its check sum is wrong, the file is damaged");
  EXPECT_EQ(error_reading({{"x.npy", good, true, 1}}),
            "'a.npz': array 'x': its check sum is wrong, the file is damaged");
  EXPECT_EQ(error_reading({{"x.npy", good, true, 0, -1}}),
            text("'a.npz': array 'x': unpacks to more than the ", good.size() - 1, " bytes stated"));
  EXPECT_EQ(error_reading({{"x.npy", good, true, 0, 1}}),
            text("'a.npz': array 'x': unpacks to ", good.size(), " bytes, must be ", good.size() + 1));
  EXPECT_NE(error_reading({{"x.npy", good, true, 0, 1000000000}}).find("cannot be deflated from"),
            std::string::npos);
  EXPECT_EQ(error_reading({{"x.npy", "hello, world"}}), "'a.npz': array 'x': is no array of NumPy");
  EXPECT_EQ(
      error_reading({{"x.npy", npy("{'descr': '>i2', 'fortran_order': False, 'shape': (6,), }", kSix)}}),
      "'a.npz': array 'x': elements of type '>i2' are not read, must be u1, u2, u4, u8, i1, i2, i4, i8, f2, "
      "f4, f8, b1, U or S, little-endian");
  EXPECT_EQ(error_reading({{"x.npy", npy("{'descr': '|O', 'fortran_order': False, 'shape': (6,), }", kSix)}}),
            "'a.npz': array 'x': Python objects are not read; save texts as array.astype(str)");
  EXPECT_EQ(
      error_reading({{"x.npy", npy("{'descr': '<i2', 'fortran_order': False, 'shape': (7,), }", kSix)}}),
      "'a.npz': array 'x': the array needs 14 bytes, there are 12");
  EXPECT_EQ(
      error_reading({{"x.npy", npy("{'descr': '<i2', 'fortran_order': False, 'shape': (-6,), }", kSix)}}),
      "'a.npz': array 'x': '-6' is no extent of an array");
  EXPECT_EQ(error_reading({{"x.npy", npy("{'descr': '<i2', 'shape': (6,), }", kSix)}}),
            "'a.npz': array 'x': the header of the array has no fortran_order");
  EXPECT_NE(
      error_reading({{"x.npy", npy("{'descr': '<i2', 'fortran_order': False, 'shape': (4611686018427387904, "
                                   "4611686018427387904), }",
                                   kSix)}})
          .find("overflows"),
      std::string::npos);
}

// Any bytes give an array or an error message.
TEST_F(NpzTest, DamagedBytesNeverCrash) {
  const std::string good =
      zip({{"x.npy", npy("{'descr': '<i2', 'fortran_order': True, 'shape': (2, 3), }", kSix), true},
           {"y.npy", npy("{'descr': '<i2', 'fortran_order': False, 'shape': (6,), }", kSix)}});
  for (size_t at = 0; at < good.size(); ++at)
    for (const int change : {1, 128}) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ change);
      write_text_atomic(path("a.npz"), bad);
      error_of([&] {
        const NpzFile in(path("a.npz"));
        for (const std::string& name : in.names()) in.read(name);
      });
    }
}

}  // namespace
}  // namespace tessera
