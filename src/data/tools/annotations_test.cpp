// A source with an annotation of its own, key points, needs nothing outside this file.
#include "data/base/annotations.h"

#include <gtest/gtest.h>

#include "data/base/data_testing.h"
#include "data/base/source_kinds.h"
#include "data/tools/check.h"
#include "data/tools/pack.h"
#include "io/files/file.h"
#include "io/files/tar.h"

namespace tessera::data {
namespace {

struct Point {
  int x = 0, y = 0;
};

class PointSource final : public Source {
 public:
  explicit PointSource(Split split) : split_(split) {}
  int64_t size() const override { return split_ == Split::train ? 3 : 1; }
  RawSample read(int64_t index) const override {
    Image image(8, 8, 3);
    image.pixels[0] = static_cast<uint8_t>(10 * index + (split_ == Split::train ? 1 : 2));
    return {text("point sample ", index), image};
  }
  uint64_t fingerprint() const override { return 1; }
  std::string describe() const override { return text("points, ", size(), " images"); }
  std::unique_ptr<Annotations> annotations() const override;

  // The last point of the training set is outside of its image.
  Point point(int64_t index) const { return {static_cast<int>(4 * index), 3}; }

 private:
  Split split_;
};

class PointPacking final : public Packing {
 public:
  explicit PointPacking(const PointSource& source) : source_(source) {}
  std::vector<Member> members(const RawSample&, int64_t index) const override {
    const Point point = source_.point(index);
    return {{".point", bytes_of(text(point.x, ",", point.y))}};
  }
  void finish(const std::string& folder, std::vector<std::string>& files) const override {
    write_text_atomic(folder + "/points.txt", "x,y\n");
    files.emplace_back("points.txt");
  }

 private:
  const PointSource& source_;
};

class PointAnnotations final : public Annotations {
 public:
  explicit PointAnnotations(const PointSource& source) : Annotations(source), points_(source) {}
  std::unique_ptr<Packing> packing() const override { return std::make_unique<PointPacking>(points_); }
  std::vector<std::string> problems_of(int64_t index, const RawSample& sample) const override {
    if (points_.point(index).x < 8) return {};
    return {sample.name + ": its point is outside of the image"};
  }
  std::string caption_of(int64_t index, const RawSample&) const override {
    return text("at ", points_.point(index).x);
  }
  Image drawn(int64_t index, const RawSample&, Image image) const override {
    const Point point = points_.point(index);
    if (point.x < image.width) image.row(point.y)[3 * point.x] = 255;
    return image;
  }

 protected:
  Facts annotation_facts(int64_t) const override {
    return {text("  points ", points_.size(), "\n"), {{"points", points_.size()}}};
  }

 private:
  const PointSource& points_;
};

std::unique_ptr<Annotations> PointSource::annotations() const {
  return std::make_unique<PointAnnotations>(*this);
}

SourceConfig points() {
  static const bool added = [] {
    add_source_kind({.name = "points",
                     .example = "points:",
                     .matches = [](const std::string& path) { return path == "points:"; },
                     .open = [](const SourceConfig&, Split split) -> std::unique_ptr<Source> {
                       return std::make_unique<PointSource>(split);
                     }});
    return true;
  }();
  EXPECT_TRUE(added);
  return {.path = "points:"};
}

TEST(OwnAnnotation, IsAKindOfSource) {
  EXPECT_EQ(source_kind(points().path), "points");
  EXPECT_EQ(open_source(points(), Split::train)->size(), 3);
}

TEST(OwnAnnotation, IsChecked) {
  const CheckReport report = check_data(points());
  EXPECT_EQ(report.problems(), 1);
  EXPECT_EQ(report.captions.lines,
            std::vector<std::string>{"point sample 2: its point is outside of the image"});
}

TEST(OwnAnnotation, IsDescribed) {
  const auto source = open_source(points(), Split::train);
  const Annotations::Facts facts = source->annotations()->facts(10);
  EXPECT_EQ(facts.json["points"], 3);
  EXPECT_EQ(facts.json["description"], "points, 3 images");
  EXPECT_TRUE(facts.text.ends_with(
      "  warning: 2 of 3 images nearly constant: the pixels are within 16 of 256 levels\n  points 3\n"))
      << facts.text;
}

TEST(OwnAnnotation, IsDrawn) {
  const auto source = open_source(points(), Split::train);
  const std::vector<PreviewCell> cells = preview_cells(*source, 3, 0, 8);
  ASSERT_EQ(cells.size(), 3u);
  EXPECT_EQ(cells[1].caption, "at 4");
  EXPECT_EQ(cells[1].picture.row(3)[3 * 4], 255);
}

TEST(OwnAnnotation, IsPacked) {
  const TemporaryFolder folder;
  PackConfig pack;
  pack.output = folder.path("packed");
  const PackReport report = pack_data(points(), pack);
  EXPECT_EQ(report.files, (std::vector<std::string>{"train-000.tar", "val-000.tar", "points.txt"}));
  const TarArchive shard(folder.path("packed/train-000.tar"));
  ASSERT_EQ(shard.members().size(), 6u);
  EXPECT_EQ(shard.members()[3].name, "train000000001-point_sample_1.point");
  const auto bytes = shard.bytes(3);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), "4,3");
  pack.output = folder.path("small");
  pack.resize = 4;
  EXPECT_TRUE(
      error_of([&] { pack_data(points(), pack); }).starts_with("--resize is for images with classes"));
}

}  // namespace
}  // namespace tessera::data
