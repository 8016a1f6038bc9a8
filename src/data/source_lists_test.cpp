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
  EXPECT_EQ(refusal("\xff\n"), "DIR/l.txt is not UTF-8 text");
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

}  // namespace
}  // namespace tessera::data
