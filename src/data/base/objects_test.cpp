// Objects, from their files to the fields of a sample.
#include "data/base/objects.h"
#include "data/base/class_names.h"

#include <gtest/gtest.h>

#include <unistd.h>
#include <set>

#include <cmath>
#include <filesystem>
#include <functional>

#include "core/error.h"
#include "data/base/annotations.h"
#include "data/base/data_testing.h"
#include "data/sources/coco_file.h"
#include "data/sources/shapes_objects.h"
#include "data/transforms/transform_objects.h"
#include "io/files/file.h"
#include "io/images/image.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

class CocoFiles : public testing::Test {
 protected:
  CocoFiles() : folder_(fs::temp_directory_path() / ("tessera_coco_" + std::to_string(getpid()))) {
    fs::create_directories(folder_ / "annotations");
    fs::create_directories(folder_ / "images");
  }
  ~CocoFiles() override { fs::remove_all(folder_); }

  std::string write(const std::string& content, const std::string& name = "instances_train.json") {
    const std::string path = (folder_ / "annotations" / name).string();
    write_text_atomic(path, content);
    return path;
  }
  static std::string file(const std::string& annotations) {
    return R"({"info":{"a":[1,[2]]},"annotations":[)" + annotations +
           R"(],"images":[{"id":7,"file_name":"a.png","width":20,"height":10},{"id":9,"file_name":"b.png","width":20,"height":10}],)" +
           R"("categories":[{"id":5,"name":"dog"},{"id":2,"name":"cat"}]})";
  }
  fs::path folder_;
};

TEST_F(CocoFiles, AreReadWithGapsInTheirNumbers) {
  const CocoFile read = read_coco(write(file(
      R"({"id":3,"image_id":9,"category_id":5,"bbox":[1,2,3,4],"iscrowd":0,"segmentation":[[1,2,4,2,4,6]]},)"
      R"({"id":8,"image_id":9,"category_id":2,"bbox":[0,0,20,10],"area":12,"iscrowd":1,"segmentation":{"size":[10,20],"counts":[100,100]}})")));
  ASSERT_EQ(read.annotations.size(), 2u);
  EXPECT_TRUE(read.problems.empty());
  EXPECT_EQ(read.annotations[0].area, 12);
  EXPECT_EQ(read.annotations[0].outline.polygons.size(), 1u);
  EXPECT_TRUE(read.annotations[1].crowd);
  EXPECT_EQ(area_of(read.annotations[1].outline.runs), 100);
}

TEST_F(CocoFiles, BadAnnotationsAreDroppedAndCounted) {
  const CocoFile read = read_coco(write(file(
      R"({"id":1,"image_id":7,"category_id":5,"bbox":[1,2,-3,4]},{"id":2,"image_id":7,"category_id":5,"bbox":[1,2,0,4]},)"
      R"({"id":3,"image_id":7,"category_id":5,"bbox":[30,2,3,4]},{"id":4,"image_id":7,"category_id":5,"bbox":["x",2,3,4]},)"
      R"({"id":5,"image_id":7,"category_id":5,"bbox":[1,2,3,4],"segmentation":[[1,2,3,4]]},)"
      R"({"id":6,"image_id":7,"category_id":5,"bbox":[1,2,3,4],"segmentation":{"size":[10,20],"counts":"0"}},)"
      R"({"id":7,"image_id":7,"category_id":5,"bbox":[1,2,3,4],"segmentation":{"size":[10,20],"counts":[1e30,9]}},)"
      R"({"id":8,"image_id":7,"category_id":5,"bbox":[1,2,3,4]})")));
  EXPECT_EQ(read.annotations.size(), 4u);  // the last four; masks that cannot be read leave the boxes
  int64_t dropped = 0;
  for (const auto& [reason, count] : read.dropped) dropped += count;
  EXPECT_EQ(dropped, 4);
  EXPECT_EQ(read.cut, (std::map<std::string, int64_t>{{"a polygon of fewer than 3 points", 1},
                                                      {"runs that do not fill their mask", 2}}));
}

TEST_F(CocoFiles, BoxesInOtherFormsAreWarnedOf) {
  const auto warnings = [&](const std::string& box) {
    std::string annotations;
    for (int i = 1; i <= 4; ++i)
      annotations += text(i > 1 ? "," : "", R"({"id":)", i, R"(,"image_id":)", i % 2 == 0 ? 7 : 9,
                          R"(,"category_id":)", i > 2 ? 5 : 2, R"(,"bbox":)", box, "}");
    const auto source = open_source({.path = write(file(annotations))}, Split::train);
    std::vector<std::string> lines = source->warnings();
    for (std::string& line : lines) line = line.substr(line.find(": ") + 2);
    return lines;
  };
  EXPECT_EQ(warnings("[1,2,3,4]"), std::vector<std::string>{});
  EXPECT_EQ(warnings("[0.1,0.2,0.5,0.5]"),
            std::vector<std::string>{
                "all 4 boxes are at most a pixel: they look like fractions of their images, must be pixels"});
  EXPECT_EQ(
      warnings("[8,4,18,9]"),
      std::vector<std::string>{"4 of 4 boxes end outside of their image: they look like [left, top, right, "
                               "bottom], must be [left, top, width, height]"});
  EXPECT_EQ(warnings("[12,4,10,4]"), std::vector<std::string>{"4 of 4 boxes end outside of the image"});
  EXPECT_EQ(warnings("[-3,-3,10,12]"), std::vector<std::string>{"4 of 4 boxes end outside of the image"});
}

TEST_F(CocoFiles, RepeatedObjectsAreWarnedOf) {
  const std::string object = R"(,"image_id":7,"category_id":5,"bbox":[1,2,3,4]})";
  const auto source = open_source(
      {.path = write(file(R"({"id":1)" + object + R"(,{"id":2)" + object)), .val_share = 0}, Split::train);
  ASSERT_EQ(source->warnings().size(), 1u);
  EXPECT_TRUE(source->warnings()[0].ends_with(": 1 object with the class and box of another in the image"));
}

// As in pycocotools and detectron2: a bad polygon takes neither the good ones nor the box with it.
TEST_F(CocoFiles, ObjectsKeepTheirGoodPolygonsAndBoxes) {
  const CocoFile read = read_coco(write(file(
      R"({"id":1,"image_id":7,"category_id":5,"bbox":[1,2,3,4],"segmentation":[[1,2,4,2,4,6],[1,2,3,4]]},)"
      R"({"id":2,"image_id":7,"category_id":5,"bbox":[1,2,3,4],"segmentation":[]},)"
      R"({"id":3,"image_id":7,"category_id":5,"bbox":[1,2,3,4],"segmentation":null},)"
      R"({"id":4,"image_id":7,"category_id":5,"bbox":[1,2,3,4],"segmentation":[1,2,4,2,4,6]},)"
      R"({"id":5,"image_id":7,"category_id":5,"bbox":[1,2,3,4],"segmentation":{"size":[5,5],"counts":[20,5]}},)"
      R"({"id":6,"image_id":7,"category_id":5,"bbox":[1,2,3,4],"segmentation":[[1,2,4,"x",4,6]]})")));
  ASSERT_EQ(read.annotations.size(), 6u);
  EXPECT_TRUE(read.dropped.empty());
  EXPECT_EQ(read.annotations[0].outline.polygons, (std::vector<std::vector<double>>{{1, 2, 4, 2, 4, 6}}));
  EXPECT_EQ(read.annotations[3].outline.polygons, read.annotations[0].outline.polygons);
  for (const size_t without : {1, 2, 4, 5}) EXPECT_TRUE(read.annotations[without].outline.empty());
  EXPECT_EQ(read.cut.size(), 3u);
}

TEST_F(CocoFiles, WholeNumbersAndFlagsHaveSeveralForms) {
  const CocoFile read = read_coco(write(
      R"({"images":[{"id":7.0,"file_name":"a.png","width":64.0,"height":"48"},{"id":"9","file_name":"b.png","width":null}],)"
      R"("categories":[{"id":5.0,"name":"dog"}],"annotations":[)"
      R"({"id":1,"image_id":7,"category_id":5,"bbox":[1,2,3,4],"iscrowd":"1"},)"
      R"({"id":2.0,"image_id":"7","category_id":"5","bbox":[1,2,3,4],"iscrowd":"0"},)"
      R"({"id":3,"image_id":9,"category_id":5,"bbox":[1,2,3,4],"iscrowd":null},)"
      R"({"id":4,"image_id":9,"category_id":5,"bbox":[1,2,3,4],"iscrowd":"many"}]})"));
  EXPECT_EQ(read.images[0].width, 64);
  EXPECT_EQ(read.images[0].height, 48);
  EXPECT_EQ(read.images[1].number, 9);
  ASSERT_EQ(read.annotations.size(), 4u);
  EXPECT_TRUE(read.annotations[0].crowd);
  EXPECT_FALSE(read.annotations[1].crowd || read.annotations[2].crowd || read.annotations[3].crowd);
  ASSERT_EQ(read.problems.size(), 1u);
  EXPECT_NE(read.problems[0].find("'iscrowd' is \"many\""), std::string::npos);
  EXPECT_NE(error_of([&] {
              read_coco(write(file(R"({"id":1.5,"image_id":7,"category_id":5,"bbox":[1,2,3,4]})")));
            }).find("'id' is 1.5, must be a whole number"),
            std::string::npos);
}

TEST_F(CocoFiles, ImagesWithoutASizeGetThatOfTheirFiles) {
  Image image(20, 10);
  write_file_atomic((folder_ / "images" / "a.png").string(), encode_image(image, "a.png"));
  write(R"({"images":[{"id":7,"file_name":"a.png"}],"categories":[{"id":5,"name":"dog"}],"annotations":[)"
        R"({"id":1,"image_id":7,"category_id":5,"bbox":[1,2,3,4],"segmentation":[[1,2,4,2,4,6]]},)"
        R"({"id":2,"image_id":7,"category_id":5,"bbox":[1,2,3,4]},)"
        R"({"id":3,"image_id":7,"category_id":5,"bbox":[30,2,3,4]}]})");
  const auto source = open_source({.path = folder_.string(), .val_share = 0}, Split::train);
  const ObjectLabels& labels = require_objects(*source, "test");
  EXPECT_EQ(labels.image_extent(0).width, 20);
  EXPECT_EQ(labels.image_extent(0).height, 10);
  EXPECT_EQ(labels.objects(0).size(), 2u);
  EXPECT_TRUE(labels.has_outlines());
  const std::vector<std::string> lines = labels.left_out();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines[0].find("1 object with a box outside of its image"), std::string::npos);
  EXPECT_NE(lines[1].find("1 object without one"), std::string::npos);
  EXPECT_EQ(source->annotations()->left_out(), lines);
}

// A red object on a black image, which is stored with an orientation. Annotations of the image as it is shown,
// or as it is stored, are both on the object's pixels.
TEST_F(CocoFiles, ObjectsAreOrientedWithTheirImage) {
  Image shown(48, 64);
  for (int y = 10; y < 20; ++y)
    for (int x = 5; x < 30; ++x) shown.row(y)[3 * x] = 255;
  const auto is_red = [](const Image& image, double x, double y) {
    return image.row(static_cast<int>(y))[3 * static_cast<int>(x)] == 255;
  };
  for (int orientation = 1; orientation <= 8; ++orientation)
    for (const bool as_stored : {false, true}) {
      if (as_stored && orientation < 5) continue;  // both have the same size
      const Image stored = orient(shown, inverse_orientation(orientation));
      write_file_atomic((folder_ / "images" / "a.png").string(), encode_png(stored, orientation));
      const Image& annotated = as_stored ? stored : shown;
      int left = 99, top = 99, right = 0, bottom = 0;
      for (int y = 0; y < annotated.height; ++y)
        for (int x = 0; x < annotated.width; ++x)
          if (is_red(annotated, x, y))
            left = std::min(left, x), top = std::min(top, y), right = std::max(right, x + 1),
            bottom = std::max(bottom, y + 1);
      write(text(R"({"images":[{"id":7,"file_name":"a.png","width":)", annotated.width, R"(,"height":)",
                 annotated.height, R"(}],"categories":[{"id":5,"name":"bar"}],"annotations":[)",
                 R"({"id":1,"image_id":7,"category_id":5,"bbox":[)", left, ",", top, ",", right - left, ",",
                 bottom - top, R"(],"segmentation":[[)", left, ",", top, ",", right, ",", top, ",", right,
                 ",", bottom, ",", left, ",", bottom, "]]}]}"));
      const auto source = open_source({.path = folder_.string(), .val_share = 0}, Split::train);
      const ObjectLabels& labels = require_objects(*source, "test");
      for (const bool apply_exif : {true, false}) {
        const RawSample sample = source->read(0);
        const Image image = decode_sample(sample, {.apply_exif = apply_exif});
        if (apply_exif) {
          EXPECT_EQ(image.pixels, shown.pixels) << orientation;
        }
        if (!apply_exif && orientation < 5) continue;
        const SeenObjects seen = labels.seen(0, {.apply_exif = apply_exif});
        EXPECT_EQ(seen.extent, (Extent{image.height, image.width}));
        const Instance& box = seen.objects[0].box;
        EXPECT_EQ((box.right - box.left) * (box.bottom - box.top), 250) << orientation;
        EXPECT_TRUE(is_red(image, box.left, box.top) && is_red(image, box.right - 1, box.bottom - 1));
        const Rectangle outline = box_of_outline(seen.objects[0].outline);
        EXPECT_EQ(outline.left, box.left);
        EXPECT_EQ(outline.bottom, box.bottom);
        if (apply_exif) {
          EXPECT_EQ(sample.annotation.instances[0].left, box.left);
        }
      }
    }
}

// Python's json module writes these.
TEST_F(CocoFiles, BoxesThatAreNoNumbersAreDroppedAndCounted) {
  const CocoFile read = read_coco(write(file(
      R"({"id":1,"image_id":7,"category_id":5,"bbox":[NaN,2,3,4]},{"id":2,"image_id":7,"category_id":5,"bbox":[1,2,Infinity,4]},)"
      R"({"id":3,"image_id":7,"category_id":5,"bbox":[1,2,3,-Infinity]},)"
      R"({"id":4,"image_id":7,"category_id":5,"bbox":[1,2,3,4],"area":NaN})")));
  ASSERT_EQ(read.annotations.size(), 1u);
  EXPECT_EQ(read.annotations[0].area, 12);
  EXPECT_EQ(read.dropped, (std::map<std::string, int64_t>{{"a box or polygon that is not of numbers", 3}}));
}

TEST_F(CocoFiles, ProblemsAreNamed) {
  const CocoFile read = read_coco(write(file(
      R"({"id":1,"image_id":8,"category_id":5,"bbox":[1,2,3,4]},{"id":1,"image_id":7,"category_id":6,"bbox":[1,2,3,4]})")));
  ASSERT_EQ(read.problems.size(), 2u);
  EXPECT_NE(read.problems[0].find("annotation number 1 occurs twice"), std::string::npos);
  EXPECT_NE(read.problems[1].find("category 6"), std::string::npos);
  EXPECT_TRUE(read.warnings.at(0).ends_with("1 object of images that are not in the list of images"));
  EXPECT_NE(error_of([&] { read_coco(write(file("{\"id\":1,"))); }).find("no JSON from byte"),
            std::string::npos);
  EXPECT_NE(error_of([&] { read_coco(write(R"({"images":[],"categories":[]})")); }).find("'annotations'"),
            std::string::npos);
  EXPECT_NE(error_of([&] { read_coco(write(file(R"({"id":1,"image_id":[7]})"))); }).find("image_id"),
            std::string::npos);
}

TEST_F(CocoFiles, ResultsComeBack) {
  const std::vector<CocoResult> results{{.image = 7,
                                         .category = 5,
                                         .score = 0.25,
                                         .box = {1, 2, 3, 4},
                                         .has_box = true,
                                         .mask = runs_of_box({1, 2, 3, 4}, 10, 20)}};
  const std::string path = (folder_ / "results.json").string();
  write_coco_results(path, results);
  const auto read = read_coco_results(path);
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].mask, results[0].mask);
  EXPECT_EQ(read[0].score, 0.25);
  write_coco_results(path, {});
  EXPECT_TRUE(read_coco_results(path).empty());
}

TEST_F(CocoFiles, AreASourceOfImages) {
  Image image(20, 10);
  for (const char* name : {"a.png", "b.png"})
    write_file_atomic((folder_ / "images" / name).string(), encode_image(image, name));
  write(file(
      R"({"id":1,"image_id":9,"category_id":5,"bbox":[1,2,3,4]},{"id":2,"image_id":9,"category_id":2,"bbox":[0,0,5,5],"iscrowd":1})"));
  const auto source = open_source({.path = folder_.string()}, Split::train);
  const ObjectLabels& labels = require_objects(*source, "test");
  EXPECT_EQ(labels.object_classes(), (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(labels.class_number(1), 5);
  EXPECT_FALSE(labels.has_outlines());
  int64_t objects = 0, boxes = 0;
  for (int64_t i = 0; i < source->size(); ++i) {
    objects += std::ssize(labels.objects(i));
    const RawSample sample = source->read(i);
    boxes += std::ssize(sample.annotation.instances);
    EXPECT_EQ(&labels.objects_of(sample.name), &labels.objects(i));
  }
  EXPECT_EQ(boxes, objects - (objects > 0));  // without the crowd
}

// As CVAT, Label Studio and Roboflow write them, with paths of another machine too.
TEST_F(CocoFiles, AreFoundInTheLayoutsOfOtherPrograms) {
  const std::string png = "tessera_layouts.png";
  const auto content = [](const std::string& name) {
    return R"({"images":[{"id":1,"file_name":")" + name +
           R"("}],"annotations":[{"id":1,"image_id":1,"category_id":2,"bbox":[1,2,3,4]}],)" +
           R"("categories":[{"id":0,"name":"all"},{"id":2,"name":"cat"}]})";
  };
  const std::pair<const char*, const char*> layouts[] = {
      {"annotations/instances_default.json", "images/a.png"},
      {"result.json", "images/a.png"},
      {"train/_annotations.coco.json", "train/a.png"},
      {"annotations/train.json", "train/a.png"}};
  for (const auto& [file, image] : layouts)
    for (const std::string& name : {std::string("a.png"), std::string(image),
                                    "/home/they/set/" + std::string(image), "C:/set/" + std::string(image)}) {
      const TemporaryFolder folder;
      folder.write(file, content(name)), folder.write(image, "");
      write_file_atomic(folder.path(image), encode_image(Image(20, 10), png));
      const auto source = open_source({.path = folder.path(), .val_share = 0}, Split::train);
      ASSERT_EQ(source->size(), 1) << file;
      EXPECT_EQ(source->read(0).annotation.instances.size(), 1u) << file << " " << name;
      // Roboflow's class of all classes has no objects.
      EXPECT_EQ(set_warnings(source.get(), nullptr),
                std::vector<std::string>{"class 0 ('all') has no training object"});
    }
  const TemporaryFolder folder;
  for (const char* split : {"train", "valid"}) {
    folder.write(text(split, "/_annotations.coco.json"), content("a.png"));
    folder.write(text(split, "/a.png"), "");
    write_file_atomic(folder.path(text(split, "/a.png")), encode_image(Image(20, 10), png));
  }
  for (const Split split : {Split::train, Split::validation})
    EXPECT_EQ(open_source({.path = folder.path()}, split)->size(), 1);
}

TEST_F(CocoFiles, NamesOfImagesWithEscapesOfUrlsOrWithoutSuffix) {
  for (const char* name : {"my%20a", "my%20a.png", "my a"}) {
    const TemporaryFolder folder;
    folder.write("annotations/instances_train.json", text(R"({"images":[{"id":1,"file_name":")", name,
                                                          R"(","width":20,"height":10}],"annotations":[],)",
                                                          R"("categories":[{"id":2,"name":"cat"}]})"));
    folder.write("images/my a.png", "");
    write_file_atomic(folder.path("images/my a.png"), encode_image(Image(20, 10), "a.png"));
    const auto source = open_source({.path = folder.path(), .val_share = 0}, Split::train);
    EXPECT_NO_THROW(source->read(0)) << name;
  }
}

TEST_F(CocoFiles, AValidationFileMayLackCategories) {
  const auto content = [](const std::string& categories) {
    return R"({"images":[{"id":7,"file_name":"a.png"}],"annotations":[{"id":1,"image_id":7,"category_id":5,)" +
           (R"("bbox":[1,2,3,4]}],"categories":[)" + categories + "]}");
  };
  const std::string cat = R"({"id":2,"name":"cat"})", dog = R"({"id":5,"name":"dog [\" x"})";
  SourceConfig config = {.path = write(content(cat + "," + dog)),
                         .val_path = write(content(dog), "instances_val.json")};
  const auto open = [&] {
    require_same_objects(*open_source(config, Split::train), *open_source(config, Split::validation));
  };
  EXPECT_NO_THROW(open());
  EXPECT_EQ(require_objects(*open_source(config, Split::validation), "test").objects(0).at(0).box.label, 1);
  // Another number for the name is another class.
  config.val_path = write(content(R"({"id":5,"name":"cat"})"), "instances_val.json");
  EXPECT_THROW(open(), Error);
}

// Reads a source of one image a.png of 24 x 10 pixels and returns the error, without the folder.
TEST_F(CocoFiles, SizesThatAreNotTheImagesAreNamed) {
  write_file_atomic((folder_ / "images" / "a.png").string(), encode_image(Image(24, 10), "a.png"));
  const auto refusal = [&](const std::string& size, const std::string& annotation) {
    write(R"({"images":[{"id":7,"file_name":"a.png")" + size + R"(}],"annotations":[)" + annotation +
          R"(],"categories":[{"id":5,"name":"dog"}]})");
    std::string line =
        error_of([&] { open_source({.path = folder_.string(), .val_share = 0}, Split::train)->read(0); });
    for (size_t at; (at = line.find(folder_.string())) != std::string::npos;)
      line.replace(at, folder_.string().size(), "DIR");
    return line;
  };
  EXPECT_EQ(refusal(R"(,"width":24,"height":10)", ""), "no error");
  EXPECT_EQ(refusal(R"(,"width":20,"height":10)", ""),
            "DIR/annotations/instances_train.json: image 7: 'width' and 'height' are 20x10 pixels, its image "
            "DIR/images/a.png has 24x10");
  EXPECT_EQ(refusal("", R"({"id":3,"image_id":7,"category_id":5,"bbox":[1,2,3,4],)"
                        R"("segmentation":{"size":[10,20],"counts":[100,100]}})"),
            "DIR/annotations/instances_train.json: annotation 3: the mask has 20x10 pixels, its image "
            "DIR/images/a.png has 24x10");
}

TEST_F(CocoFiles, TheFirstClassThatDiffersIsNamed) {
  const auto categories = [](const std::string& second) {
    return R"({"images":[{"id":7,"file_name":"a.png"}],"annotations":[],"categories":[{"id":1,"name":"dog"})" +
           second + "]}";
  };
  const std::string train = write(categories(R"(,{"id":2,"name":"cat"})")),
                    other = write(categories(R"(,{"id":3,"name":"cow"})"), "instances_other.json"),
                    fewer = write(categories(""), "instances_fewer.json");
  const auto open = [](const std::string& path) {
    return open_source({.path = path, .val_share = 0}, Split::train);
  };
  require_same_objects(*open(train), *open(train));
  EXPECT_NE(error_of([&] {
              require_same_objects(*open(train), *open(other));
            }).find("class 1 of the objects is 'cat' in COCO " + train),
            std::string::npos);
  EXPECT_NE(
      error_of([&] { require_same_objects(*open(train), *open(fewer)); }).find("but absent in COCO " + fewer),
      std::string::npos);
}

// Pillow's nearest of two pixels in seven: its sum of steps rounds the middle to the left.
TEST(ObjectViews, ResampleMasksAsPillow) {
  const Outline outline{.runs = runs_of_mask(std::vector<uint8_t>{1, 0}, 1, 2)};
  const ImageView view{
      .width = 2, .height = 1, .resized_width = 7, .resized_height = 1, .out_width = 7, .out_height = 1};
  EXPECT_EQ(mask_of_runs(outline_in_view(outline, view).runs), (std::vector<uint8_t>{1, 1, 1, 1, 0, 0, 0}));
}

// A view transforms a box and its outline alike.
TEST(Outlines, MoveWithTheImage) {
  RandomStream random(4, "outlines");
  for (int round = 0; round < 100; ++round) {
    ImageView view{.width = 40,
                   .height = 30,
                   .resized_width = static_cast<int>(random.integer(10, 90)),
                   .resized_height = static_cast<int>(random.integer(10, 90)),
                   .out_width = 32,
                   .out_height = 32,
                   .mirrored = random.chance(0.5)};
    view.left = crop_offset(view.resized_width, 32, random.uniform());
    view.top = crop_offset(view.resized_height, 32, random.uniform());
    const double x = random.uniform(0, 30), y = random.uniform(0, 20);
    const Outline outline{.polygons = {{x, y, x + 8, y, x + 8, y + 7, x, y + 7}}};
    const Rectangle seen = box_of_outline(outline_in_view(outline, view));
    double left = view.x(x), right = view.x(x + 8);
    if (left > right) std::swap(left, right);
    const auto cut = [](double v, int most) { return std::clamp(v, 0.0, static_cast<double>(most)); };
    const Rectangle want{cut(left, view.shown_width()), cut(view.y(y), view.shown_height()),
                         cut(right, view.shown_width()), cut(view.y(y + 7), view.shown_height())};
    if (want.right - want.left < 1e-9 || want.bottom - want.top < 1e-9) continue;
    for (const auto& [got, expected] : {std::pair{seen.left, want.left},
                                        {seen.top, want.top},
                                        {seen.right, want.right},
                                        {seen.bottom, want.bottom}})
      EXPECT_NEAR(got, expected, 1e-9);
  }
}

TEST(ShapesObjects, HaveTheBoxesOfTheirMasks) {
  const ShapesObjectsConfig config = parse_shapes_objects("shapes:task=detect,size=64,train=10");
  int64_t objects = 0;
  for (int64_t i = 0; i < 10; ++i) {
    const ShapesObjects drawn = draw_shapes_objects(config, Split::train, i);
    EXPECT_EQ(draw_shapes_objects(config, Split::train, i).image.pixels, drawn.image.pixels);
    for (const ObjectAnnotation& object : drawn.objects) {
      const RunBox box = bounds_of(object.outline.runs);
      EXPECT_EQ(box.left, object.box.left);
      EXPECT_EQ(box.top + box.height, object.box.bottom);
      EXPECT_GE(object.area, 16);
      ++objects;
    }
  }
  EXPECT_GT(objects, 20);
  EXPECT_THROW(parse_shapes_objects("shapes:task=detect,size=5"), Error);
}

TEST(ObjectTransform, FieldsHoldWhatIsSeen) {
  const std::shared_ptr<const Source> source =
      open_source({.path = "shapes:task=detect,size=96,train=8"}, Split::train);
  Preprocess preprocess{.size = 64, .crop = 1, .interpolation = "bilinear"};
  for (const bool jitter : {false, true}) {
    ObjectGeometry geometry{.training = true, .masks = true};
    if (jitter) geometry.jitter = {0.3, 2.0};
    const auto transform = make_object_transform(preprocess, geometry, source);
    for (int64_t i = 0; i < source->size(); ++i) {
      std::vector<float> image(3 * 64 * 64);
      std::vector<int64_t> extent(4);
      std::vector<std::byte> boxes, masks;
      const Slot slots[] = {{.data = reinterpret_cast<std::byte*>(image.data())},
                            {.data = reinterpret_cast<std::byte*>(extent.data())},
                            {.rows = &boxes},
                            {.rows = &masks}};
      RandomStream random(1, "test", static_cast<uint64_t>(i));
      transform->apply(source->read(i), random, slots);
      const size_t count = boxes.size() / (5 * sizeof(float));
      ASSERT_EQ(masks.size(), count * 64 * 64);
      const auto* box = reinterpret_cast<const float*>(boxes.data());
      for (size_t k = 0; k < count; ++k, box += 5) {
        EXPECT_TRUE(box[0] >= 0 && box[1] >= 0 && box[2] <= static_cast<float>(extent[1]) &&
                    box[3] <= static_cast<float>(extent[0]));
        for (int64_t y = 0; y < 64; ++y)
          for (int64_t x = 0; x < 64; ++x)
            if (masks[k * 4096 + static_cast<size_t>(y * 64 + x)] != std::byte{0}) {
              ASSERT_TRUE(static_cast<float>(x) >= box[0] && static_cast<float>(x) < box[2] &&
                          static_cast<float>(y) >= box[1] && static_cast<float>(y) < box[3]);
            }
      }
    }
  }
}

TEST(PublishedObjectClasses, CocoIsCountedInThreeWays) {
  const NumberedClasses things = published_object_classes(80), from_one = published_object_classes(90),
                        from_zero = published_object_classes(91);
  EXPECT_EQ(things.names.back(), "toothbrush");
  EXPECT_EQ(things.numbers.back(), 90);
  for (size_t k = 0; k < things.names.size(); ++k) {
    const auto number = static_cast<size_t>(things.numbers[k]);
    EXPECT_EQ(from_one.names[number - 1], things.names[k]);
    EXPECT_EQ(from_zero.names[number], things.names[k]);
    EXPECT_EQ(from_zero.numbers[number], things.numbers[k]);
  }
  for (const NumberedClasses& each : {things, from_one, from_zero, published_object_classes(7)}) {
    const std::set<std::string> distinct(each.names.begin(), each.names.end());
    EXPECT_EQ(distinct.size(), each.numbers.size());
  }
}

}  // namespace
}  // namespace tessera::data
