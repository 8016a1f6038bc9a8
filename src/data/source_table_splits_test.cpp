// Which images of a table are in which set, and what their classes are called.
#include <gtest/gtest.h>

#include "data/base/data_testing.h"
#include "data/base/source.h"

namespace tessera::data {
namespace {

using Labels = std::vector<int64_t>;
using Names = std::vector<std::string>;

TEST(Table, ASplitColumnSplits) {
  const TemporaryFolder folder;
  const SourceConfig config = {
      .path = folder.write("l.csv", "path,label,split\na,x,train\nb,y,Val\nc,y,train\nd,x,test\n")};
  const auto train = open_source(config, Split::train);
  EXPECT_EQ(labels_of(*train), (Labels{0, 1}));
  EXPECT_TRUE(train->describe().ends_with("; left out: 1 test image"));
  // Test images are held out only if there are none for validation.
  EXPECT_EQ(labels_of(*open_source(config, Split::validation)), Labels{1});
  folder.write("l.csv", "path,label,split\na,x,train\nb,y,train\nd,x,test\n");
  EXPECT_EQ(labels_of(*open_source(config, Split::validation)), Labels{0});
}

TEST(Table, AColumnOfSplitsMayHaveAnyTitle) {
  const TemporaryFolder folder;
  for (const char* column :
       {"mode\na,x,train\nb,y,val\nc,y,train\n", "Usage\na,x,Training\nb,y,PublicTest\nc,y,Training\n"}) {
    const SourceConfig config = {.path = folder.write("l.csv", text("path,label,", column))};
    EXPECT_EQ(labels_of(*open_source(config, Split::train)), (Labels{0, 1})) << column;
    EXPECT_EQ(labels_of(*open_source(config, Split::validation)), Labels{1}) << column;
  }
  // Names of one split alone, or of other things, are none.
  for (const char* column :
       {"mode\na,x,train\nb,y,train\nc,y,train\n", "mode\na,x,train\nb,y,bus\nc,y,test\n"})
    EXPECT_EQ(open_source({.path = folder.write("l.csv", text("path,label,", column)), .val_share = 0},
                          Split::train)
                  ->size(),
              3);
}

TEST(Table, FoldersOfThePathsSplitIfBothArePresent) {
  const TemporaryFolder folder;
  const SourceConfig config = {
      .path = folder.write("l.csv", "path,label\ntrain/a,x\ntest/b,y\ntrain/c,y\ntrain/d,x\n")};
  EXPECT_EQ(labels_of(*open_source(config, Split::train)), (Labels{0, 1, 0}));
  EXPECT_EQ(labels_of(*open_source(config, Split::validation)), Labels{1});
  // Next to a held-out table, all rows are for training.
  const SourceConfig both = {.path = config.path,
                             .val_path = folder.write("v.csv", "path,label\ne,x\nf,y\n")};
  EXPECT_EQ(labels_of(*open_source(both, Split::train)), (Labels{0, 1, 1, 0}));
  EXPECT_EQ(labels_of(*open_source(both, Split::validation)), (Labels{0, 1}));
  folder.write("l.csv", "path,label\ntrain/a,x\ntrain/b,y\ntrain/c,y\ntrain/d,x\n");
  EXPECT_EQ(open_source(config, Split::train)->size(), 2);  // by share
}

TEST(Table, AColumnOfMarksSplits) {
  const TemporaryFolder folder;
  for (const char* table : {"path,label,is_valid\na,x,False\nb,y,True\nc,y,False\n",
                            "path,label,is_training_image\na,x,1\nb,y,0\nc,y,1\n"}) {
    const SourceConfig config = {.path = folder.write("l.csv", table)};
    EXPECT_EQ(labels_of(*open_source(config, Split::train)), (Labels{0, 1})) << table;
    EXPECT_EQ(labels_of(*open_source(config, Split::validation)), Labels{1}) << table;
  }
}

TEST(Table, NamesNextToNumbersAreTheClassesInTheOrderOfTheNumbers) {
  const TemporaryFolder folder;
  const auto open = [&](const std::string& name, const std::string& content) {
    return open_source({.path = folder.write(name, content), .val_share = 0}, Split::train);
  };
  const std::pair<const char*, const char*> tables[] = {
      {"a.csv", "path,label,class_name\na,1,bird\nb,0,wolf\nc,1,bird\n"},
      {"b.csv", "path,class_id,class_name\na,2,bird\nb,1,wolf\nc,2,bird\n"},
      {"c.csv", "filename,fold,target,category\na,5,1,bird\nb,5,0,wolf\nc,4,1,bird\n"},
      {"d.json",
       R"([{"path": "a", "label": 1, "label_name": "bird"}, {"path": "b", "label": 0, "label_name": "wolf"},
           {"path": "c", "label": 1, "label_name": "bird"}])"}};
  for (const auto& [name, content] : tables) {
    const auto source = open(name, content);
    EXPECT_EQ(labels_in(*source).class_names(), (Names{"wolf", "bird"})) << name;
    EXPECT_EQ(labels_of(*source), (Labels{1, 0, 1})) << name;
    EXPECT_EQ(source->warnings(), Names{}) << name;
  }
  // A column that has no name for each number is not read.
  const auto other = open("e.csv", "path,label,species\na,1,bird\nb,0,bird\n");
  EXPECT_EQ(labels_in(*other).class_names(), (Names{"0", "1"}));
  ASSERT_EQ(other->warnings().size(), 1u);
  EXPECT_EQ(error_of([&] { fail(other->warnings()[0]); }, &folder),
            "DIR/e.csv: the column 'species' is not read, another one has the labels");
}

TEST(Table, NamesNextToNumbersOfAHeldOutTableAreThoseOfTheTrainingSet) {
  const TemporaryFolder folder;
  folder.write("set/bird/a.png", "x");
  folder.write("set/wolf/b.png", "x");
  const SourceConfig config = {
      .path = folder.path("set"),
      .val_path = folder.write("v.csv", "path,label,class_name\nc,0,wolf\nd,1,bird\n")};
  EXPECT_EQ(labels_of(*open_source(config, Split::validation)), (Labels{1, 0}));
  folder.write("v.csv", "path,label,class_name\nc,0,wolf\nd,2,eel\n");
  EXPECT_EQ(error_of([&] { open_source(config, Split::validation); }, &folder),
            "DIR/v.csv line 3 has the label 2, 'eel', which is no class");
}

TEST(Table, KagglesTableOfImageNetHasTheSynsetOfTheBoxes) {
  const TemporaryFolder folder;
  folder.write("ILSVRC/Data/CLS-LOC/val/v_1.JPEG", "x");
  const auto source = open_source({.path = folder.write("LOC_val_solution.csv",
                                                        "ImageId,PredictionString\nv_1,n01440764 1 2 30 40 \n"
                                                        "v_2,n01443537 3 4 5 6 n01443537 7 8 9 10 \n"),
                                   .val_share = 0},
                                  Split::train);
  EXPECT_EQ(labels_in(*source).class_names(), (Names{"n01440764", "n01443537"}));
  EXPECT_EQ(source->read(0).name, folder.path("ILSVRC/Data/CLS-LOC/val/v_1.JPEG"));
}

TEST(Table, ColumnsOfTrueAndFalseAreClassesAndOthersAreLeftOut) {
  const TemporaryFolder folder;
  const auto source = open_source(
      {.path = folder.write("l.csv", "path,age,cat,dog\na,31,True,False\nb,40,False,True\nc,7,1.0,0.0\n"),
       .val_share = 0},
      Split::train);
  EXPECT_EQ(labels_in(*source).class_names(), (Names{"cat", "dog"}));
  EXPECT_EQ(labels_in(*source).labels(1), Labels{1});
  ASSERT_EQ(source->warnings().size(), 1u);
  EXPECT_EQ(error_of([&] { fail(source->warnings()[0]); }, &folder),
            "DIR/l.csv: columns without 0 and 1 are no classes and left out: age");
}

TEST(Table, UnderAPathOfItsOwnItsMarksHoldUnlessThereAreNone) {
  const TemporaryFolder folder;
  SourceConfig config = {.path = folder.write("l.csv", "path,label,split\na,x,train\nb,y,test\nc,y,train\n")};
  config.val_path = config.path;
  EXPECT_EQ(labels_of(*open_source(config, Split::train)), (Labels{0, 1}));
  EXPECT_EQ(labels_of(*open_source(config, Split::validation)), Labels{1});
  config.val_path = folder.write("v.csv", "path,label,split\na,x,train\nb,y,train\n");
  EXPECT_EQ(labels_of(*open_source(config, Split::validation)), (Labels{0, 1}));
}

TEST(Table, TheHeldOutTableTakesTheClassesOfTheTrainingTable) {
  const TemporaryFolder folder;
  SourceConfig config = {.path = folder.write("t.csv", "a,x\nb,y\nc,z\n"),
                         .val_path = folder.write("v.csv", "d,z\n")};
  const auto held_out = open_source(config, Split::validation);
  EXPECT_EQ(labels_in(*held_out).class_names(), (Names{"x", "y", "z"}));
  EXPECT_EQ(labels_of(*held_out), Labels{2});
  config.val_path = folder.write("w.csv", "d,w\n");
  EXPECT_EQ(error_of([&] { open_source(config, Split::validation); }, &folder),
            "DIR/w.csv line 1 has label 'w', which is no class");
}

TEST(Table, WithoutSplitsTheShareIsHeldOut) {
  const TemporaryFolder folder;
  std::string rows;
  for (int i = 0; i < 100; ++i)
    rows += "p" + std::to_string(i) + ".jpg," + (i % 4 == 0 ? "rare" : "often") + "\n";
  const SourceConfig config = {.path = folder.write("l.csv", rows), .val_share = 0.2};
  EXPECT_EQ(class_counts(*open_source(config, Split::train)), (Labels{60, 20}));
  EXPECT_EQ(class_counts(*open_source(config, Split::validation)), (Labels{15, 5}));
}

}  // namespace
}  // namespace tessera::data
