#include "data/tools/check.h"

#include <gtest/gtest.h>

#include "data/base/data_testing.h"
#include "data/base/info.h"
#include "io/images/image.h"

namespace tessera::data {
namespace {

std::string as_text(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Returns an image with all pixels equal to `value`.
std::string plain_png(int width, int height, uint8_t value) {
  Image image(width, height, 3);
  std::fill(image.pixels.begin(), image.pixels.end(), value);
  return as_text(encode_png(image));
}

TEST(CheckData, ASoundSetHasNoProblemsAndIsDescribed) {
  const TemporaryFolder folder;
  for (int i = 0; i < 3; ++i) {
    folder.write("train/a/" + std::to_string(i) + ".png", plain_png(40 + i, 33, static_cast<uint8_t>(i)));
    folder.write("train/b/" + std::to_string(i) + ".png", plain_png(64, 70, static_cast<uint8_t>(10 + i)));
  }
  folder.write("val/a/x.png", plain_png(8, 8, 100));
  folder.write("val/b/x.jpg", as_text(encode_jpeg(Image(9, 20, 3))));
  int64_t last = 0, total = 0;
  const CheckReport report = check_data({.path = folder.path()}, [&](int64_t done, int64_t of) {
    EXPECT_GE(done, last);
    last = done;
    total = of;
  });
  EXPECT_EQ(report.problems(), 0);
  EXPECT_EQ(last, 8);
  EXPECT_EQ(total, 8);
  ASSERT_EQ(report.splits.size(), 2u);
  const SplitCheck& train = report.splits[0];
  EXPECT_EQ(train.name, "train");
  EXPECT_EQ(train.readable, 6);
  EXPECT_EQ(train.class_counts, (std::vector<int64_t>{3, 3}));
  EXPECT_EQ(train.formats, (std::map<std::string, int64_t>{{"png", 6}}));
  EXPECT_EQ(train.sides, (std::map<int, int64_t>{{5, 3}, {6, 3}}));
  EXPECT_EQ(train.smallest_side, 33);
  EXPECT_EQ(train.largest_side, 70);
  EXPECT_EQ(report.splits[1].formats, (std::map<std::string, int64_t>{{"jpeg", 1}, {"png", 1}}));
}

TEST(CheckData, EveryKindOfProblemIsReportedInOneRun) {
  const TemporaryFolder folder;
  const std::string good = plain_png(16, 16, 50);
  folder.write("train/a/good.png", good);
  folder.write("train/a/again.png", good);
  folder.write("train/a/other.png", plain_png(16, 16, 51));
  folder.write("train/a/cut.png", plain_png(16, 16, 52).substr(0, 60));
  folder.write("train/a/empty.jpg", "");
  folder.write("train/a/notes.jpg", "this is text");
  folder.write("train/b/good.png", good);
  std::filesystem::create_directories(folder.path("train/c"));
  folder.write("val/a/leak.png", good);
  folder.write("val/b/fine.png", plain_png(16, 16, 53));
  const CheckReport report = check_data({.path = folder.path()});
  EXPECT_EQ(report.set.count, 1) << "c is empty";
  EXPECT_GE(report.warnings.count, 2) << "c is absent in val, and has no training image";
  EXPECT_EQ(report.unreadable.count, 3);
  for (size_t i = 0; i < 3; ++i)
    EXPECT_NE(report.unreadable.lines[i].find(std::vector<std::string>{"cut", "empty", "notes"}[i]),
              std::string::npos)
        << report.unreadable.lines[i];
  const auto line = [&](const std::string& raw) { return error_of([&] { fail(raw); }, &folder); };
  ASSERT_EQ(report.duplicates.count, 2);
  EXPECT_EQ(line(report.duplicates.lines[0]),
            "DIR/train/a/good.png has the same bytes as DIR/train/a/again.png");
  EXPECT_EQ(
      line(report.duplicates.lines[1]),
      "DIR/train/b/good.png has the same bytes as DIR/train/a/again.png, but another label ('b', not 'a')");
  ASSERT_EQ(report.leaks.count, 1);
  EXPECT_EQ(line(report.leaks.lines[0]), "DIR/val/a/leak.png has the same bytes as DIR/train/a/again.png");
  EXPECT_EQ(report.problems(), 7);
  EXPECT_EQ(report.splits[0].readable, 4);
}

TEST(CheckData, AJpegThatWasCutAndClosedIsAWarning) {
  const TemporaryFolder folder;
  Image image(64, 64, 3);
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<uint8_t>(i * i / 7);
  const std::string whole = as_text(encode_jpeg(image));
  folder.write("train/a/whole.jpg", whole);
  folder.write("train/b/cut.jpg", whole.substr(0, whole.size() / 2) + "\xff\xd9");
  const CheckReport report = check_data({.path = folder.path(), .val_share = 0});
  EXPECT_EQ(report.problems(), 0);
  ASSERT_EQ(report.warnings.count, 1);
  EXPECT_NE(report.warnings.lines[0].find("cut.jpg is damaged: parts of it are gray ("), std::string::npos)
      << report.warnings.lines[0];
}

TEST(CheckData, APictureBombIsNamedNotUnpacked) {
  const TemporaryFolder folder;
  std::string bomb = plain_png(16, 16, 1);
  const char huge[] = {0, 1, '\x86', '\xa0', 0, 1, '\x86', '\xa0'};  // 100,000 x 100,000 in the PNG header
  bomb.replace(16, 8, huge, 8);
  folder.write("train/a/bomb.png", bomb);
  folder.write("train/a/good.png", plain_png(16, 16, 2));
  const CheckReport report = check_data({.path = folder.path(), .val_share = 0});
  EXPECT_EQ(report.unreadable.count, 1);
  EXPECT_NE(report.unreadable.lines[0].find("bomb.png"), std::string::npos);
  EXPECT_EQ(report.problems(), 1);
}

TEST(CheckData, WhatBothSplitsSayStandsOnce) {
  const TemporaryFolder folder;
  std::string rows = "path,label\n";
  for (int i = 0; i < 10; ++i) {
    const std::string name = std::to_string(i) + ".png";
    folder.write(name, plain_png(8, 8, static_cast<uint8_t>(i)));
    rows += name + (i % 2 == 0 ? ",a\n" : ",b\n");
  }
  const CheckReport report = check_data({.path = folder.write("l.csv", rows + "10.png\n"), .val_share = 0.2});
  EXPECT_EQ(report.splits.size(), 2u);
  EXPECT_EQ(report.problems(), 1);
}

TEST(CheckData, FoldersForValidationWithoutImagesAreNamed) {
  const TemporaryFolder folder;
  for (const char* name : {"train/a/x.png", "train/b/x.png"}) folder.write(name, plain_png(8, 8, 1));
  std::filesystem::create_directories(folder.path("val/a"));
  const auto has_line = [&] {
    const std::vector<std::string> lines = check_data({.path = folder.path()}).warnings.lines;
    return std::ranges::count(lines, folder.path() + " has no validation images");
  };
  EXPECT_EQ(has_line(), 1);
  std::filesystem::remove_all(folder.path("val"));
  EXPECT_EQ(has_line(), 0);
}

TEST(CheckData, ASetThatCannotBeOpenedIsAProblemNotAThrow) {
  const TemporaryFolder folder;
  const CheckReport report = check_data({.path = folder.write("l.csv", "a,b,c\n")});
  EXPECT_EQ(report.set.count, 1);
  EXPECT_TRUE(report.splits.empty());
  EXPECT_THROW(check_data({.path = ""}), Error);
}

TEST(PixelStatistics, AreThoseOfThePixels) {
  const TemporaryFolder folder;
  Image half(10, 2, 3);
  for (size_t i = 0; i < half.pixels.size(); ++i)
    half.pixels[i] = i % 3 == 0 ? 255 : i < half.pixels.size() / 2 ? 0 : 102;
  folder.write("a/1.png", as_text(encode_png(half)));
  folder.write("a/2.png", "broken");
  const auto source = open_source({.path = folder.path(), .val_share = 0}, Split::train);
  const PixelStatistics pixels = pixel_statistics(*source, 100);
  EXPECT_EQ(pixels.images, 1);
  EXPECT_DOUBLE_EQ(pixels.mean[0], 1);
  EXPECT_NEAR(pixels.std[0], 0, 1e-9);
  EXPECT_DOUBLE_EQ(pixels.mean[1], 0.2);
  EXPECT_DOUBLE_EQ(pixels.std[1], 0.2);
  EXPECT_EQ(pixels.width.most, 10);
  EXPECT_EQ(pixels.height.least, 2);
}

TEST(PreviewCells, AreInTheOrderOfClassesWithTheirNames) {
  const auto source = open_source({.path = "shapes:train=500,val=1"}, Split::train);
  const auto cells = preview_cells(*source, 30, 1, 64);
  ASSERT_EQ(cells.size(), 30u);
  std::vector<std::string> names;
  for (const PreviewCell& cell : cells) {
    EXPECT_EQ(cell.picture.width, 32);
    if (names.empty() || names.back() != cell.caption) names.push_back(cell.caption);
  }
  EXPECT_LE(names.size(), 10u) << "each class in one piece";
  EXPECT_EQ(preview_cells(*source, 1000, 1, 64).size(), 500u);
  EXPECT_NE(preview_cells(*source, 30, 2, 64)[0].picture.pixels, cells[0].picture.pixels);
}

}  // namespace
}  // namespace tessera::data
