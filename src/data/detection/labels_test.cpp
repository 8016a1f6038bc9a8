// Label files of Pascal VOC and YOLO, from text to the objects of a source.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/text.h"
#include "data/base/data_testing.h"
#include "data/base/objects.h"
#include "data/detection/label_parsers.h"
#include "io/files/file.h"
#include "io/images/image.h"

namespace tessera::data {
namespace {

constexpr int kWidth = 40, kHeight = 25;

struct Box {
  int left, top, right, bottom;  // [left, right) x [top, bottom)
  int label;
  bool operator==(const Box&) const = default;
};
using Boxes = std::vector<Box>;

const std::vector<std::string> kNames = {"cat", "dog", "owl"};

class LabelFiles : public testing::Test {
 protected:
  void add_image(const std::string& name, int width = kWidth, int height = kHeight) {
    const std::string path = folder_.write(name, "");
    write_file_atomic(path, encode_png(Image(width, height, 3)));
  }
  std::string path(const std::string& name = "") const { return folder_.path(name); }
  std::string error(const SourceConfig& config, Split split = Split::train) const {
    return error_of([&] { open_source(config, split); }, &folder_);
  }
  std::string voc_error(const std::string& xml) {
    folder_.write("voc/Annotations/a.xml", xml);
    add_image("voc/JPEGImages/a.png");
    return error({.path = path("voc"), .val_share = 0});
  }
  std::string yolo_error(const std::string& line) {
    folder_.write("yolo/data.yaml", "train: images\nnames: [cat, dog, owl]\n");
    folder_.write("yolo/labels/a.txt", "0 0.5 0.5 0.5 0.5\n\n" + line + "\n");
    add_image("yolo/images/a.png");
    return error({.path = path("yolo"), .val_share = 0});
  }
  TemporaryFolder folder_;
};

std::string voc_object(const std::string& name, int left, int top, int right, int bottom,
                       const std::string& more = "") {
  return text("<object>\n<name>", name, "</name>", more, "<bndbox><xmin>", left, "</xmin><ymin>", top,
              "</ymin><xmax>", right, "</xmax><ymax>", bottom, "</ymax></bndbox></object>\n");
}

std::string voc_file(const std::string& objects) {
  return text(
      "<?xml version=\"1.0\"?>\n<!-- a & b -->\n<annotation verified=\"yes > "
      "no\"><filename>x.png</filename><size><width>",
      kWidth, "</width><height>", kHeight, "</height><depth>3</depth></size>\n", objects, "</annotation>\n");
}

std::string voc_text(const Boxes& boxes) {
  std::string objects;
  for (const Box& b : boxes)
    objects += voc_object(kNames[static_cast<size_t>(b.label)], b.left + 1, b.top + 1, b.right, b.bottom);
  return voc_file(objects);
}

std::string yolo_text(const Boxes& boxes) {
  std::string lines;
  for (const Box& b : boxes)
    lines +=
        text(b.label, " ", shortest((b.left + b.right) / 2.0 / kWidth), " ",
             shortest((b.top + b.bottom) / 2.0 / kHeight), "\t", shortest(double(b.right - b.left) / kWidth),
             " ", shortest(double(b.bottom - b.top) / kHeight), "\r\n");
  return lines;
}

Boxes boxes_of(const Source& source, int64_t index) {
  Boxes boxes;
  for (const ObjectAnnotation& object : object_labels(source)->objects(index)) {
    const Instance& b = object.box;
    const Box whole = {static_cast<int>(std::lround(b.left)), static_cast<int>(std::lround(b.top)),
                       static_cast<int>(std::lround(b.right)), static_cast<int>(std::lround(b.bottom)),
                       static_cast<int>(b.label)};
    EXPECT_NEAR(b.left, whole.left, 1e-9);  // shares are rounded to a double
    EXPECT_NEAR(b.bottom, whole.bottom, 1e-9);
    boxes.push_back(whole);
  }
  return boxes;
}

TEST_F(LabelFiles, BothFormsGiveTheBoxesThatWereWritten) {
  std::mt19937 random(7);
  const auto below = [&](int end) { return static_cast<int>(random() % static_cast<unsigned>(end)); };
  std::vector<Boxes> all;
  std::string list;
  for (int i = 0; i < 30; ++i) {
    Boxes boxes;
    for (int k = i == 0 ? 3 : below(5); k > 0; --k) {
      const int left = below(kWidth), top = below(kHeight);
      boxes.push_back({left, top, left + 1 + below(kWidth - left), top + 1 + below(kHeight - top),
                       i == 0 ? k - 1 : below(3)});
    }
    const std::string name = text("i", 100 + i);
    all.push_back(boxes);
    list += name + (i % 2 == 0 ? " 1\n" : " -1\n");
    add_image("voc/JPEGImages/" + name + ".png");
    add_image("yolo/images/train/" + name + ".png");
    folder_.write("voc/Annotations/" + name + ".xml", voc_text(boxes));
    folder_.write("yolo/labels/train/" + name + ".txt", yolo_text(boxes));
  }
  folder_.write("voc/ImageSets/Main/train.txt", list);
  folder_.write("yolo/classes.txt", "cat\ndog\nowl\n");
  for (const std::string kind : {"voc", "yolo"}) {
    const auto source = open_source({.path = path(kind), .val_share = 0}, Split::train);
    EXPECT_EQ(source_kind(path(kind)), kind == "voc" ? "Pascal VOC" : "YOLO");
    ASSERT_EQ(source->size(), 30) << kind;
    EXPECT_EQ(object_labels(*source)->object_classes(), kNames);
    for (int64_t i = 0; i < 30; ++i) {
      EXPECT_EQ(boxes_of(*source, i), all[static_cast<size_t>(i)]) << kind << " " << i;
      EXPECT_EQ(source->read(i).annotation.instances.size(), all[static_cast<size_t>(i)].size());
      EXPECT_EQ(object_labels(*source)->image_extent(i), (Extent{kHeight, kWidth}));
    }
  }
}

TEST_F(LabelFiles, DifficultObjectsOfVocAreCrowdsAndPartsAreNoObjects) {
  add_image("JPEGImages/a.png");
  add_image("JPEGImages/b.png");
  folder_.write(
      "Annotations/a.xml",
      voc_file(voc_object("dog", 1, 1, 9, 9, "<difficult>1</difficult>") +
               voc_object(
                   "R&amp;D", 1, 1, 9, 9,
                   "<difficult>0</difficult><part><name>head</name><bndbox><xmin>1</xmin></bndbox></part>")));
  folder_.write("Annotations/b.xml", "<annotation>" + voc_object("cat", 0, 1, kWidth, 2) +
                                         voc_object("cat", kWidth + 1, 1, kWidth + 3, 2) + "</annotation>");
  folder_.write("ImageSets/Main/train.txt", "a\n");
  folder_.write("ImageSets/Main/val.txt", "b\n");
  const auto train = open_source({.path = path()}, Split::train),
             held_out = open_source({.path = path()}, Split::validation);
  const auto& objects = object_labels(*train)->objects(0);
  ASSERT_EQ(objects.size(), 2u);
  EXPECT_TRUE(objects[0].crowd);
  EXPECT_FALSE(objects[1].crowd);
  EXPECT_EQ(train->read(0).annotation.instances.size(), 1u);
  // The classes are those of both splits, in the order of their names.
  EXPECT_EQ(object_labels(*train)->object_classes(), (std::vector<std::string>{"R&D", "cat", "dog"}));
  EXPECT_NO_THROW(require_same_objects(*train, *held_out));
  // A size that is missing is measured; a box outside of it is counted, one that overhangs is kept.
  EXPECT_EQ(boxes_of(*held_out, 0), (Boxes{{-1, 0, kWidth, 2, 1}}));
  ASSERT_EQ(object_labels(*held_out)->left_out().size(), 1u);
  EXPECT_NE(object_labels(*held_out)->left_out()[0].find("1 object with a box outside of its image"),
            std::string::npos);
}

TEST_F(LabelFiles, FaultsOfVocHaveTheirLine) {
  const std::string good = voc_object("dog", 1, 1, 9, 9);
  const auto expect = [&](const std::string& xml, const std::string& line) {
    EXPECT_EQ(voc_error(xml), line);
  };
  expect(voc_file(good + voc_object("dog", 9, 1, 8, 9)),
         "DIR/voc/Annotations/a.xml line 7: <bndbox> has no pixel: xmax and ymax must be at least xmin and "
         "ymin");
  expect(voc_file("<object>\n<name>dog</name></object>"),
         "DIR/voc/Annotations/a.xml line 4: <object> has no <bndbox>");
  expect(voc_file("<object><name> </name></object>"),
         "DIR/voc/Annotations/a.xml line 4: <name> is empty, must be the class of an object");
  expect(voc_file("<object>\n<name>dog</name><bndbox>\n<xmin>nan</xmin></bndbox></object>"),
         "DIR/voc/Annotations/a.xml line 6: <xmin> is 'nan', must be a number");
  expect("<annotation>\n" + good, "DIR/voc/Annotations/a.xml line 3: ends inside an element");
  expect("<annotation>\n</annotations>",
         "DIR/voc/Annotations/a.xml line 2: </annotations> ends <annotation> of line 1");
  expect("<html></html>", "DIR/voc/Annotations/a.xml line 1: the root is <html>, must be <annotation>");
  expect("<!DOCTYPE a [<!ENTITY b 'c'>]><annotation/>",
         "DIR/voc/Annotations/a.xml line 1: a document type is not supported, only elements");
  expect("<annotation>&b;</annotation>",
         "DIR/voc/Annotations/a.xml line 1: '&b;' is no entity of XML's own five");
  folder_.write("voc/ImageSets/Main/train.txt", "a\nb\na\n");
  const auto lines =
      open_source_with_problems({.path = path("voc"), .val_share = 0}, Split::train)->problems();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], path("voc/ImageSets/Main/train.txt line 3: repeats the image 'a'"));
  EXPECT_TRUE(lines[2].starts_with(
      path("voc/ImageSets/Main/train.txt line 2: the image has no file of annotations ")));
}

TEST_F(LabelFiles, VocOfOtherPrograms) {
  add_image("voc/JPEGImages/a.png");
  const auto read = [&](const std::string& name, const std::string& more = "",
                        const std::string& declared = "") {
    std::string xml = voc_file(voc_object(name, 3, 4, 20, 21, more));
    if (!declared.empty()) xml.replace(xml.find("?>"), 0, " encoding='" + declared + "'");
    folder_.write("voc/Annotations/a.xml", xml);
    return open_source({.path = path("voc"), .val_share = 0}, Split::train);
  };
  const auto name_of = [](const std::unique_ptr<Source>& source) {
    return object_labels(*source)->object_classes()[0];
  };
  EXPECT_EQ(name_of(read("caf\xC3\xA9", "", "UTF-8")), "caf\u00e9");
  EXPECT_EQ(name_of(read("caf\xE9", "", "ISO-8859-1")), "caf\u00e9");
  EXPECT_EQ(name_of(read("caf\xE9", "", "latin1")), "caf\u00e9");
  EXPECT_EQ(name_of(read("caf\xC3\xA9", "", "ISO-8859-1")),
            "caf\u00e9");  // UTF-8 in spite of its declaration
  EXPECT_EQ(name_of(read("cat", "", "GB2312")), "cat");
  folder_.write("voc/Annotations/a.xml", "<?xml version='1.0' encoding=?>");
  EXPECT_NE(error_of([&] { open_source({.path = path("voc"), .val_share = 0}, Split::train); }), "no error");
  // In GB2312 these bytes are one letter, in UTF-8 another.
  EXPECT_EQ(error_of([&] { read("\xC3\xA8", "", "GB2312"); }, &folder_),
            "DIR/voc/Annotations/a.xml is text in gb2312, must be UTF-8, UTF-16 or ISO-8859-1");
  const auto crowd = [](const std::unique_ptr<Source>& source) {
    return object_labels(*source)->objects(0)[0].crowd;
  };
  EXPECT_FALSE(crowd(read("cat", "<difficult>Unspecified</difficult>")));
  EXPECT_FALSE(crowd(read("cat", "<difficult>False</difficult>")));
  EXPECT_TRUE(crowd(read("cat", "<difficult>true</difficult>")));
  folder_.write("voc/Annotations/a.xml",
                "<annotation><object><name>cat</name><bndbox><xmin>3,5</xmin><ymin>4</ymin><xmax>20,25</xmax>"
                "<ymax>21</ymax></bndbox></object></annotation>");
  const auto commas = open_source({.path = path("voc"), .val_share = 0}, Split::train);
  EXPECT_EQ(object_labels(*commas)->objects(0)[0].box.left, 2.5);
  EXPECT_EQ(object_labels(*commas)->objects(0)[0].box.right, 20.25);
}

// LVIS names images by their address alone.
TEST_F(LabelFiles, CocoOfOtherPrograms) {
  add_image("train2017/1.png");
  folder_.write("annotations/lvis_v1_train.json",
                R"({"images": [{"id": 1, "coco_url": "http://images.cocodataset.org/train2017/1.png"}],
                    "categories": [{"id": 3, "name": "cat"}], "annotations": [
                    {"id": 1, "image_id": 1, "category_id": 3, "bbox": ["2.0", "3", "10.5", 8]},
                    {"id": 2, "image_id": 1, "category_id": 3, "keypoints": [1, 1, 2], "num_keypoints": 1}]})");
  const auto source =
      open_source({.path = path("annotations/lvis_v1_train.json"), .val_share = 0}, Split::train);
  EXPECT_EQ(source->read(0).name, path("train2017/1.png"));
  ASSERT_EQ(object_labels(*source)->objects(0).size(), 1u);
  EXPECT_EQ(object_labels(*source)->objects(0)[0].box.right, 12.5);
  EXPECT_TRUE(source->describe().ends_with("left out: 1 object with neither a box nor an outline"));
}

TEST_F(LabelFiles, XmlIsNestedNoDeeperThanItsBound) {
  std::string deep, ends;
  for (int i = 0; i < 17; ++i) deep += "<a>", ends += "</a>";
  EXPECT_EQ(error_of([&] { parse_xml(deep + ends, "deep.xml"); }),
            "deep.xml line 1: elements are nested deeper than 16");
  for (size_t cut = 0; cut < 40; ++cut)  // any prefix of a file is an error, not a crash
    EXPECT_THROW(parse_xml(voc_text({{1, 2, 3, 4, 0}}).substr(0, cut), "cut.xml"), Error) << cut;
}

TEST_F(LabelFiles, NamesOfYoloHaveManyForms) {
  for (const std::string form :
       {"names: [cat, dog, owl]", "names: ['cat', \"dog\", owl,]  # three", "names:\n- cat\n- 'dog'\n- owl",
        "names:\n  - cat # a\n  - dog\n\n  - owl", "names:\n  0: cat\n  1: dog\n  2: owl",
        "names: {0: cat, 2: owl, 1: dog}", "names: [cat,\n  dog,\n  owl]\nnc: 3",
        "download: |\n  a: [b\n  import: x\nnames: [cat, dog, owl]"}) {
    const YoloYaml read = parse_yolo_yaml("train: a/b  # c\n" + form + "\nval: '../v'\n", "d.yaml");
    EXPECT_EQ(read.classes.names, kNames) << form;
    EXPECT_EQ(read.classes.numbers, (std::vector<int64_t>{0, 1, 2})) << form;
    EXPECT_EQ(read.train.at(0).value, "a/b");
    EXPECT_EQ(read.val.at(0).value, "../v");
  }
  const std::vector<std::pair<std::string, std::string>> faults = {
      {"nc: 2\nnames: [cat, dog, owl]", "d.yaml line 1: 'nc' is 2, but 'names' has 3 classes"},
      {"names: [cat, cat]", "d.yaml line 1: 'names' repeats the class 'cat'"},
      {"a: 1\nnames: [cat, dog", "d.yaml line 2: the list of 'names' is not closed"},
      {"names:\n  0: cat\n  x: dog", "d.yaml line 3: 'x: dog' is no 'NUMBER: NAME', as '0: cat'"},
      {"names: {0: cat, 0: dog}", "d.yaml line 1: class 0 has a second name"},
      {"names: {-1: cat}", "d.yaml line 1: the class -1 of 'names' must be from 0 to 999999"},
      {"names:\n  - cat\n  1: dog", "d.yaml line 3: '1: dog' is no '- NAME', as the lines before it"},
      {"names: 3", "d.yaml line 1: 'names' is '3', must be a list"},
      {"names: [&a b]", "d.yaml line 1: '&a b' is no plain text"},
      {"names: [a]\nnames: [b]", "d.yaml line 2: repeats the key 'names'"},
      {"train: a", "d.yaml has no 'names', the list of classes"},
      {"path: [a, b]\nnames: [c]", "d.yaml line 1: 'path' is a list, must be one text"},
      {"just text\nnames: [c]", "d.yaml line 1: 'just text' is no 'key: value'"}};
  for (const auto& [content, line] : faults)
    EXPECT_EQ(error_of([&] { parse_yolo_yaml(content, "d.yaml"); }), line);
}

TEST_F(LabelFiles, ListsNextToVocNameItsClasses) {
  add_image("set/JPEGImages/a.png");
  folder_.write("set/Annotations/a.xml", voc_text({{1, 2, 9, 9, 1}}));
  const auto open = [&] { return open_source({.path = path("set"), .val_share = 0}, Split::train); };
  EXPECT_EQ(object_labels(*open())->object_classes(), std::vector<std::string>{"dog"});
  folder_.write("set/labelmap.txt",
                "# label:color_rgb:parts:actions\nbackground:0,0,0::\nowl:1,1,1::\ndog:2,2,2::\n");
  EXPECT_EQ(object_labels(*open())->object_classes(), (std::vector<std::string>{"owl", "dog"}));
  EXPECT_EQ(boxes_of(*open(), 0), (Boxes{{1, 2, 9, 9, 1}}));
  folder_.write("set/labelmap.txt", "owl:1,1,1::\ncat:2,2,2::\n");
  EXPECT_EQ(error({.path = path("set"), .val_share = 0}),
            "DIR/set/Annotations/a.xml line 5: the class 'dog' is not in DIR/set/labelmap.txt");
}

TEST_F(LabelFiles, NumbersOfYoloMayHaveGapsAndDecimalCommas) {
  folder_.write("yolo/data.yaml", "train: images\nnc: 3\nnames: {0: cat, 5: dog, 7: owl}\n");
  add_image("yolo/images/a.png");
  folder_.write("yolo/labels/a.txt", "7 0,5 0,5 0,25 0,5\n0 0.5 0.5 0.25 0.5\n");
  const auto source = open_source({.path = path("yolo"), .val_share = 0}, Split::train);
  const ObjectLabels& labels = *object_labels(*source);
  EXPECT_EQ(labels.object_classes(), kNames);
  const auto& objects = labels.objects_of(source->read(0).name);
  ASSERT_EQ(objects.size(), 2u);
  EXPECT_EQ(objects[0].box.label, 2);
  EXPECT_EQ(objects[1].box.label, 0);
  EXPECT_EQ(objects[0].box.left, objects[1].box.left);
  EXPECT_EQ(objects[0].box.bottom, objects[1].box.bottom);
  folder_.write("yolo/labels/a.txt", "6 0.5 0.5 0.1 0.1\n");
  EXPECT_EQ(error({.path = path("yolo"), .val_share = 0}),
            "DIR/yolo/labels/a.txt line 1: the class is '6', must be one of the numbers 0, 5, 7");
}

TEST_F(LabelFiles, FaultsOfYoloHaveTheirLine) {
  const std::string where = "DIR/yolo/labels/a.txt line 3: ";
  EXPECT_EQ(yolo_error("3 0.5 0.5 0.1 0.1"), where + "the class is '3', must be a number from 0 to 2");
  EXPECT_EQ(yolo_error("cat 0.5 0.5 0.1 0.1"), where + "the class is 'cat', must be a number from 0 to 2");
  EXPECT_EQ(yolo_error("0 20 12 4 4"),
            where + "'20' must be a share of the image's width or height, from 0 to 1");
  EXPECT_EQ(yolo_error("0 nan 0.5 0.1 0.1"),
            where + "'nan' must be a share of the image's width or height, from 0 to 1");
  EXPECT_EQ(yolo_error("0 0.5 0.5 0 0.1"), where + "the box has no area");
  EXPECT_EQ(yolo_error("0 0.5 0.5 0.1 0.1 0.9"), where +
                                                     "has 6 numbers, must be 5: class, centre x, centre y, "
                                                     "width, height; or a class and 3 or more points");
  EXPECT_EQ(yolo_error("1 0.5 0.5 0.1 0.1"), "no error");
}

TEST_F(LabelFiles, VocIsFoundInOtherFolders) {
  const std::string cat = voc_file(voc_object("cat", 1, 1, 9, 9)),
                    dog = voc_file(voc_object("dog", 1, 1, 9, 9));
  add_image("lower/images/a.png");
  folder_.write("lower/annotations/a.xml", cat), folder_.write("lower/annotations/._a.xml", "\xff");
  add_image("flat/a.png");
  folder_.write("flat/a.xml", cat);
  add_image("splits/train/a.png"), add_image("splits/valid/b.png");
  folder_.write("splits/train/a.xml", cat), folder_.write("splits/valid/b.xml", dog);
  for (const char* name : {"lower", "flat", "splits"}) {
    EXPECT_EQ(source_kind(path(name)), "Pascal VOC") << name;
    const auto source = open_source({.path = path(name), .val_share = 0}, Split::train);
    ASSERT_EQ(source->size(), 1) << name;
    EXPECT_EQ(boxes_of(*source, 0), (Boxes{{0, 0, 9, 9, 0}})) << name;
    EXPECT_NO_THROW(source->read(0)) << name;
  }
  const auto held_out = open_source({.path = path("splits")}, Split::validation);
  EXPECT_EQ(object_labels(*held_out)->object_classes(), (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(boxes_of(*held_out, 0), (Boxes{{0, 0, 9, 9, 1}}));
}

TEST_F(LabelFiles, VocListsNameImagesInOtherForms) {
  for (const char* name : {"a", "my b", "c 1"}) {
    folder_.write(text("Annotations/", name, ".xml"), voc_file(voc_object("cat", 1, 1, 9, 9)));
    add_image(text("JPEGImages/", name, ".png"));
  }
  for (const char* list : {"a\nmy b\nc 1\n", "a.png\r\nmy b.png\r\nc 1.png\r\n", "a 1\nmy b\nc 1\n",
                           "JPEGImages/a.png\nJPEGImages\\my b.png\n/far/JPEGImages/c 1.png\n"}) {
    folder_.write("ImageSets/Main/train.txt", list);
    const auto source = open_source({.path = path(), .val_share = 0}, Split::train);
    ASSERT_EQ(source->size(), 3) << list;
    for (int64_t i = 0; i < 3; ++i) EXPECT_NO_THROW(source->read(i)) << list;
  }
}

// As numpy writes classes, as pose sets write key points, and with files that lost their partner.
TEST_F(LabelFiles, YoloOfOtherPrograms) {
  add_image("images/a.png"), add_image("images/b.png");
  folder_.write("images/c.heic", "x");
  folder_.write("labels/a.txt", "1.0 0.5 0.4 0.5 0.4 0.1 0.1 0.9 0.9\n0.000e+00 0.5 0.4 0.5 0.4\n");
  folder_.write("labels/b.txt", ""), folder_.write("labels/lost.txt", "0 0.5 0.5 0.5 0.4\n");
  folder_.write("pose.yaml", "train: images\nkpt_shape: [2, 2]\nnames: [x, y]\n");
  EXPECT_EQ(source_kind(path()), "YOLO");
  const auto source = open_source({.path = path(), .val_share = 0}, Split::train);
  EXPECT_EQ(boxes_of(*source, 0), (Boxes{{10, 5, 30, 15, 1}, {10, 5, 30, 15, 0}}));
  EXPECT_FALSE(object_labels(*source)->has_outlines());
  ASSERT_EQ(source->warnings().size(), 2u);
  EXPECT_NE(source->warnings()[0].find("left out 1 .heic"), std::string::npos);
  EXPECT_NE(source->warnings()[1].find("1 label file without an image ("), std::string::npos);
  EXPECT_NE(source->warnings()[1].find("lost.txt"), std::string::npos);
}

TEST_F(LabelFiles, YoloPathsOfAnotherMachine) {
  add_image("images/train/a.png"), add_image("images/val/b.png");
  folder_.write("labels/train/a.txt", "1 0.5 0.4 0.5 0.4\n"),
      folder_.write("labels/val/b.txt", "0 0.5 0.4 0.5 0.4\n");
  const std::string names = "names: [x, y]\n";
  for (const std::string train :
       {"/content/set/images/train", "C:\\me\\set\\images\\train", "train.txt", "far.txt"}) {
    folder_.write("train.txt", "images\\train\\a.png\r\n");
    folder_.write("far.txt", "/content/set/images/train/a.png\n");
    folder_.write("data.yaml",
                  "path: /content/set\ntrain: " + train + "\nval: /content/set/images/val\n" + names);
    const auto source = open_source({.path = path()}, Split::train);
    ASSERT_EQ(source->size(), 1) << train;
    EXPECT_EQ(boxes_of(*source, 0), (Boxes{{10, 5, 30, 15, 1}})) << train;
    EXPECT_EQ(open_source({.path = path()}, Split::validation)->size(), 1) << train;
  }
}

// Darknet's lists and names, as CVAT writes them.
TEST_F(LabelFiles, YoloOfDarknet) {
  add_image("obj_train_data/a.png"), add_image("obj_train_data/b.png"), add_image("obj_valid_data/c.png");
  folder_.write("obj_train_data/b.txt", "1 0.5 0.4 0.5 0.4\n");
  folder_.write("obj.names", "x\ny\n");
  folder_.write("obj.data", "classes = 2\ntrain = data/train.txt\nnames = data/obj.names\n");
  folder_.write("train.txt", "data/obj_train_data/a.png\ndata/obj_train_data/b.png\n");
  EXPECT_EQ(source_kind(path()), "YOLO");
  EXPECT_EQ(open_source({.path = path()}, Split::validation)->size(), 1);  // by share
  folder_.write("valid.txt", "data/obj_valid_data/c.png\n");
  const auto source = open_source({.path = path()}, Split::train);
  ASSERT_EQ(source->size(), 2);
  EXPECT_EQ(object_labels(*source)->object_classes(), (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(boxes_of(*source, 1), (Boxes{{10, 5, 30, 15, 1}}));
  EXPECT_EQ(open_source({.path = path()}, Split::validation)->size(), 1);
}

// As archives put a set into further folders.
TEST_F(LabelFiles, SetsInFurtherFolders) {
  add_image("up/VOCdevkit/VOC2012/JPEGImages/a.png");
  folder_.write("up/VOCdevkit/VOC2012/Annotations/a.xml", voc_file(voc_object("dog", 1, 1, 9, 9)));
  EXPECT_EQ(source_kind(path("up")), "Pascal VOC");
  EXPECT_EQ(open_source({.path = path("up"), .val_share = 0}, Split::train)->size(), 1);
  add_image("down/set/images/a.png");
  folder_.write("down/set/labels/a.txt", "0 0.5 0.4 0.5 0.4\n");
  folder_.write("down/set/data.yaml", "train: images\nnames: [x]\n");
  EXPECT_EQ(source_kind(path("down")), "YOLO");
  // Originals next to the set are not the set.
  add_image("sorted/train/cat/a.png"), add_image("sorted/val/cat/b.png"),
      add_image("sorted/raw/JPEGImages/a.png");
  folder_.write("sorted/raw/Annotations/a.xml", voc_file(voc_object("dog", 1, 1, 9, 9)));
  EXPECT_EQ(source_kind(path("sorted")), "ImageFolder");
  EXPECT_EQ(open_source({.path = path("down"), .val_share = 0}, Split::train)->size(), 1);
}

TEST_F(LabelFiles, YoloTakesSeveralFolders) {
  add_image("images/train/a.png"), add_image("images/more/b.png"), add_image("images/val/c.png");
  folder_.write("labels/more/b.txt", "1 0.5 0.4 0.5 0.4\n");
  for (const std::string train :
       {"[images/train, 'images/more']", "\n  - images/train  # first\n  - images/more",
        "\n- train.txt\n- images/more"}) {
    folder_.write("train.txt", "images/train/a.png\n");
    folder_.write("data.yaml", "train: " + train + "\nval: images/val\nnames: [x, y]\n");
    const auto source = open_source({.path = path()}, Split::train);
    ASSERT_EQ(source->size(), 2) << train;
    EXPECT_EQ(boxes_of(*source, 1), (Boxes{{10, 5, 30, 15, 1}})) << train;
    EXPECT_EQ(open_source({.path = path()}, Split::validation)->size(), 1) << train;
  }
}

TEST_F(LabelFiles, YoloFindsItsFoldersAndOutlines) {
  add_image("train/images/a.png");
  add_image("train/images/b.png");
  add_image("valid/images/c.png");
  folder_.write("train/labels/a.txt", "1 0.25 0.2 0.75 0.2 0.75 0.8");
  folder_.write("valid/labels/c.txt", "");
  folder_.write(
      "data.yaml",
      "path: /nowhere/else\ntrain: ../train/images\nval: ../valid/images\nnc: 2\nnames: ['x', 'y']\n");
  const auto train = open_source({.path = path()}, Split::train),
             held_out = open_source({.path = path("data.yaml")}, Split::validation);
  EXPECT_EQ(train->size(), 2);
  EXPECT_EQ(held_out->size(), 1);
  EXPECT_TRUE(held_out->warnings().empty());
  ASSERT_EQ(train->warnings().size(), 1u);
  EXPECT_NE(train->warnings()[0].find("1 image without a label file"), std::string::npos);
  EXPECT_EQ(boxes_of(*train, 0), (Boxes{{10, 5, 30, 20, 1}}));
  EXPECT_TRUE(object_labels(*train)->has_outlines());
  EXPECT_NO_THROW(require_same_objects(*train, *held_out));
  folder_.write("data.yaml", "train: ../elsewhere\nnames: [x]\n");
  EXPECT_EQ(error({.path = path()}),
            "DIR/data.yaml line 1: '../elsewhere' is neither a folder nor a file in DIR; "
            "data.image_root names another folder");
  folder_.write("list.txt", "train/images/a.png\n./valid/images/c.png\n");
  folder_.write("data.yaml", "train: list.txt\nnames: [x, y]\n");
  EXPECT_EQ(open_source({.path = path(), .val_share = 0}, Split::train)->size(), 2);
  EXPECT_EQ(open_source({.path = path(), .val_share = 0.5}, Split::train)->size(), 1);
}

}  // namespace
}  // namespace tessera::data
