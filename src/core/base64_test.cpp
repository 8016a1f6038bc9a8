#include "core/base64.h"

#include <gtest/gtest.h>

namespace tessera {
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
