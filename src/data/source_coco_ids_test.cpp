// Ids of COCO's files that are texts, images listed twice, and annotations of other images.
#include <gtest/gtest.h>

#include "data/base/data_testing.h"
#include "data/base/objects.h"
#include "data/base/source_kinds.h"
#include "data/sources/coco_file.h"
#include "io/images/image.h"

namespace tessera::data {
namespace {

std::string box_of(const std::string& id, const std::string& image, const std::string& category) {
  return R"({"id": )" + id + R"(, "image_id": )" + image + R"(, "category_id": )" + category +
         R"(, "bbox": [1, 2, 3, 4]})";
}

std::string coco(const std::string& images, const std::string& annotations, const std::string& categories) {
  return R"({"annotations": [)" + annotations + R"(], "images": [)" + images + R"(], "categories": [)" +
         categories + "]}";
}

std::string image(const std::string& id, const std::string& file) {
  return R"({"id": )" + id + R"(, "file_name": ")" + file + R"(", "width": 9, "height": 9})";
}

TEST(CocoIds, MayBeTexts) {
  const TemporaryFolder folder;
  const std::string cats = R"({"id": "dog", "name": "a dog"}, {"id": "cat", "name": "a cat"})";
  const std::string path = folder.write(
      "t.json",
      coco(image(R"("x1")", "a.png") + "," + image(R"("x2")", "b.png"),
           box_of(R"("p")", R"("x2")", R"("cat")") + "," + box_of(R"("q")", R"("x1")", R"("dog")"), cats));
  const auto source = open_source({.path = path, .val_path = path}, Split::train);
  const ObjectLabels& labels = *object_labels(*source);
  EXPECT_EQ(labels.object_classes(), (std::vector<std::string>{"a dog", "a cat"}));
  EXPECT_EQ(labels.objects(0).at(0).box.label, 0);
  EXPECT_EQ(labels.objects(1).at(0).box.label, 1);
  EXPECT_EQ(source->warnings(), std::vector<std::string>{
                                    path + ": the ids of images are no numbers: results number them from 1"});
  // "000007" is the number 7, wherever.
  const CocoFile padded =
      read_coco(folder.write("n.json", coco(image(R"("000007")", "a.png"), box_of("1", "7", R"("2")"),
                                            R"({"id": 2, "name": "cat"})")));
  EXPECT_EQ(padded.images.at(0).number, 7);
  EXPECT_EQ(padded.annotations.size(), 1u);
  EXPECT_TRUE(padded.warnings.empty());
  const std::string mixed = folder.write("m.json", coco(image("7", "a.png") + "," + image(R"("x")", "b.png"),
                                                        "", R"({"id": 2, "name": "cat"})"));
  EXPECT_EQ(error_of([&] { read_coco(mixed); }, &folder),
            "DIR/m.json: image 1: 'id' is 'x', others are numbers");
}

// Written on a system that ignores capitals.
TEST(CocoIds, ImagesMayHaveAnotherSuffix) {
  const TemporaryFolder folder;
  const auto png = encode_png(Image(9, 9));
  const std::string bytes(reinterpret_cast<const char*>(png.data()), png.size());
  folder.write("a.jpg", bytes), folder.write("b.jpeg", bytes);
  const std::string objects =
      folder.write("o.json", coco(image("1", "a.JPG") + "," + image("2", "b.jpg"), box_of("1", "2", "2"),
                                  R"({"id": 2, "name": "cat"})"));
  const std::string captions = folder.write(
      "c.json",
      R"({"images": [{"id": 1, "file_name": "a.JPG"}, {"id": 2, "file_name": "b.jpg"}], "annotations": [)"
      R"({"id": 1, "image_id": 1, "caption": "a cat"}, {"id": 2, "image_id": 2, "caption": "a dog"}]})");
  for (const std::string& path : {objects, captions}) {
    const auto source = open_source({.path = path, .val_path = path}, Split::train);
    EXPECT_EQ(source->read(0).name, folder.path("a.jpg"));
    EXPECT_EQ(source->read(1).name, folder.path("b.jpeg"));
    ASSERT_EQ(source->warnings().size(), 1u) << path;
    EXPECT_TRUE(source->warnings()[0].starts_with(path + ": the image 'a.JPG' does not exist; 'a.jpg' of "))
        << source->warnings()[0];
  }
}

TEST(CocoIds, ImagesListedTwiceAreOne) {
  const TemporaryFolder folder;
  const CocoFile read = read_coco(folder.write(
      "t.json", coco(image("1", "a.png") + "," + image("1", "a.png") + "," + image("5", "b.png") + "," +
                         image("6", "b.png"),
                     box_of("1", "1", "2") + "," + box_of("2", "5", "2") + "," + box_of("3", "6", "2"),
                     R"({"id": 2, "name": "cat"})")));
  ASSERT_EQ(read.images.size(), 2u);
  ASSERT_EQ(read.annotations.size(), 3u);
  EXPECT_EQ(read.annotations[2].image, 5);
  EXPECT_TRUE(read.problems.empty());
  EXPECT_EQ(read.warnings,
            std::vector<std::string>{folder.path("t.json") +
                                     ": 2 images listed more than once, merged with all annotations"});
  const CocoFile other = read_coco(folder.write(
      "o.json", coco(image("1", "a.png") + "," + image("1", "b.png"), "", R"({"id": 2, "name": "cat"})")));
  ASSERT_EQ(other.problems.size(), 1u);
  EXPECT_NE(other.problems[0].find("the image number 1 occurs twice"), std::string::npos);
}

TEST(CocoIds, AnnotationsOfOtherImagesAreCounted) {
  const TemporaryFolder folder;
  const std::string cat = R"({"id": 2, "name": "cat"})";
  const auto source = open_source(
      {.path = folder.write(
           "t.json", coco(image("1", "a.png"), box_of("1", "1", "2") + "," + box_of("2", "9", "2"), cat)),
       .val_share = 0},
      Split::train);
  EXPECT_EQ(source->warnings(),
            std::vector<std::string>{folder.path("t.json") +
                                     ": left out 1 object of images that are not in the list of images"});
  EXPECT_TRUE(object_labels(*source)->left_out().empty());  // as in pycocotools, no problem of the set
  const std::string none = folder.write("n.json", coco(image("1", "a.png"), box_of("2", "9", "2"), cat));
  EXPECT_EQ(error_of([&] { open_source({.path = none}, Split::train); }, &folder),
            "DIR/n.json: no annotation is of an image in the list of images");
}

}  // namespace
}  // namespace tessera::data
