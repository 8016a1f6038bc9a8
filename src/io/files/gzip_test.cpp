#include "io/files/gzip.h"

#include <gtest/gtest.h>

#include "core/random.h"
#include "io/files/file.h"
#include "io/files/io_testing.h"

namespace tessera {
namespace {

std::vector<std::byte> deflated(std::string_view content, int level = 6) {
  std::vector<std::byte> out;
  GzipEncoder encoder([&](auto piece) { out.insert(out.end(), piece.begin(), piece.end()); }, level);
  encoder.write(as_bytes(content));
  encoder.finish();
  return out;
}

std::string noise(size_t size) {
  RandomStream random(1, "gzip test");
  std::string out(size, '\0');
  for (char& c : out) c = static_cast<char>(random.next_u32());
  return out;
}

TEST(Gzip, InflatesWhatWasDeflated) {
  for (const std::string& content :
       {std::string(), std::string("x"), std::string(3 << 20, 'a'), noise(2500000)}) {
    const auto packed = deflated(content);
    EXPECT_TRUE(is_gzip(packed));
    EXPECT_EQ(as_text(inflate_gzip(packed, "f")), content);
    EXPECT_EQ(deflated(content), packed);
  }
  EXPECT_LT(deflated(std::string(3 << 20, 'a')).size(), 10000u);
}

TEST(Gzip, MembersFollowEachOtherAndZerosPad) {
  auto packed = deflated("one ");
  const auto second = deflated("two");
  packed.insert(packed.end(), second.begin(), second.end());
  EXPECT_EQ(as_text(inflate_gzip(packed, "f")), "one two");
  packed.resize(packed.size() + 512);
  EXPECT_EQ(as_text(inflate_gzip(packed, "f")), "one two");
  const size_t end = packed.size() - 512;
  packed.back() = std::byte{1};
  EXPECT_EQ(error_of([&] { inflate_gzip(packed, "f"); }),
            text("f: bytes after the end of the gzip data at byte ", end));
}

TEST(Gzip, EveryTruncationIsAnError) {
  const auto packed = deflated("a sentence that is not very long, but long enough; long enough");
  for (size_t size = 0; size < packed.size(); ++size) {
    const std::string said = error_of([&] { inflate_gzip(std::span(packed).first(size), "f"); });
    EXPECT_EQ(said, size < 2 ? "f: is no gzip file" : text("f: gzip data truncated, ends at byte ", size));
  }
}

// A flipped bit is an error, or (in the header's free fields) changes nothing: the checksum ensures that.
TEST(Gzip, EveryFlippedBitIsSeen) {
  const std::string content = noise(300) + std::string(300, 'b');
  const auto packed = deflated(content);
  int errors = 0;
  for (size_t bit = 0; bit < 8 * packed.size(); ++bit) {
    auto bad = packed;
    bad[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    std::vector<std::byte> found;
    const std::string said = error_of([&] { found = inflate_gzip(bad, "f"); });
    if (said.empty())
      EXPECT_EQ(as_text(found), content) << bit;
    else
      ++errors;
  }
  EXPECT_GT(errors, static_cast<int>(8 * packed.size()) - 80);
}

TEST(Gzip, BombsAreRefused) {
  const auto packed = deflated(std::string(70 << 20, '\0'));
  EXPECT_LT(packed.size(), 100000u);
  EXPECT_EQ(error_of([&] {
              inflate_gzip(packed, "f", {uint64_t{1} << 20, 1100});
            }),
            "f: inflates to more than 1.05 MB, the limit here");
  EXPECT_EQ(error_of([&] { inflate_gzip(packed, "f", InflateLimits{}); }),
            "f: inflates more than 250-fold, refused as a decompression bomb");
  EXPECT_EQ(inflate_gzip(packed, "f").size(), size_t{70} << 20);  // limits allow all that deflate can do
}

}  // namespace
}  // namespace tessera
