#include "io/weights/array_file.h"

#include <cstring>

#include "io/files/file.h"
#include "io/files/io_testing.h"
#include "io/files/zip.h"
#include "io/weights/safetensors.h"

namespace tessera {
namespace {

class ArrayFileTest : public TemporaryFolder {
 protected:
  static std::vector<ArraySpec> two() {
    return {{"features", DType::f32, {2, 3}}, {"labels", DType::i64, {2}}};
  }
  static std::span<const std::byte> bytes_of(const auto& values) { return std::as_bytes(std::span(values)); }
  static constexpr float kFeatures[] = {1, 2, 3, 4, 5, 6};
  static constexpr int64_t kLabels[] = {7, -8};

  // Writes in pieces that do not end at array boundaries.
  std::string written(const std::string& name) const {
    std::vector<std::byte> all(bytes_of(kFeatures).begin(), bytes_of(kFeatures).end());
    all.insert(all.end(), bytes_of(kLabels).begin(), bytes_of(kLabels).end());
    ArrayFile file(path(name), two());
    for (size_t at = 0; at < all.size(); at += 7)
      file.write(std::span(all).subspan(at, std::min<size_t>(7, all.size() - at)));
    file.commit();
    return path(name);
  }
};

// The bytes of NumPy 1.26 for np.arange(1, 7, dtype="f4").reshape(2, 3).
TEST_F(ArrayFileTest, NpyIsNumPysFirstVersion) {
  {
    ArrayFile file(path("a.npy"), {two()[0]});
    file.write(bytes_of(kFeatures));
    file.commit();
  }
  const std::string content = read_text(path("a.npy"));
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  header.append(128 - 10 - 1 - header.size(), ' ');
  EXPECT_EQ(content.substr(0, 128), std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + "\n");
  EXPECT_EQ(std::memcmp(content.data() + 128, kFeatures, sizeof kFeatures), 0);
  EXPECT_EQ(content.size(), 128 + sizeof kFeatures);
}

TEST_F(ArrayFileTest, ShapesAreTuplesOfPython) {
  const auto header = [&](std::vector<int64_t> shape) {
    ArrayFile(path("a.npy"), {{"x", DType::u8, std::move(shape)}}).commit();
    const std::string content = read_text(path("a.npy"));
    EXPECT_EQ(content.size() % 64, 0u);
    const size_t at = content.find("(");
    return content.substr(at, content.find(")") + 1 - at);
  };
  EXPECT_EQ(header({0}), "(0,)");
  EXPECT_EQ(header({0, 4}), "(0, 4)");
}

TEST_F(ArrayFileTest, NpzIsAZipArchiveOfThem) {
  const MappedFile file(written("a.npz"));
  const auto entries = index_zip(file.bytes(), "a.npz");
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].name, "features.npy");
  EXPECT_EQ(entries[1].name, "labels.npy");
  EXPECT_TRUE(entries[0].stored);
  EXPECT_EQ(std::memcmp(entries[0].bytes.data() + 128, kFeatures, sizeof kFeatures), 0);
  EXPECT_EQ(std::memcmp(entries[1].bytes.data() + 128, kLabels, sizeof kLabels), 0);
  EXPECT_EQ(entries[1].bytes.size(), 128 + sizeof kLabels);
}

TEST_F(ArrayFileTest, SafetensorsReadBack) {
  const SafetensorsFile file(written("a.safetensors"));
  EXPECT_EQ(file.find("features")->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(std::memcmp(file.find("features")->bytes.data(), kFeatures, sizeof kFeatures), 0);
  EXPECT_EQ(file.find("labels")->dtype, DType::i64);
  EXPECT_EQ(std::memcmp(file.find("labels")->bytes.data(), kLabels, sizeof kLabels), 0);
}

TEST_F(ArrayFileTest, HalfAFileIsNone) {
  {
    ArrayFile file(path("a.npz"), two());
    file.write(bytes_of(kFeatures));
    EXPECT_EQ(error_of([&] { file.commit(); }), "array 'labels' lacks 16 bytes");
    file.write(bytes_of(kLabels));
    EXPECT_EQ(error_of([&] { file.write(bytes_of(kLabels)); }), "more bytes than the arrays have");
  }
  EXPECT_TRUE(names().empty());
  EXPECT_EQ(error_of([&] { ArrayFile(path("a.npy"), two()); }),
            "'" + path("a.npy") + "' holds one array, not 2");
  EXPECT_EQ(error_of([&] {
              ArrayFile(path("a.npy"), {{"x", DType::bf16, {1}}});
            }),
            "NumPy has no element type for BF16");
  EXPECT_NE(error_of([&] {
              ArrayFile(path("a.npy"), {{"x", DType::f32, {int64_t{1} << 40, int64_t{1} << 40}}});
            }),
            "");
}

}  // namespace
}  // namespace tessera
