#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/random.h"
#include "core/text.h"

namespace tessera {
namespace {

using Names = std::vector<std::string>;

TEST(Text, SplitAndJoinAreInverse) {
  for (const Names& parts : {Names{""}, Names{"a"}, Names{"", ""}, Names{"a", "", "b c"}})
    EXPECT_EQ(split(join(parts, ","), ','), parts);
  EXPECT_EQ(trim(" \t a b\r\n"), "a b");
  EXPECT_EQ(trim(" \n"), "");
  EXPECT_EQ(lower("AbZ-é"), "abz-é");
}

TEST(Text, NearestFindsSlipsAndNothingElse) {
  const Names keys = {"learning_rate", "lr", "warmup", "weight_decay", "batch_size"};
  EXPECT_EQ(nearest("learning_rte", keys), "learning_rate");
  EXPECT_EQ(nearest("Learning-Rate", keys), "learning_rate");
  EXPECT_EQ(nearest("wieght_decay", keys), "weight_decay");
  EXPECT_EQ(nearest("warm_up", keys), "warmup");
  EXPECT_EQ(nearest("ls", keys), "lr");
  EXPECT_EQ(nearest("momentum", keys), std::nullopt);
  EXPECT_EQ(nearest("foo", Names{"fid"}), std::nullopt) << "two of three letters differ";
  EXPECT_EQ(nearest("fdi", Names{"fid"}), "fid");
  EXPECT_EQ(nearest("x", keys), std::nullopt) << "nothing of 'x' is left in 'lr'";
  EXPECT_EQ(nearest("", keys), std::nullopt);
  EXPECT_EQ(nearest("lr", Names{}), std::nullopt);
  EXPECT_EQ(did_you_mean("lrr", keys), ", did you mean 'lr'?");
  EXPECT_EQ(did_you_mean("momentum", keys), "");
}

TEST(Text, NumbersAreReadWholeOrNotAtAll) {
  EXPECT_EQ(parse_int("-12"), -12);
  EXPECT_EQ(parse_int("9223372036854775807"), std::numeric_limits<int64_t>::max());
  for (const std::string bad : {"", " 1", "1 ", "1.0", "0x1", "9223372036854775808", "+1"})
    EXPECT_EQ(parse_int(bad), std::nullopt) << bad;
  EXPECT_EQ(parse_double("1e-3"), 1e-3);
  for (const std::string bad : {"", "1,5", "1e", "1.0f", "1e999"})
    EXPECT_EQ(parse_double(bad), std::nullopt) << bad;
}

TEST(Text, ShortestReadsBackAsTheSameDouble) {
  RandomStream random(1, "shortest");
  for (int i = 0; i < 10000; ++i) {
    double value = 0;
    const uint64_t bits = random.next_u64();
    static_assert(sizeof value == sizeof bits);
    std::memcpy(&value, &bits, sizeof value);
    if (!std::isfinite(value)) continue;
    ASSERT_EQ(parse_double(shortest(value)), value) << shortest(value);
  }
  EXPECT_EQ(shortest(0.1), "0.1");
  EXPECT_EQ(shortest(1e-6), "1e-06");
  EXPECT_EQ(shortest(3), "3.0");
  EXPECT_EQ(shortest(-0.0), "-0.0");
  EXPECT_EQ(shortest(std::nan("")), "nan");
  EXPECT_EQ(shortest(-std::numeric_limits<double>::infinity()), "-inf");
}

TEST(Text, QuantitiesAreReadByPeople) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(1000), "1.00 kB");
  EXPECT_EQ(human_bytes(999'999), "1.00 MB");
  EXPECT_EQ(human_bytes(1'340'000'000), "1.34 GB");
  EXPECT_EQ(human_bytes(std::numeric_limits<uint64_t>::max()), "18446744 TB");
  EXPECT_EQ(human_count(22'100'000), "22.1 M");
  EXPECT_EQ(human_count(12), "12");
  EXPECT_EQ(human_count(1.9e20), "190 E");
  EXPECT_EQ(human_duration(0), "00:00");
  EXPECT_EQ(human_duration(59.6), "01:00");
  EXPECT_EQ(human_duration(3723), "1:02:03");
  EXPECT_EQ(human_duration(-5), "00:00");
  EXPECT_EQ(fixed(0.12345, 4), "0.1235");
}

TEST(Text, Utf8IsWhatTheStandardSays) {
  for (const std::string good : {"", "plain", "é", "€", "𝄞", "\xEF\xBF\xBF", "\xF4\x8F\xBF\xBF"})
    EXPECT_TRUE(is_utf8(good)) << good;
  EXPECT_TRUE(is_utf8(std::string_view("a\0b", 3)));
  const Names bad = {"\x80",              // a lone continuation
                     "\xC3",              // truncated
                     "\xE2\x82",          // truncated
                     "\xC3(",             // not continued
                     "\xC0\xAF",          // overlong '/'
                     "\xE0\x80\xAF",      // overlong
                     "\xF0\x80\x80\xAF",  // overlong
                     "\xED\xA0\x80",      // a surrogate
                     "\xF4\x90\x80\x80",  // over U+10FFFF
                     "\xF8\x88\x80\x80\x80",
                     "\xFF",
                     "a\xFEz"};
  for (const std::string& bytes : bad) EXPECT_FALSE(is_utf8(bytes)) << printable(bytes);
}

TEST(Text, PrintableNeverHoldsControlCharactersOrBrokenUtf8) {
  EXPECT_EQ(printable("blocks.0/größe"), "blocks.0/größe");
  EXPECT_EQ(printable("a\nb\x1b[31m\x7F"), "a\\x0ab\\x1b[31m\\x7f");
  EXPECT_EQ(printable("\xC3(\xFF"), "\\xc3(\\xff");
  EXPECT_EQ(printable("123456", 3), "123...");
  RandomStream random(2, "printable");
  for (int i = 0; i < 1000; ++i) {
    std::string bytes(random.below(20), '\0');
    for (char& c : bytes) c = static_cast<char>(random.next_u32());
    const std::string shown = printable(bytes);
    EXPECT_TRUE(is_utf8(shown));
    EXPECT_TRUE(std::none_of(shown.begin(), shown.end(), [](char c) { return c >= 0 && c < ' '; }));
  }
}

}  // namespace

namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string back(std::string_view text) {
  const auto bytes = from_base64(text);
  return bytes ? std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size()) : "none";
}

TEST(Base64, FollowsRfc4648) {
  const std::pair<const char*, const char*> vectors[] = {{"", ""},
                                                         {"f", "Zg=="},
                                                         {"fo", "Zm8="},
                                                         {"foo", "Zm9v"},
                                                         {"foob", "Zm9vYg=="},
                                                         {"fooba", "Zm9vYmE="},
                                                         {"foobar", "Zm9vYmFy"},
                                                         {"\xFF\xEF\xBE", "/+++"}};
  for (const auto& [plain, coded] : vectors) {
    EXPECT_EQ(to_base64(bytes_of(plain)), coded);
    EXPECT_EQ(back(coded), plain);
  }
}

TEST(Base64, RefusesWhatIsNone) {
  EXPECT_EQ(back("Zm8"), "fo");
  for (const char* bad : {"Z", "Zm9vY", "Zm9\n", "Zm=9", "====", "Zm9-", "Zm\xC3\xA9"})
    EXPECT_EQ(back(bad), "none") << bad;
}

}  // namespace

}  // namespace tessera
