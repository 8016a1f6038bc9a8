#include "data/tools/pack.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>

#include "core/text.h"
#include "data/base/data_testing.h"
#include "data/base/objects.h"
#include "data/transforms/mask_labels.h"
#include "io/files/tar.h"
#include "io/images/image.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

using Bytes = std::vector<std::byte>;

std::string as_text(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Image gradient(int width, int height, int shift) {
  Image image(width, height, 3);
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < 3; ++c)
        image.row(y)[3 * x + c] = static_cast<uint8_t>(x * 3 + y * 5 + c * 40 + shift);
  return image;
}

// Returns encoded bytes with the class name of every sample; raw pixels as PNG.
std::multimap<std::string, std::string> content_of(const Source& source) {
  std::multimap<std::string, std::string> content;
  for (int64_t i = 0; i < source.size(); ++i) {
    const RawSample sample = source.read(i);
    const auto* bytes = std::get_if<Bytes>(&sample.picture);
    content.emplace(as_text(bytes != nullptr ? *bytes : encode_png(std::get<Image>(sample.picture))),
                    labels_in(source).class_names()[static_cast<size_t>(labels_in(source).label(i))]);
  }
  return content;
}

TEST(PackData, ShardsHoldTheSameBytesLabelsAndSplits) {
  const TemporaryFolder folder;
  for (int i = 0; i < 7; ++i)
    for (const char* name : {"train/tree frog/", "train/newt/", "val/newt/", "val/tree frog/"})
      folder.write(name + std::to_string(i) + (i % 2 ? ".png" : ".jpg"),
                   as_text(i % 2 ? encode_png(gradient(12, 9, i + name[0]))
                                 : encode_jpeg(gradient(12, 9, i + name[6]))));
  const SourceConfig from = {.path = folder.path("")};
  for (const bool gzip : {false, true}) {
    const std::string out = folder.path(gzip ? "new/packed-gz" : "packed");
    PackConfig pack;
    pack.output = out;
    pack.shard_size = 4;
    pack.gzip = gzip;
    const PackReport report = pack_data(from, pack);
    EXPECT_EQ(report.pictures, 28);
    ASSERT_EQ(report.files.size(), 9u);
    EXPECT_EQ(report.files[3], gzip ? "train-003.tar.gz" : "train-003.tar");
    EXPECT_EQ(report.files[4], gzip ? "val-000.tar.gz" : "val-000.tar");
    for (const Split split : {Split::train, Split::validation}) {
      const auto before = open_source(from, split), after = open_source({.path = out}, split);
      EXPECT_EQ(content_of(*before), content_of(*after));
      EXPECT_EQ(labels_in(*before).class_names(), labels_in(*after).class_names());
    }
    EXPECT_FALSE(fs::exists(out + ".partial"));
  }
}

TEST(PackData, TheSamePackGivesTheSameBytes) {
  const TemporaryFolder folder;
  const SourceConfig from = {.path = "shapes:train=40,val=10"};
  std::vector<std::string> contents;
  for (const char* name : {"one", "two"}) {
    PackConfig pack;
    pack.output = folder.path(name);
    pack.gzip = true;
    pack_data(from, pack);
    std::ifstream file(folder.path(name) + "/train-000.tar.gz", std::ios::binary);
    contents.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  EXPECT_FALSE(contents[0].empty());
  EXPECT_EQ(contents[0], contents[1]);
  const auto before = open_source(from, Split::train),
             after = open_source({.path = folder.path("one")}, Split::train);
  EXPECT_EQ(content_of(*before), content_of(*after));
}

TEST(PackData, ResizeShrinksTheShorterSideAndLeavesSmallPicturesAlone) {
  const TemporaryFolder folder;
  folder.write("a/wide.jpg", as_text(encode_jpeg(gradient(80, 40, 0))));
  folder.write("a/tall.png", as_text(encode_png(gradient(30, 90, 0))));
  const std::string small = as_text(encode_jpeg(gradient(19, 80, 0)));
  folder.write("a/small.jpg", small);
  PackConfig pack;
  pack.output = folder.path("packed");
  pack.resize = 20;
  pack_data({.path = folder.path(), .val_share = 0}, pack);
  const auto source = open_source({.path = folder.path("packed"), .val_share = 0}, Split::train);
  std::map<std::pair<int, int>, std::string> formats;
  bool kept = false;
  for (int64_t i = 0; i < 3; ++i) {
    const RawSample sample = source->read(i);
    const Bytes& bytes = std::get<Bytes>(sample.picture);
    const ImageInfo info = image_info(bytes, "x");
    formats[{info.width, info.height}] = info.format;
    kept = kept || as_text(bytes) == small;
  }
  EXPECT_EQ(formats, (std::map<std::pair<int, int>, std::string>{
                         {{40, 20}, "jpeg"}, {{20, 60}, "png"}, {{19, 80}, "jpeg"}}));
  EXPECT_TRUE(kept);
}

TEST(PackData, SeveralLabelsSurvive) {
  const TemporaryFolder folder;
  folder.write("1.png", as_text(encode_png(gradient(4, 4, 1))));
  folder.write("2.png", as_text(encode_png(gradient(4, 4, 2))));
  const SourceConfig from = {.path = folder.write("l.csv", "path,x,y,z\n1.png,1,0,1\n2.png,0,1,0\n"),
                             .val_share = 0};
  PackConfig pack;
  pack.output = folder.path("packed");
  pack_data(from, pack);
  const auto source = open_source({.path = folder.path("packed"), .val_share = 0}, Split::train);
  EXPECT_TRUE(labels_in(*source).multi_label());
  EXPECT_EQ(labels_in(*source).class_names(), (std::vector<std::string>{"x", "y", "z"}));
  std::multiset<std::vector<int64_t>> labels = {labels_in(*source).labels(0), labels_in(*source).labels(1)};
  EXPECT_EQ(labels, (std::multiset<std::vector<int64_t>>{{0, 2}, {1}}));
}

TEST(PackData, ABadPictureLeavesNothingBehindUnlessSkipped) {
  const TemporaryFolder folder;
  for (int i = 0; i < 5; ++i)
    folder.write("set/a/" + std::to_string(i) + ".png", as_text(encode_png(gradient(8, 8, i))));
  folder.write("set/a/bad.png", "no image");
  const std::string whole = as_text(encode_png(gradient(30, 30, 0)));
  folder.write("set/a/cut.png", whole.substr(0, whole.size() / 2));  // its header is valid
  const SourceConfig from = {.path = folder.path("set"), .val_share = 0};
  PackConfig pack;
  pack.output = folder.path("packed/");
  pack.shard_size = 1;
  const std::string said = error_of([&] { pack_data(from, pack); });
  EXPECT_NE(said.find("; --skip-bad leaves such images out"), std::string::npos) << said;
  EXPECT_TRUE(said.find("bad.png") != std::string::npos || said.find("cut.png") != std::string::npos) << said;
  EXPECT_FALSE(fs::exists(folder.path("packed")));
  EXPECT_FALSE(fs::exists(folder.path("packed.partial")));
  pack.skip_bad = true;
  const PackReport report = pack_data(from, pack);
  EXPECT_EQ(report.pictures, 5);
  EXPECT_EQ(report.skipped.count, 2);
}

// A valid header is not enough: images copied byte for byte are also decoded once.
TEST(PackData, ATruncatedImageIsNotPacked) {
  const TemporaryFolder folder;
  const std::string whole = as_text(encode_jpeg(gradient(60, 40, 0)));
  folder.write("set/a/cut.jpg", whole.substr(0, whole.size() / 2));
  folder.write("set/a/whole.jpg", whole);
  PackConfig pack;
  pack.output = folder.path("packed");
  EXPECT_NE(error_of([&] { pack_data({.path = folder.path("set"), .val_share = 0}, pack); }).find("cut.jpg"),
            std::string::npos);
}

TEST(PackData, MembersAreCalledAfterTheirFiles) {
  const TemporaryFolder folder;
  folder.write("set/a/IMG 1.v2.png", as_text(encode_png(gradient(8, 8, 1))));
  folder.write("set/a/\u732b.png", as_text(encode_png(gradient(8, 8, 2))));
  PackConfig pack;
  pack.output = folder.path("packed");
  pack_data({.path = folder.path("set"), .val_share = 0}, pack);
  const auto source = open_source({.path = folder.path("packed"), .val_share = 0}, Split::train);
  std::multiset<std::string> names;
  for (int64_t i = 0; i < source->size(); ++i) {
    const std::string name = source->read(i).name;
    names.insert(name.substr(name.rfind('-')));
  }
  EXPECT_EQ(names, (std::multiset<std::string>{"-IMG_1_v2.png", "-\u732b.png"}));
}

TEST(PackData, ShrunkPicturesKeepTheirOrientation) {
  const TemporaryFolder folder;
  folder.write("set/a/1.jpg", as_text(encode_jpeg(gradient(24, 16, 1), 90, 6)));
  folder.write("set/a/2.png", as_text(encode_png(gradient(24, 16, 2), 3)));
  PackConfig pack;
  pack.output = folder.path("packed");
  pack.resize = 8;
  pack_data({.path = folder.path("set"), .val_share = 0}, pack);
  const auto source = open_source({.path = folder.path("packed"), .val_share = 0}, Split::train);
  std::multiset<int> orientations;
  for (int64_t i = 0; i < source->size(); ++i) {
    const ImageInfo info = image_info(std::get<Bytes>(source->read(i).picture), "packed");
    EXPECT_EQ(info.height, 8);
    orientations.insert(info.orientation);
  }
  EXPECT_EQ(orientations, (std::multiset<int>{3, 6}));
}

TEST(PackData, WhatCannotBeWrittenIsRefused) {
  const TemporaryFolder folder;
  folder.write("full/file", "x");
  const SourceConfig from = {.path = "shapes:train=3,val=1"};
  PackConfig pack;
  const auto error = [&] { return error_of([&] { pack_data(from, pack); }, &folder); };
  EXPECT_EQ(error(), "no folder to write to");
  pack.output = folder.path("full");
  EXPECT_EQ(error(), "DIR/full exists and is not an empty folder");
  fs::create_directories(folder.path("new.partial"));
  pack.output = folder.path("new");
  EXPECT_EQ(error(), "DIR/new.partial exists: another program writes it, or one was killed; if so remove it");
  pack.shard_size = 0;
  EXPECT_EQ(error(), "shard size is 0, must be at least 1");
  pack.shard_size = 2;
  fs::create_directories(folder.path("there"));
  fs::create_directory_symlink(folder.path("there"), folder.path("link"));
  pack.output = folder.path("link");
  EXPECT_EQ(error(), "DIR/link is a link and cannot be replaced by the finished one: name another folder");
  pack.output = folder.path("there");
  EXPECT_EQ(error(), "no error");
  EXPECT_TRUE(fs::exists(folder.path("there/classes.txt")));
}

TEST(PackData, AClassThatNoLineHoldsIsSaidBeforeTheWork) {
  const TemporaryFolder folder;
  const SourceConfig from = {.path = folder.write("l.csv", "path,label\na.png,\"two\nlines\"\n"),
                             .val_share = 0};
  EXPECT_NE(error_of([&] { pack_data(from, {.output = folder.path("out")}); }).find("classes.txt"),
            std::string::npos);
  EXPECT_FALSE(fs::exists(folder.path("out.partial")));
}

// Training from the shards must equal training from the set itself: images, masks and objects in order.
TEST(PackData, MasksAndObjectsComeBackInTheirOrder) {
  const TemporaryFolder folder;
  for (const char* kind : {"segment", "detect"})
    for (const bool gzip : {false, true}) {
      const SourceConfig from = {.path = text("shapes:task=", kind, ",train=9,val=3,size=64")};
      const std::string out = folder.path(text(kind, gzip));
      pack_data(from, {.output = out, .shard_size = 4, .gzip = gzip});
      for (const Split split : {Split::train, Split::validation}) {
        const auto before = open_source(from, split), after = open_source({.path = out}, split);
        ASSERT_EQ(after->size(), before->size()) << kind;
        for (int64_t i = 0; i < before->size(); ++i) {
          const RawSample a = before->read(i), b = after->read(i);
          EXPECT_EQ(decode_sample(a).pixels, decode_sample(b).pixels);
          ASSERT_EQ(a.annotation.mask.has_value(), b.annotation.mask.has_value());
          if (a.annotation.mask) {
            EXPECT_EQ(a.annotation.mask->pixels, b.annotation.mask->pixels);
          }
          if (!object_labels(*before)) continue;
          const auto &there = object_labels(*before)->objects(i),
                     &here = require_objects(*after, "test").objects_of(b.name);
          ASSERT_EQ(there.size(), here.size());
          for (size_t k = 0; k < there.size(); ++k) {
            EXPECT_EQ(there[k].box.label, here[k].box.label);
            EXPECT_EQ(there[k].box.left, here[k].box.left);
            EXPECT_EQ(there[k].box.bottom, here[k].box.bottom);
            EXPECT_EQ(there[k].area, here[k].area);
            EXPECT_EQ(runs_of_outline(there[k].outline, 64, 64), runs_of_outline(here[k].outline, 64, 64));
          }
        }
        if (mask_labels(*before)) {
          EXPECT_EQ(mask_labels(*before)->mask_classes(), require_masks(*after, "test").mask_classes());
        }
      }
    }
}

TEST(PackData, MasksAndObjectsKeepTheirSize) {
  const TemporaryFolder folder;
  EXPECT_THROW(pack_data({.path = "shapes:task=segment,train=4,val=2,size=64"},
                         {.output = folder.path("out"), .resize = 32}),
               Error);
  EXPECT_FALSE(fs::exists(folder.path("out")));
}

TEST(MaskShards, AMaskThatIsMissingAndAValueBeyondTheClassesAreNamed) {
  const TemporaryFolder folder;
  pack_data({.path = "shapes:task=segment,train=4,val=2,size=32"}, {.output = folder.path("set")});
  {
    TarWriter writer(folder.path("set/train-001.tar"));
    writer.add("a.png", encode_png(gradient(4, 4, 0)));
    writer.commit();
  }
  const auto problems = open_source_with_problems({.path = folder.path("set")}, Split::train)->problems();
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].find("'a.png' has no mask a.mask.png"), std::string::npos) << problems[0];
  folder.write("set/masks.json", "{\"classes\": [\"background\"]}");
  fs::remove(folder.path("set/train-001.tar"));
  try {
    open_source({.path = folder.path("set")}, Split::train)->read(0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("must be 0 to 0, or 255 for none"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tessera::data
