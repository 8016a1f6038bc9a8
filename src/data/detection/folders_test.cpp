// Sets of objects in the folders of other programs: labelme's JSON files, a mask file for each object, YOLO's splits.
#include <gtest/gtest.h>

#include "core/text.h"
#include "data/base/data_testing.h"
#include "data/base/objects.h"
#include "io/files/file.h"
#include "io/images/image.h"

namespace tessera::data {
namespace {

using Names = std::vector<std::string>;

class ObjectFolders : public testing::Test {
 protected:
  void add_image(const std::string& name) const { put(name, Image(40, 20)); }
  void put(const std::string& name, const Image& image) const {
    write_file_atomic(folder_.write(name, ""), encode_png(image));
  }
  // Writes a JSON file next to its image.
  void add_labelme(const std::string& stem, const std::string& shapes) const {
    add_image(stem + ".png");
    const std::string name = stem.substr(stem.rfind('/') + 1);
    folder_.write(stem + ".json", R"({"version": "5.4.1", "flags": {}, "shapes": [)" + shapes +
                                      R"(], "imagePath": ")" + name + R"(.png", "imageData": null})");
  }
  std::unique_ptr<Source> open(const SourceConfig& config, Split split = Split::train) const {
    return open_source(config, split);
  }
  SourceConfig config(const std::string& name = "set") const {
    return {.path = folder_.path(name), .val_share = 0};
  }
  std::string error(const SourceConfig& of) const {
    return error_of([&] { open(of); }, &folder_);
  }
  TemporaryFolder folder_;
};

std::string shape(const std::string& label, const std::string& points, const std::string& more = "") {
  return R"({"label": ")" + label + R"(", "points": )" + points + more + "}";
}

std::string box_text(const ObjectAnnotation& object) {
  return text(object.box.label, ": ", object.box.left, " ", object.box.top, " ", object.box.right, " ",
              object.box.bottom);
}

TEST_F(ObjectFolders, ShapesOfLabelmeAreObjects) {
  add_labelme("set/a",
              shape("dog", "[[4, 2], [14, 2], [14, 12]]", R"(, "shape_type": "polygon")") + "," +
                  shape("cat", "[[30, 15], [20, 5]]", R"(, "shape_type": "rectangle", "group_id": null)") +
                  "," + shape("cat", "[[10, 10], [10, 14]]", R"(, "shape_type": "circle")") + "," +
                  shape("cat", "[[1, 1]]", R"(, "shape_type": "point")"));
  add_labelme("set/b", shape("dog", "[[0, 0], [4, 0], [4, 4]]", R"(, "group_id": 1)") + "," +
                           shape("dog", "[[20, 10], [24, 10], [24, 14]]", R"(, "group_id": 1)"));
  add_image("set/c.png");
  EXPECT_EQ(source_kind(folder_.path("set")), "labelme");
  const auto source = open(config());
  ASSERT_EQ(source->size(), 2);
  const ObjectLabels& labels = *object_labels(*source);
  EXPECT_EQ(labels.object_classes(), (Names{"cat", "dog"}));
  ASSERT_EQ(labels.objects(0).size(), 3u);
  EXPECT_EQ(box_text(labels.objects(0)[0]), "1: 4 2 14 12");
  EXPECT_EQ(box_text(labels.objects(0)[1]), "0: 20 5 30 15");
  EXPECT_EQ(box_text(labels.objects(0)[2]), "0: 6 6 14 14");
  ASSERT_EQ(labels.objects(1).size(), 1u);
  EXPECT_EQ(box_text(labels.objects(1)[0]), "1: 0 0 24 14");
  EXPECT_EQ(labels.objects(1)[0].outline.polygons.size(), 2u);
  EXPECT_EQ(source->warnings(), (Names{folder_.path("set") + ": left out 1 shape of type point",
                                       folder_.path("set") + ": left out 1 image without a JSON file"}));
}

TEST_F(ObjectFolders, SplitsOfLabelmeHaveTheClassesOfBoth) {
  add_labelme("set/train/a", shape("dog", "[[4, 2], [14, 2], [14, 12]]"));
  add_labelme("set/val/b", shape("ant", "[[4, 2], [14, 2], [14, 12]]"));
  const auto train = open(config()), held_out = open(config(), Split::validation);
  EXPECT_EQ(train->size(), 1);
  EXPECT_EQ(object_labels(*train)->object_classes(), (Names{"ant", "dog"}));
  EXPECT_EQ(object_labels(*held_out)->objects(0)[0].box.label, 0);
  // The images may be in a folder of their own.
  add_image("apart/images/a.png");
  folder_.write("apart/labels/a.json", R"({"flags": {}, "shapes": [], "imagePath": "C:\\photos\\a.png"})");
  EXPECT_EQ(open(config("apart"))->size(), 1);
  folder_.write("set/labels.txt", "__ignore__\n_background_\ndog\n");
  EXPECT_EQ(error_of([&] { open(config(), Split::validation); }, &folder_),
            "DIR/set/val/b.json: the label 'ant' is no class of the list");
}

TEST_F(ObjectFolders, FaultsOfLabelmeNameTheShape) {
  add_labelme("set/a", shape("dog", "[[4, 2], [14, 2], [14, 1e999]]"));
  EXPECT_TRUE(error(config()).starts_with("DIR/set/a.json")) << error(config());
  add_labelme("set/a", shape("dog", R"([[4, 2], [14, 2], [14, "x"]])"));
  EXPECT_EQ(error(config()), "DIR/set/a.json: shape 0: a point has \"x\", must be two numbers, x and y");
  add_labelme("set/a", shape(" ", "[[4, 2], [14, 2], [14, 3]]"));
  EXPECT_EQ(error(config()), "DIR/set/a.json: shape 0 has no 'label', the class of an object");
  std::string circles;
  for (int i = 0; i < 1100; ++i)
    circles += (i ? "," : "") + shape("dog", "[[0, 0], [1e6, 0]]", R"(, "shape_type": "circle")");
  add_labelme("set/a", circles);
  EXPECT_NE(error(config()).find("the circles of a file may have at most 1000000 corners"), std::string::npos)
      << error(config());
  add_labelme("set/a", "");
  std::filesystem::rename(folder_.path("set/a.png"), folder_.path("set/b.png"));
  EXPECT_EQ(error(config()), "DIR/set/a.json: its image 'a.png' is not next to it");
}

TEST_F(ObjectFolders, AMaskFileIsAnObject) {
  Image mask(40, 20);
  for (int x = 5; x < 9; ++x) mask.row(3)[3 * x] = 255;
  for (const std::string id : {"one", "two"}) {
    add_image("set/stage1_train/" + id + "/images/" + id + ".png");
    put("set/stage1_train/" + id + "/masks/m.png", mask),
        put("set/stage1_train/" + id + "/masks/none.png", Image(40, 20));
  }
  add_image("set/stage1_test/three/images/three.png");
  EXPECT_EQ(source_kind(folder_.path("set")), "mask files");
  const auto source = open(config());
  ASSERT_EQ(source->size(), 2);
  const ObjectLabels& labels = *object_labels(*source);
  ASSERT_EQ(labels.objects(1).size(), 1u);
  EXPECT_EQ(box_text(labels.objects(1)[0]), "0: 5 3 9 4");
  EXPECT_EQ(labels.left_out(),
            Names{folder_.path("set/stage1_train") + ": left out 2 objects with an empty mask"});
  EXPECT_EQ(labels.object_classes(), Names{"object"});
  put("set/stage1_train/one/masks/m.png", Image(8, 8));
  EXPECT_EQ(error(config()),
            "DIR/set/stage1_train/one/masks/m.png: the mask has 8x8 pixels, its image 40x20");
}

TEST_F(ObjectFolders, SplitsOfYoloNeedNoYaml) {
  add_image("set/train/images/a.png"), add_image("set/train/images/b.png");
  add_image("set/valid/images/c.png");
  folder_.write("set/train/labels/a.txt", "1 0.5 0.5 0.5 0.5\n"), folder_.write("set/train/labels/b.txt", "");
  folder_.write("set/valid/labels/c.txt", "0 0.5 0.5 0.5 0.5\n"), folder_.write("set/classes.txt", "x\ny\n");
  EXPECT_EQ(source_kind(folder_.path("set")), "YOLO");
  const auto train = open(config()), held_out = open(config(), Split::validation);
  ASSERT_EQ(train->size(), 2);
  EXPECT_EQ(box_text(object_labels(*train)->objects(0)[0]), "1: 10 5 30 15");
  ASSERT_EQ(held_out->size(), 1);
  EXPECT_TRUE(train->warnings().empty());
  std::filesystem::rename(folder_.path("set/classes.txt"), folder_.path("set/train/classes.txt"));
  EXPECT_EQ(open(config())->size(), 2);
}

TEST_F(ObjectFolders, YoloWithoutAListHasNumbersAsClasses) {
  for (const std::string form : {"train/images", "images/train", "images"}) {
    std::filesystem::remove_all(folder_.path("set"));
    std::string labels = form, held_out = form;
    labels.replace(labels.find("images"), 6, "labels");
    if (form != "images") held_out.replace(held_out.find("train"), 5, "val");
    add_image("set/" + form + "/a.png"), add_image("set/" + held_out + "/b.png");
    folder_.write("set/" + labels + "/a.txt", "7 0.5 0.5 0.5 0.5\n");
    std::string other = held_out;
    other.replace(other.find("images"), 6, "labels");
    folder_.write("set/" + other + "/b.txt", "\n2.0 0.5 0.5 0.5 0.5\n");
    EXPECT_EQ(source_kind(folder_.path("set")), "YOLO") << form;
    SourceConfig set = config();
    set.val_share = 0;
    const auto source = open(set);
    EXPECT_EQ(object_labels(*source)->object_classes(), (Names{"2", "7"})) << form;
    EXPECT_EQ(box_text(object_labels(*source)->objects(0)[0]), "1: 10 5 30 15");
    const std::string root = folder_.path("set");
    EXPECT_EQ(source->warnings().front(),
              root + ": no list of classes, so they are called by their numbers 2, 7: put their names into " +
                  root + "/classes.txt, one a line");
    folder_.write("names", "a\nb\nc\nd\ne\nf\ng\nh\n");
    set.class_names = folder_.path("names");
    EXPECT_EQ(object_labels(*open(set))->object_classes().size(), 8u);
  }
  std::filesystem::remove(folder_.path("set/labels/b.txt"));
  add_image("other/images/a.png"), folder_.write("other/labels/a.txt", "2 0.5 0.5 0.5 0.5\n");
  add_image("set/images/b.png"), folder_.write("set/labels/b.txt", "2 0.5 0.5 0.5 0.5\n");
  SourceConfig apart = config();
  apart.val_path = folder_.path("other");
  EXPECT_EQ(object_labels(*open(apart, Split::validation))->object_classes(), (Names{"2", "7"}));
  folder_.write("set/data.yaml", "train: images\nnames: {2: x, 7: y}\n");
  EXPECT_EQ(object_labels(*open(apart, Split::validation))->object_classes(), (Names{"x", "y"}));
  std::filesystem::remove(folder_.path("set/data.yaml"));
  folder_.write("set/labels/a.txt", "a red star\n"), folder_.write("set/labels/b.txt", "");
  EXPECT_EQ(source_kind(folder_.path("set")), "ImageFolder");
  folder_.write("set/data.yaml", "train: images\nnc: 2\n");
  EXPECT_EQ(error(config()), "DIR/set/data.yaml has no 'names', the list of classes");
}

}  // namespace
}  // namespace tessera::data
