// Lists and tables of images as other programs write them.
#include <gtest/gtest.h>

#include "data/base/data_testing.h"
#include "data/base/source.h"

namespace tessera::data {
namespace {

using Labels = std::vector<int64_t>;
using Names = std::vector<std::string>;

class Lists : public ::testing::Test {
 protected:
  std::unique_ptr<Source> open(const std::string& name, const std::string& content) const {
    return open_source({.path = folder.write(name, content), .val_share = 0}, Split::train);
  }
  // Returns the labels of each image by name: "cat dog".
  Names labels(const std::string& name, const std::string& content) const {
    const auto source = open(name, content);
    Names found;
    for (int64_t i = 0; i < source->size(); ++i) found.push_back(label_text(labels_in(*source), i, " "));
    return found;
  }
  const TemporaryFolder folder;
};

TEST(Table, AListThatIsNone) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& lines) {
    return error_of([&] { open_source({.path = folder.write("l.txt", lines)}, Split::train); }, &folder);
  };
  EXPECT_EQ(refusal("a.png 1\nb.png\n"), "DIR/l.txt line 2 is 'b.png', must be a path and a label");
  EXPECT_EQ(refusal("a.png -1\n"),
            "DIR/l.txt line 1 has label -1, must be 0 to the number of classes less one");
  EXPECT_EQ(refusal(" \n"), "DIR/l.txt is empty");
  EXPECT_EQ(refusal("\xff\n"), "DIR/l.txt is not UTF-8 text: save it as UTF-8");
}

TEST_F(Lists, BlanksDivideWhateverTheName) {
  folder.write("my cat.png", "A");
  for (const char* name : {"l.txt", "l.csv", "l.tsv"}) {
    const auto source = open(name, "path label\nmy cat.png tabby cat\nb.png dog\n");
    EXPECT_EQ(labels_in(*source).class_names(), (Names{"dog", "tabby cat"})) << name;
    EXPECT_EQ(source->read(0).name, folder.path("my cat.png"));
  }
}

TEST_F(Lists, Utf16AndOldLineEnds) {
  std::string wide = "\xff\xfe", big = "\xfe\xff";
  for (const char16_t c : std::u16string(u"path,label\na.png,\u00e9\nb.png,\U0001f600\n")) {
    wide += static_cast<char>(c & 255), wide += static_cast<char>(c >> 8);
    big += static_cast<char>(c >> 8), big += static_cast<char>(c & 255);
  }
  for (const std::string& content : {wide, big})
    EXPECT_EQ(labels("l.csv", content), (Names{"\u00e9", "\U0001f600"}));
  EXPECT_EQ(error_of([&] { open("l.csv", wide + "x"); }, &folder),
            "DIR/l.csv begins as UTF-16 text but is not valid as such, must be UTF-8 or UTF-16");
  EXPECT_EQ(labels("l.txt", "a.png 1\rb.png 0\r"), (Names{"1", "0"}));
}

TEST_F(Lists, SeveralLabelsInACell) {
  EXPECT_EQ(labels("l.csv", "image,label\na,\"['cat', 'dog']\"\nb,['dog']\nc,[]\n"),
            (Names{"cat dog", "dog", ""}));
  EXPECT_EQ(labels("l.csv", "image,label\na,\"[0, 1]\"\nb,[1]\n"), (Names{"0 1", "1"}));
  EXPECT_EQ(labels("l.csv", "image,labels\na,cat\nb,\"cat, dog\"\nc,dog\n"),
            (Names{"cat", "cat dog", "dog"}));
  EXPECT_EQ(labels("l.csv", "image,labels\na,cat\nb,cat; dog\n"), (Names{"cat", "cat dog"}));
  // Names with commas stay whole.
  EXPECT_EQ(labels("l.csv", "image,label\na,\"tench, Tinca\"\nb,tench\n"), (Names{"tench, Tinca", "tench"}));
  EXPECT_EQ(labels("l.csv", "image,labels\na,\"tench, Tinca\"\nb,dog\n"), (Names{"tench, Tinca", "dog"}));
}

TEST_F(Lists, BlanksSeparateLabels) {
  EXPECT_EQ(labels("l.csv", "Id,Target\na,16 0\nb,7 1 0\nc,5\n"), (Names{"0 16", "0 1 7", "5"}));
  EXPECT_TRUE(labels_in(*open("l.csv", "Id,Target\na,16 0\nb,7 1 0\nc,5\n")).multi_label());
  EXPECT_EQ(labels("l.csv", "image,label\na,[0 1]\nb,[1]\n"), (Names{"0 1", "1"}));
  const std::string spots = "image,labels\na.jpg,rust\nb.jpg,scab rust\nc.jpg,scab\n";
  const auto source = open("l.csv", spots);
  EXPECT_EQ(labels_in(*source).class_names(), (Names{"rust", "scab"}));
  EXPECT_EQ(labels("l.csv", spots), (Names{"rust", "rust scab", "scab"}));
  EXPECT_EQ(source->warnings(), Names{folder.path("l.csv") + ": blanks separate the labels of an image"});
  EXPECT_EQ(labels("l.csv", "image_name,tags\na,haze primary\nb,clear primary\nc,haze clear\n"),
            (Names{"haze primary", "clear primary", "clear haze"}));
  // Names with blanks stay whole.
  EXPECT_EQ(labels("l.csv", "image,labels\na,traffic light\nb,light\n"), (Names{"traffic light", "light"}));
  EXPECT_EQ(labels("l.csv", "image,label\na,red car\nb,red\nc,car\n"), (Names{"red car", "red", "car"}));
}

TEST_F(Lists, WholeNumbersInOtherForms) {
  for (const char* table : {"path;label\na;0,0\nb;2,0\nc;1,0\n", "path\tlabel\na\t0,0\nb\t2,0\nc\t1,0\n",
                            "path,label\na,0.000000e+00\nb,2.000000e+00\nc,1.000000e+00\n"}) {
    const auto source = open("l.csv", table);
    EXPECT_EQ(labels_in(*source).class_names(), (Names{"0", "1", "2"})) << table;
    EXPECT_EQ(labels_of(*source), (Labels{0, 2, 1})) << table;
  }
  EXPECT_EQ(labels("l.csv", "path,label\na,\"1,0\"\nb,\"1,2\"\n"), (Names{"1,0", "1,2"}));
  EXPECT_EQ(labels("l.csv", "path,label\na,1e3\nb,2e5\n"), (Names{"1e3", "2e5"}));
}

// As spreadsheets end a table.
TEST_F(Lists, LinesOfSeparatorsAloneAreSkipped) {
  EXPECT_EQ(labels("l.csv", "path,label,note\na,x,\n,,\nb,y,\n,,\n , ,\n"), (Names{"x", "y"}));
}

TEST_F(Lists, ColumnsWithoutTitlesAreFound) {
  EXPECT_EQ(labels("l.csv", "0,a.jpg,3\n1,b.jpg,0\n2,c.jpg,3\n"), (Names{"3", "0", "3"}));
  EXPECT_EQ(labels("l.csv", "cat,a.jpg,7\ndog,b.jpg,5\n"), (Names{"cat", "dog"}));
  EXPECT_EQ(labels("l.csv", "2,a.jpg\n0,b.jpg\n"), (Names{"2", "0"}));
  EXPECT_EQ(labels("l.csv", "a.jpg\tn01\t0\t32\nb.jpg\tn02\t1\t2\n"), (Names{"n01", "n02"}));
  EXPECT_EQ(error_of([&] { open("l.csv", "a.jpg,7,8\nb.jpg,5,5\n"); }, &folder),
            "DIR/l.csv has 3 columns and no title 'path'; must have two (path, label) or such a header");
}

TEST_F(Lists, SplitsWithoutATitle) {
  const SourceConfig config = {.path = folder.write("l.csv", "a.jpg,3,train\nb.jpg,5,test\nc.jpg,5,train\n")};
  EXPECT_EQ(labels_of(*open_source(config, Split::train)), (Labels{0, 1}));
  EXPECT_EQ(labels_of(*open_source(config, Split::validation)), Labels{1});
  EXPECT_EQ(labels("l.csv", "a.jpg,train,3\nb.jpg,train,5\n"), (Names{"3", "5"}));
  const auto alone = open("l.csv", "a.jpg,train\nb.jpg,test\n");
  EXPECT_EQ(alone->class_labels(), nullptr);
  EXPECT_EQ(alone->size(), 1);
}

TEST_F(Lists, BoxesAndSeveralImagesWithoutTitlesAreRefused) {
  EXPECT_EQ(error_of([&] { open("l.csv", "a.jpg,10,20,30,40,cat\na.jpg,50,60,70,80,dog\n"); }, &folder),
            "DIR/l.csv line 2: a second box of 'a.jpg' (columns of numbers): boxes must be in files of COCO, "
            "Pascal VOC or YOLO");
  EXPECT_EQ(
      error_of([&] { open("l.csv", "a.jpg,a_mask.png,cat\nb.jpg,b_mask.png,dog\n"); }, &folder),
      "DIR/l.csv line 1 has two images, 'a.jpg' and 'a_mask.png': the first line must be titles, 'path' "
      "over one of them");
}

TEST_F(Lists, LabelMapsFromOneNameLabelsFromOne) {
  const std::string map = folder.write(
      "map.pbtxt", "item { id: 1 name: 'cat' }\nitem { id: 2 name: 'dog' }\nitem { id: 4 name: 'owl' }\n");
  const std::string table = folder.write("t.csv", "path,label\na.png,1\nb.png,2\n");
  const auto open = [&](const std::string& list) {
    return open_source_with_problems({.path = table, .val_share = 0, .class_names = list}, Split::train);
  };
  EXPECT_EQ(labels_of(*open(map)), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(labels_in(*open(map)).class_names(), (std::vector<std::string>{"cat", "dog", "unused 3", "owl"}));
  // Lines have no numbers of their own.
  EXPECT_EQ(labels_of(*open(folder.write("l.txt", "cat\ndog\nowl\n"))), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(labels_of(*open(folder.write("l.json", R"({"0": "cat", "1": "dog", "2": "owl"})"))),
            (std::vector<int64_t>{1, 2}));
  folder.write("t.csv", "path,label\na.png,0\nb.png,2\n");
  EXPECT_EQ(open(map)->problems().at(0),
            table + " line 2 has label 0, but the list of class names counts from 1");
  folder.write("t.csv", "path,label\na.png,1\nb.png,5\n");
  EXPECT_EQ(open(map)->problems().at(0), table + " line 3 has label 5, must be 1 to 4");
  const std::string other = folder.write("v.csv", "path,label\nc.png,2\n");
  EXPECT_EQ(labels_of(*open_source({.path = folder.write("t.csv", "path,label\na.png,1\nb.png,2\n"),
                                    .val_path = other,
                                    .class_names = map},
                                   Split::validation)),
            std::vector<int64_t>{1});
}

TEST_F(Lists, OneBoxOfAnImageIsNotReadWithALine) {
  for (const char* content :
       {"path,label,xmin,xmax\na.png,cat,1,5\nb.png,dog,2,6\n", "a.png,3,50,cat\nb.png,9,6,dog\n"}) {
    const auto source = open_source({.path = folder.write("t.csv", content), .val_share = 0}, Split::train);
    EXPECT_EQ(labels_of(*source), (std::vector<int64_t>{0, 1}));
    ASSERT_EQ(source->warnings().size(), 1u) << content;
    EXPECT_TRUE(source->warnings()[0].ends_with("not read")) << source->warnings()[0];
  }
}

TEST_F(Lists, SplitsByNumber) {
  const SourceConfig config = {
      .path = folder.write("l.csv", "img_filename,label,partition\na,1,0\nb,0,1\nc,1,2\nd,0,0\n")};
  EXPECT_EQ(labels_of(*open_source(config, Split::train)), (Labels{1, 0}));
  EXPECT_EQ(labels_of(*open_source(config, Split::validation)), (Labels{0}));
  EXPECT_EQ(
      error_of([&] { open("l.csv", "path,label,split\na,1,1\nb,0,0\n"); }, &folder),
      "DIR/l.csv: the column 'split' has the numbers 0, 1, must have train, val or test, or 0, 1 and 2 for "
      "these; if 0 is train and 1 val, its title must be 'partition'");
  EXPECT_EQ(labels("l.csv", "path,label,partition\na,x,3\nb,y,0\n"), (Names{"x", "y"}));
}

// WILDS' and Waterbirds' metadata.csv.
TEST_F(Lists, SplitsByNumberOfWilds) {
  const SourceConfig config = {
      .path = folder.write(
          "l.csv",
          ",img_filename,y,split,place\n0,a.jpg,1,0,0\n1,b.jpg,0,1,1\n2,c.jpg,1,2,0\n3,d.jpg,0,0,1\n")};
  const auto train = open_source(config, Split::train);
  EXPECT_EQ(labels_of(*train), (Labels{1, 0}));
  EXPECT_EQ(labels_of(*open_source(config, Split::validation)), (Labels{0}));
  EXPECT_EQ(train->warnings(),
            Names{config.path + ": 0, 1 and 2 in the column 'split' are read as train, val and test"});
}

TEST_F(Lists, ColumnsWithoutAUsualTitleAreFound) {
  const auto source = open("l.csv", "picture,mood\na.jpg,sad\nb.jpg,happy\nc.jpg,sad\n");
  EXPECT_EQ(labels_in(*source).class_names(), (Names{"happy", "sad"}));
  EXPECT_EQ(source->warnings(),
            (Names{folder.path("l.csv") + ": the column 'picture' has the images",
                   folder.path("l.csv") + ": the column 'mood' has the labels, as the only other one"}));
  EXPECT_EQ(labels("l.csv", "no,image,has tumour\n1,a.jpg,0\n2,b.jpg,1\n3,c.jpg,0\n"),
            (Names{"0", "1", "0"}));
  EXPECT_EQ(labels("l.csv", "Image Path;Class Name\na.jpg;cat\nb.jpg;dog\n"), (Names{"cat", "dog"}));
  for (const char* table : {"image,colour,kind\na.jpg,red,x\nb.jpg,blue,x\nc.jpg,red,y\n",
                            "image,price\na.jpg,1.5\nb.jpg,1.5\nc.jpg,2.5\n",
                            "image,mask\na.jpg,m.png\nb.jpg,m.png\nc.jpg,n.png\n",
                            "image,md5\na.jpg,f00\nb.jpg,f01\nc.jpg,f02\n"})
    EXPECT_NE(error_of([&] { open("l.csv", table); }, &folder).find("has no column titled 'label'"),
              std::string::npos)
        << table;
}

// CelebA's attributes: the number of lines, titles without that of the images, 1 and -1.
TEST_F(Lists, AttributesOfOneAndMinusOne) {
  const std::string list = "3\nBald Male Young \n1.jpg -1  1  1\n2.jpg  1 -1 -1\n3.jpg -1 -1 -1\n",
                    table = "image_id,Bald,Male,Young\n1.jpg,-1,1,1\n2.jpg,1,-1,-1\n3.jpg,-1,-1,-1\n";
  for (const auto& [name, content] : {std::pair("l.txt", list), {"l.csv", table}}) {
    EXPECT_EQ(labels_in(*open(name, content)).class_names(), (Names{"Bald", "Male", "Young"})) << name;
    EXPECT_EQ(labels(name, content), (Names{"Male Young", "Bald", ""})) << name;
  }
  // Next to 0, -1 is no mark: it may be a label that is not certain.
  EXPECT_EQ(
      error_of([&] { open("l.csv", "image_id,Bald,Male\n1.jpg,0,1\n2.jpg,-1,1\n3.jpg,1,0\n"); }, &folder),
      "DIR/l.csv line 3: column 'Bald' holds '-1', must be 0 or 1");
}

TEST_F(Lists, CelebAsPartitionSplitsTheTablesNextToIt) {
  folder.write("set/list_eval_partition.txt", "1.jpg 0\n2.jpg 0\n3.jpg 1\n4.jpg 2\n");
  folder.write("Eval/list_eval_partition.txt", "1.jpg 0\n2.jpg 0\n3.jpg 1\n4.jpg 2\n");
  folder.write("csv/list_eval_partition.csv", "image_id,partition\n1.jpg,0\n2.jpg,0\n3.jpg,1\n4.jpg,2\n");
  const std::string attributes = "4\nBald Male\n1.jpg -1 1\n2.jpg 1 -1\n3.jpg -1 -1\n4.jpg 1 1\n",
                    table = "image_id,Bald,Male\n1.jpg,-1,1\n2.jpg,1,-1\n3.jpg,-1,-1\n4.jpg,1,1\n";
  for (const auto& [name, content] : {std::pair("set/list_attr_celeba.txt", attributes),
                                      {"Anno/list_attr_celeba.txt", attributes},
                                      {"csv/list_attr_celeba.csv", table}}) {
    const SourceConfig config = {.path = folder.write(name, content)};
    const auto train = open_source(config, Split::train);
    EXPECT_EQ(labels_in(*train).labels(0), Labels{1}) << name;
    EXPECT_EQ(train->size(), 2) << name;
    EXPECT_EQ(open_source(config, Split::validation)->size(), 1) << name;
    EXPECT_TRUE(train->describe().ends_with("; left out: 1 test image")) << name;
  }
  // A partition without some image is another set's.
  EXPECT_EQ(open("set/other.txt", "1.jpg 3\n9.jpg 4\n")->size(), 2);
}

// CUB-200-2011 as it is unpacked.
TEST_F(Lists, ListsByNumber) {
  folder.write("images/001.Tern/a_1.jpg", "A"), folder.write("images/002.Wren/b c.jpg", "B");
  folder.write("images/002.Wren/d.jpg", "D");
  folder.write("images.txt", "1 001.Tern/a_1.jpg\n2 002.Wren/b c.jpg\n3 002.Wren/d.jpg\n");
  folder.write("image_class_labels.txt", "1 1\n2 2\n3 2\n");
  folder.write("classes.txt", "1 001.Tern\n2 002.Wren\n");
  folder.write("train_test_split.txt", "1 1\n2 1\n3 0\n");
  for (const std::string& path : {folder.path(), folder.path("images.txt")}) {
    const auto train = open_source({.path = path}, Split::train);
    EXPECT_EQ(labels_in(*train).class_names(), (Names{"001.Tern", "002.Wren"}));
    EXPECT_EQ(labels_of(*train), (Labels{0, 1}));
    EXPECT_EQ(train->read(1).name, folder.path("images/002.Wren/b c.jpg"));
    EXPECT_EQ(train->warnings(), Names{});
    const auto held_out = open_source({.path = path}, Split::validation);
    EXPECT_EQ(labels_of(*held_out), Labels{1});
    require_same_classes(*train, *held_out);
    EXPECT_EQ(held_out->read(0).name, folder.path("images/002.Wren/d.jpg"));
  }
  folder.write("image_class_labels.txt", "1 1\n3 2\n");
  EXPECT_EQ(error_of([&] { open_source({.path = folder.path()}, Split::train); }, &folder),
            "DIR/images.txt line 2: '2' is in no line of image_class_labels.txt next to it");
}

TEST_F(Lists, PublishedListsWithoutSuffixes) {
  folder.write("images/Big_Dog_1.jpg", "A"), folder.write("images/1025794.jpg", "B");
  // Oxford-IIIT Pet: the image, its class, species and breed.
  const auto pets =
      open("annotations/list.txt", "#Image CLASS-ID SPECIES BREED ID\nBig_Dog_1 2 2 1\nCat_7 1 1 1\n");
  EXPECT_EQ(labels_in(*pets).class_names(), (Names{"Cat", "Big_Dog"}));
  EXPECT_EQ(labels_of(*pets), (Labels{1, 0}));
  EXPECT_EQ(pets->read(0).name, folder.path("annotations/../images/Big_Dog_1.jpg"));
  // FGVC Aircraft: the image and its class.
  EXPECT_EQ(labels("images_family_train.txt", "1025794 Boeing 707\n1025795 A320\n"),
            (Names{"Boeing 707", "A320"}));
  EXPECT_EQ(labels("images_variant_train.txt", "1025795 A320\n1025794 Falcon 2000\n1025796 A321\n"),
            (Names{"A320", "Falcon 2000", "A321"}));
}

TEST_F(Lists, JsonInTheFormsOfOtherPrograms) {
  const char* forms[] = {
      R"({"images": ["a.jpg", "b.jpg", "c.jpg"], "labels": ["dog", "cat", "dog"]})",
      R"({"a.jpg": {"label": "dog"}, "b.jpg": {"label": "cat"}, "c.jpg": {"label": "dog"}})",
      R"({"version": 1, "data": [["a.jpg", "dog"], ["b.jpg", "cat"], ["c.jpg", "dog"]]})",
      R"({"a.jpg": "dog", "b.jpg": "cat", "c.jpg": "dog"})",
      R"({"path": {"0": "a.jpg", "1": "b.jpg", "2": "c.jpg"}, "label": {"0": "dog", "1": "cat", "2": "dog"}})",
      R"({"file_name": ["a.jpg", "b.jpg", "c.jpg"], "label": ["dog", "cat", "dog"]})",
      R"({"columns": ["path", "label"], "index": [0, 1, 2], "data": [["a.jpg", "dog"], ["b.jpg", "cat"],
          ["c.jpg", "dog"]]})",
      R"([["a.jpg", "dog"], ["b.jpg", "cat"], ["c.jpg", "dog"]])",
      R"({"labels": [["a.jpg", 1], ["b.jpg", 0], ["c.jpg", 1]]})",
      R"({"images": [{"id": 7, "file_name": "a.jpg"}, {"id": 9, "file_name": "b.jpg"},
                     {"id": 8, "file_name": "c.jpg"}],
          "annotations": [{"id": 1, "image_id": 9, "category_id": 0}, {"id": 2, "image_id": 7, "category_id": 1},
                          {"id": 3, "image_id": 8, "category_id": 1}],
          "categories": [{"id": 0, "name": "cat"}, {"id": 1, "name": "dog"}]})"};
  for (const char* form : forms) {
    const auto source = open("l.json", form);
    EXPECT_EQ(labels_of(*source), (Labels{1, 0, 1})) << form;
  }
}

TEST_F(Lists, JsonBySplitAndByClass) {
  const SourceConfig config = {
      .path = folder.write("l.json", R"({"train": [["a.jpg", 1, "wren"], ["b.jpg", 0, "tern"]],
                                         "val": [["c.jpg", 1, "wren"]], "test": [["d.jpg", 0, "tern"]]})")};
  const auto train = open_source(config, Split::train), held_out = open_source(config, Split::validation);
  EXPECT_EQ(labels_in(*train).class_names(), (Names{"tern", "wren"}));
  EXPECT_EQ(labels_of(*train), (Labels{1, 0}));
  EXPECT_EQ(labels_of(*held_out), (Labels{1}));
  EXPECT_EQ(labels("c.json", R"({"pie": ["pie/1", "pie/2"], "soup": ["soup/1"]})"),
            (Names{"pie", "pie", "soup"}));
  EXPECT_EQ(labels("m.json", R"({"a.jpg": ["cat", "dog"], "b.jpg": ["dog"]})"), (Names{"cat dog", "dog"}));
  EXPECT_EQ(error_of([&] { open("n.json", R"({"a": 1, "b": 2})"); }, &folder),
            R"(DIR/n.json is object, must be a list of {"path": …, "label": …})");
  EXPECT_EQ(error_of([&] { open("n.json", R"({"path": ["a.jpg"], "label": [1, 2]})"); }, &folder),
            "DIR/n.json: 'path' has 1 values, another column 2");
}

TEST_F(Lists, JsonListsOfThreeHaveANumberSecond) {
  const SourceConfig config = {
      .path =
          folder.write("l.json", R"([["a.jpg", 1, "train"], ["b.jpg", 0, "test"], ["c.jpg", 0, "train"]])")};
  EXPECT_EQ(labels_of(*open_source(config, Split::train)), (Labels{1, 0}));
  EXPECT_EQ(labels_of(*open_source(config, Split::validation)), Labels{0});
  for (const char* form : {R"([["a.jpg", "cat", "train"], ["b.jpg", "dog", "test"]])",
                           R"([["a.jpg", "cat", "dog"], ["b.jpg", "dog", "cat"]])"})
    EXPECT_EQ(
        error_of([&] { open("n.json", form); }, &folder),
        R"(DIR/n.json entry 0 is array, must be an object such as {"path": …, "label": …} (and 1 more))");
}

// Lists without labels, as Food-101, DTD and SUN397 split their images.
TEST_F(Lists, FoldersOfAListAreItsClasses) {
  folder.write("images/pie/1.jpg", "A");
  const auto source = open("meta/train.txt", "pie/1\npie/2\nsoup/3\n");
  EXPECT_EQ(labels_in(*source).class_names(), (Names{"pie", "soup"}));
  EXPECT_EQ(labels_of(*source), (Labels{0, 0, 1}));
  EXPECT_EQ(source->read(0).name, folder.path("meta/../images/pie/1.jpg"));
  EXPECT_EQ(source->warnings(), Names{folder.path("meta/train.txt") +
                                      " has no labels: the folders of its images are the classes"});
  EXPECT_EQ(labels("l.txt", "/a/abbey/1.jpg\n/a/airport/2.jpg\n"), (Names{"abbey", "airport"}));
  EXPECT_EQ(open("l.txt", "all/1.jpg\nall/2.jpg\n")->class_labels(), nullptr);
  EXPECT_EQ(open("l.txt", "train/1.jpg\nval/2.jpg\n")->class_labels(), nullptr);
}

// A table with names alone, and images in several folders, as of HAM10000 and ChestX-ray14.
TEST_F(Lists, ImagesAreFoundBelowTheTable) {
  folder.write("part_1/images/x1.jpg", "A"), folder.write("part_2/images/x2.jpg", "B");
  folder.write("part_1/twin.jpg", "C"), folder.write("part_2/twin.jpg", "D");
  const auto source = open("l.csv", "image_id,dx\nx1,nv\nx2,mel\ntwin,nv\n");
  EXPECT_EQ(source->read(0).name, folder.path("part_1/images/x1.jpg"));
  EXPECT_EQ(source->read(1).name, folder.path("part_2/images/x2.jpg"));
  ASSERT_EQ(source->warnings().size(), 1u);
  EXPECT_EQ(
      error_of([&] { fail(source->warnings()[0]); }, &folder),
      "DIR/l.csv: 'x1' does not exist; 'part_1/images/x1.jpg' of DIR is read instead, and others likewise");
  EXPECT_EQ(error_of([&] { source->read(2); }, &folder), "cannot open 'DIR/twin': No such file or directory");
  const auto upload = open("u.csv", "image,choice\n/data/upload/7/x1.jpg,nv\n/data/upload/7/twin.jpg,mel\n");
  EXPECT_EQ(upload->read(0).name, folder.path("part_1/images/x1.jpg"));
  EXPECT_EQ(error_of([&] { upload->read(1); }),
            "cannot open '/data/upload/7/twin.jpg': No such file or directory");
  EXPECT_EQ(open("s.csv", "image,dx\npart_1/images/x1.JPG,nv\nx2.png,mel\n")->read(1).name,
            folder.path("part_2/images/x2.jpg"));
  folder.write("data_256/a/alley/1.jpg", "A"), folder.write("data_256/b/1.jpg", "B");
  EXPECT_EQ(open("list.txt", "/a/alley/1.jpg 0\n/b/1.jpg 1\n")->read(0).name,
            folder.path("data_256/a/alley/1.jpg"));
}

TEST_F(Lists, SeveralNumbersAfterANameAreRefused) {
  EXPECT_EQ(
      error_of([&] { open("l.txt", "Abyssinian_100 1 0 1\n"); }, &folder),
      "DIR/l.txt line 1 has '1 0 1' after the path, must be one label; several belong in a table, as in "
      "'a.jpg,0|1'");
  EXPECT_EQ(labels("l.txt", "1025794 707-320\n1025795 A340\n"), (Names{"707-320", "A340"}));
}

TEST_F(Lists, PathsWithEscapesOfUrls) {
  folder.write("my cat.png", "A"), folder.write("100%25.png", "B");
  const auto source = open("l.csv", "path,label\nmy%20cat.png,x\n100%25.png,y\n");
  EXPECT_EQ(source->read(0).name, folder.path("my cat.png"));
  EXPECT_EQ(source->read(1).name, folder.path("100%25.png"));
}

TEST_F(Lists, ExcelsLineOfTheSeparatorIsNoImage) {
  EXPECT_EQ(labels("l.csv", "sep=;\r\npath;label\r\na.png;x\r\nb.png;y\r\n"), (Names{"x", "y"}));
}

TEST_F(Lists, PathsOfAnotherMachineAreFoundByTheirEnds) {
  folder.write("train/a.png", "A");
  folder.write("b.png", "B");
  const auto source =
      open("l.csv", "path,label\nC:\\me\\set\\train\\a.png,x\n/none/b.png,y\n/none/c.png,y\n");
  EXPECT_EQ(source->read(0).name, folder.path("train/a.png"));
  EXPECT_EQ(source->read(1).name, folder.path("b.png"));
  EXPECT_EQ(error_of([&] { source->read(2); }), "cannot open '/none/c.png': No such file or directory");
  ASSERT_EQ(source->warnings().size(), 1u);
  EXPECT_EQ(
      error_of([&] { fail(source->warnings()[0]); }, &folder),
      "DIR/l.csv line 2: 'C:/me/set/train/a.png' does not exist; 'train/a.png' of DIR is read instead, and "
      "others likewise");
}

TEST_F(Lists, LabelStudiosTableHasItsChoices) {
  folder.write("images/1-a.png", "A"), folder.write("images/b c.png", "B"), folder.write("images/d.png", "C");
  const std::string titles = "annotation_id,annotator,choice,created_at,id,image,lead_time\n",
                    paths[] = {"/data/upload/3/1-a.png", "/data/local-files/?d=set%2Fb%20c.png",
                               "../../media/upload/3/d.png"};
  std::string rows;
  for (const std::string& path : paths)
    rows += "7,1," + path.substr(path.size() - 5, 1) + ",2024-05-01T10:00Z,1," + path + ",2.5\n";
  const auto source = open("l.csv", titles + rows);
  EXPECT_EQ(labels_in(*source).class_names(), (Names{"a", "c", "d"}));
  EXPECT_EQ(source->read(0).name, folder.path("images/1-a.png"));
  EXPECT_EQ(source->read(1).name, folder.path("images/b c.png"));
  EXPECT_EQ(source->read(2).name, folder.path("images/d.png"));
  EXPECT_EQ(
      labels("l.csv", "image,choice\na.png,\"{\"\"choices\"\":[\"\"cat\"\",\"\"\\u00fc\"\"]}\"\nb.png,dog\n"),
      (Names{"cat \u00fc", "dog"}));
  EXPECT_EQ(
      error_of([&] { open("l.csv", "image,label\na.png,\"[{\"\"x\"\":1.5,\"\"y\"\":2}]\"\n"); }, &folder),
      "DIR/l.csv line 2: the label is a list of objects, must be a class; for detectors export COCO, Pascal "
      "VOC or "
      "YOLO");
}

}  // namespace
}  // namespace tessera::data
