#include "data/base/list_lines.h"

#include <gtest/gtest.h>

#include "data/base/data_testing.h"

namespace tessera::data {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

Pairs pairs_of(const std::string& content) {
  Pairs pairs;
  for (const ListLine& line : read_list_lines(content, "l.txt").lines)
    pairs.emplace_back(line.path, line.label);
  return pairs;
}

TEST(ListLines, PathsAndNamesMayContainBlanks) {
  EXPECT_EQ(pairs_of("my cat.jpg 3\nb.PNG\t4\n"), (Pairs{{"my cat.jpg", "3"}, {"b.PNG", "4"}}));
  EXPECT_EQ(pairs_of("a.jpg golden retriever\nb.jpg tabby cat\n"),
            (Pairs{{"a.jpg", "golden retriever"}, {"b.jpg", "tabby cat"}}));
  EXPECT_EQ(pairs_of("\"my cat.jpg\" 3\n'b c.jpg' 'red fox'\n"),
            (Pairs{{"my cat.jpg", "3"}, {"b c.jpg", "red fox"}}));
  EXPECT_EQ(pairs_of("a.jpg copy.jpg 3\n"), (Pairs{{"a.jpg copy.jpg", "3"}}));
  // Without a suffix the label is the last word.
  EXPECT_EQ(pairs_of("n01440764/one two 3\n"), (Pairs{{"n01440764/one two", "3"}}));
}

TEST(ListLines, TitlesCommentsAndBlankLinesAreNoImages) {
  EXPECT_EQ(pairs_of("# made by hand\n\npath label\na.png 0\n# end\nb.png 1\n"),
            (Pairs{{"a.png", "0"}, {"b.png", "1"}}));
  EXPECT_EQ(pairs_of("#1 a.png 0\n"), (Pairs{{"#1 a.png", "0"}}));
  EXPECT_EQ(read_list_lines("# one\n\na.png 0\n", "l.txt").lines[0].number, 3);
  EXPECT_EQ(error_of([] { read_list_lines("# alone\n", "l.txt"); }), "l.txt is empty");
}

TEST(ListLines, SplitsMayFollowTheLabels) {
  const ListLines list = read_list_lines("a.png big cat train\nb.png dog val\n", "l.txt");
  EXPECT_TRUE(list.has_split);
  EXPECT_EQ(list.lines[0].label, "big cat");
  EXPECT_EQ(list.lines[1].split, Split::validation);
  // A class may be called so.
  EXPECT_EQ(pairs_of("a.png red train\nb.png blue train\n"),
            (Pairs{{"a.png", "red train"}, {"b.png", "blue train"}}));
  const ListLines numbers = read_list_lines("a.png 3 train\nb.png 12 test\n", "l.txt");
  EXPECT_TRUE(numbers.has_split);
  EXPECT_EQ(numbers.lines[1].label, "12");
  EXPECT_TRUE(numbers.lines[1].test);
  EXPECT_EQ(pairs_of("a.png 3 train\nb.png\t4\ttrain\n"), (Pairs{{"a.png", "3"}, {"b.png", "4"}}));
}

TEST(ListLines, WithoutLabels) {
  const ListLines list = read_list_lines("a b.png\n\"c d.png\"\n", "l.txt");
  EXPECT_FALSE(list.labelled);
  EXPECT_EQ(list.lines[0].path, "a b.png");
  EXPECT_EQ(list.lines[1].path, "c d.png");
}

TEST(ListLines, SeveralNumbersAreNoLabel) {
  const ListLines list = read_list_lines("a.png 0 1\nb.png 3 train\nc.png 4\nd.png\n", "l.txt");
  EXPECT_EQ(list.problems.lines(),
            (std::vector<std::string>{
                "l.txt line 1 has '0 1' after the path, must be one label; several belong in a table, as in "
                "'a.jpg,0|1'",
                "l.txt line 4 is 'd.png', must be a path and a label",
                "l.txt line 2 has the split 'train' after its label, unlike others"}));
  ASSERT_EQ(list.lines.size(), 1u);
  EXPECT_EQ(list.lines[0].label, "4");
}

TEST(ListLines, ALabelBeforeThePathIsRefused) {
  const TemporaryFolder folder;
  folder.write("a.png", "A");
  const std::string path = folder.path("l.txt");
  EXPECT_EQ(error_of([&] { read_list_lines("0 a.png\n1 b.png\n", path); }, &folder),
            "DIR/l.txt line 1 is '0 a.png', must be a path and a label, in this order");
  folder.write("0 a.png", "A");
  EXPECT_EQ(read_list_lines("0 a.png\n1 b.png\n", path).lines[0].path, "0 a.png");
}

}  // namespace
}  // namespace tessera::data
