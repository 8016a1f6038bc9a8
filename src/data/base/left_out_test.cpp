#include "data/base/image_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "data/base/data_testing.h"
#include "io/images/image.h"

namespace tessera::data {
namespace {

std::string png() {
  const auto bytes = encode_png(Image(3, 2));
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(LeftOut, ImagesAreToldByTheirFirstBytesWhereTheSuffixSaysNothing) {
  const TemporaryFolder folder;
  folder.write("plain", png());
  folder.write("wrong.dat", png());
  folder.write("notes.txt", "no image");
  folder.write("empty", "");
  folder.write("broken.GIF", "no image");
  folder.write("folder.png.d/x", "");
  ASSERT_EQ(mkfifo(folder.path("pipe").c_str(), 0600), 0);
  EXPECT_TRUE(is_image_file(folder.path("plain")));
  EXPECT_TRUE(is_image_file(folder.path("wrong.dat")));
  EXPECT_TRUE(is_image_file(folder.path("broken.GIF"))) << "reading it names it";
  for (const char* name : {"notes.txt", "empty", "folder.png.d", "pipe", "nowhere"})
    EXPECT_FALSE(is_image_file(folder.path(name))) << name;
}

TEST(LeftOut, CountsBySuffixAndNamesTheMostFrequentFirst) {
  LeftOut out;
  EXPECT_TRUE(out.empty());
  for (const char* name : {"a.txt", "b.TXT", "c.heic", "README", ".hidden", "Mr. Smith and his family"})
    out.add(name);
  EXPECT_EQ(out.text(), "3 without suffix, 2 .txt, 1 .heic");
  out.add_stray_image();
  EXPECT_EQ(out.text(), "3 without suffix, 2 .txt, 1 .heic, 1 image in no folder of a class");
  for (const char* name : {"x.a", "x.b", "x.c", "x.d", "x.e"}) out.add(name);
  EXPECT_EQ(out.text(),
            "3 without suffix, 2 .txt, 1 .a, 1 .b, 1 .c, 3 of other kinds, 1 image in no folder of a class");
}

}  // namespace
}  // namespace tessera::data
