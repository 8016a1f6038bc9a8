#include <gtest/gtest.h>

#include "data/base/data_testing.h"
#include "data/base/source.h"

namespace tessera::data {
namespace {

std::vector<std::string> problems_of(const SourceConfig& config, const TemporaryFolder& folder) {
  std::vector<std::string> lines;
  for (const std::string& line : open_source_with_problems(config, Split::train)->problems())
    lines.push_back(error_of([&] { fail(line); }, &folder));
  return lines;
}

using Labels = std::vector<int64_t>;
using Names = std::vector<std::string>;

TEST(Table, NamesWithAHeaderInAnyOrder) {
  const TemporaryFolder folder;
  folder.write("images/a.jpg", "A");
  const SourceConfig config = {
      .path = folder.write(
          "l.csv", "Label,id,Path\r\ndog,1,images/a.jpg\r\n\"c, at\",2,b.jpg\r\ndog,3,/tmp/c.jpg\r\n"),
      .val_share = 0};
  const auto source = open_source(config, Split::train);
  EXPECT_EQ(labels_in(*source).class_names(), (Names{"c, at", "dog"}));
  EXPECT_EQ(labels_of(*source), (Labels{1, 0, 1}));
  const RawSample sample = source->read(0);
  EXPECT_EQ(sample.name, folder.path("images/a.jpg"));
  EXPECT_EQ(std::get<std::vector<std::byte>>(sample.picture), std::vector<std::byte>{std::byte{'A'}});
  EXPECT_NE(error_of([&] { source->read(1); }).find(folder.path("b.jpg")), std::string::npos);
  EXPECT_NE(error_of([&] { source->read(2); }).find("/tmp/c.jpg"), std::string::npos);
  EXPECT_EQ(source->describe(), "table " + config.path + ", 3 images, 2 classes");
}

TEST(Table, NumbersWithoutAHeaderAndAnotherRoot) {
  const TemporaryFolder folder;
  folder.write("elsewhere/a.png", "A");
  const SourceConfig config = {.path = folder.write("l.tsv", "a.png\t2\nb.png\t0\n"),
                               .val_share = 0,
                               .image_root = folder.path("elsewhere")};
  const auto source = open_source(config, Split::train);
  EXPECT_EQ(labels_in(*source).class_names(), (Names{"0", "1", "2"}));
  EXPECT_EQ(labels_of(*source), (Labels{2, 0}));
  EXPECT_EQ(source->read(0).name, folder.path("elsewhere/a.png"));
}

TEST(Table, NumbersThatAreNoIndicesAreNames) {
  const TemporaryFolder folder;
  const auto open = [&](const std::string& name, const std::string& content) {
    return open_source({.path = folder.write(name, content), .val_share = 0}, Split::train);
  };
  for (const char* content : {"a.png,1\nb.png,2\nc.png,3\n", "a.png,01\nb.png,02\nc.png,03\n"}) {
    const auto source = open("from1.csv", content);
    EXPECT_EQ(labels_in(*source).class_names(), (Names{"1", "2", "3"}));
    EXPECT_EQ(labels_of(*source), (Labels{0, 1, 2}));
    ASSERT_EQ(source->warnings().size(), 1u);
  }
  EXPECT_EQ(labels_of(*open("y.json", R"([{"path":"a","label":2020},{"path":"b","label":1999}])")),
            (Labels{1, 0}));
  EXPECT_EQ(labels_in(*open("list.txt",
                            "\xEF\xBB\xBF"
                            "a.png 0\nb.png 1\n"))
                .class_names(),
            (Names{"0", "1"}));
  const auto marked = open("l.txt",
                           "\xEF\xBB\xBF"
                           "a.png 0\n");
  EXPECT_EQ(error_of([&] { marked->read(0); }, &folder),
            "cannot open 'DIR/a.png': No such file or directory");
}

TEST(Table, ClassesWithoutTrainingImagesAreNamed) {
  const TemporaryFolder folder;
  const SourceConfig config = {
      .path = folder.write("l.csv", "path,label,split\na,cat,train\nb,dog,train\nc,owl,dev\n")};
  const auto train = open_source(config, Split::train), held_out = open_source(config, Split::validation);
  EXPECT_EQ(set_warnings(train.get(), held_out.get()),
            Names{"class 2 ('owl') has no training image, but 1 for validation"});
}

// The first line that is not empty decides, whatever the name of the file.
TEST(Table, EverySeparatorIsRead) {
  const TemporaryFolder folder;
  const Names lines = {"path,label", "a.png,x;y", "b.png,z"};
  for (const auto& [name, separator] :
       {std::pair("a.csv", ','), {"b.csv", ';'}, {"c.csv", '\t'}, {"d.tsv", '\t'}, {"e.tsv", ','}})
    for (const char* end : {"\n", "\r\n", "\r"}) {
      std::string content = end;
      for (std::string line : lines) {
        line.replace(line.find(','), 1, 1, separator);
        if (separator == ';')
          line.replace(std::min(line.find("x;y"), line.size()), 3,
                       line.find("x;y") == std::string::npos ? "" : "\"x;y\"");
        content += line + end;
      }
      const auto source = open_source({.path = folder.write(name, content), .val_share = 0}, Split::train);
      EXPECT_EQ(labels_in(*source).class_names(), (Names{"x;y", "z"})) << name;
    }
}

// As pandas, spreadsheets and Windows write them.
TEST(Table, CommentsBeforeTheTitlesAreSkipped) {
  const TemporaryFolder folder;
  const std::string path = folder.write("t.csv", "# made by hand\n\n#2 of 3\nlabel,path\nx,a.png\ny,b.png\n");
  const auto source = open_source({.path = path, .val_share = 0}, Split::train);
  EXPECT_EQ(source->class_labels()->class_names(), (std::vector<std::string>{"x", "y"}));
  const std::string tabs = folder.write("tabs.txt", "a.png\tx\t\nb.png\ty\t\n");  // a separator at each end
  EXPECT_EQ(open_source({.path = tabs, .val_share = 0}, Split::train)->class_labels()->class_names(),
            (std::vector<std::string>{"x", "y"}));
}

TEST(Table, PathsAndNumbersOfOtherPrograms) {
  const TemporaryFolder folder;
  folder.write("images/a.png", "A");
  const auto source = open_source(
      {.path = folder.write("l.csv", "file_name,category\nimages\\a.png,1.0\nb.png,0.0\nc.png,2\n"),
       .val_share = 0},
      Split::train);
  EXPECT_EQ(source->read(0).name, folder.path("images/a.png"));
  EXPECT_EQ(labels_in(*source).class_names(), (Names{"0", "1", "2"}));
  EXPECT_EQ(labels_of(*source), (Labels{1, 0, 2}));
  EXPECT_EQ(labels_in(*open_source({.path = folder.write("v.csv", "a.png,v1.0\nb.png,.0\n"), .val_share = 0},
                                   Split::train))
                .class_names(),
            (Names{".0", "v1.0"}));
}

TEST(Table, WholeNumbersWithAFractionAreClassNumbers) {
  const TemporaryFolder folder;
  const auto open = [&](const std::string& content, const std::string& class_names = "") {
    return open_source({.path = folder.write("l.csv", content), .val_share = 0, .class_names = class_names},
                       Split::train);
  };
  for (const char* content : {"a,2.0\nb,0.0\nc,1.0\n", "a,2\nb,0\nc,1\n"}) {
    const auto source = open(content);
    EXPECT_EQ(labels_in(*source).class_names(), (Names{"0", "1", "2"}));
    EXPECT_EQ(labels_of(*source), (Labels{2, 0, 1}));
  }
  const auto years = open("a,2020.0\nb,1999.0\n");
  EXPECT_EQ(labels_in(*years).class_names(), (Names{"1999", "2020"}));
  EXPECT_EQ(labels_of(*years), (Labels{1, 0}));
  const auto marked = open("path,cat,dog\na,1.0,0.0\nb,0.0,1.0\n");
  EXPECT_EQ(labels_in(*marked).labels(1), Labels{1});
  EXPECT_EQ(labels_of(*open("a,1.0\nb,0.0\n", folder.write("cats.txt", "cat\ndog\n"))), (Labels{1, 0}));
}

// As in several contests: ids without a suffix, in a table next to the folder of images.
TEST(Table, IdsAreFilesOfTheFolderNextToTheTable) {
  const TemporaryFolder folder;
  folder.write("train/0a.jpg", "A"), folder.write("train/0b.jpg", "B");
  for (const char* titles : {"id,breed", "image_id,label", "id_code,diagnosis"})
    for (const char* name : {"labels.csv", "train.csv"}) {
      const auto source = open_source(
          {.path = folder.write(name, std::string(titles) + "\n0a,cat\n0b,dog\n"), .val_share = 0},
          Split::train);
      EXPECT_EQ(labels_in(*source).class_names(), (Names{"cat", "dog"}));
      EXPECT_EQ(source->read(1).name, folder.path("train/0b.jpg"));
    }
}

TEST(Table, TheIndexOfPandasIsNoClass) {
  const TemporaryFolder folder;
  for (const char* title : {"", "Unnamed: 0"}) {
    const auto source = open_source(
        {.path = folder.write("l.csv", std::string(title) + ",path,cat,dog\n0,a,1,0\n1,b,0,1\n2,c,1,1\n"),
         .val_share = 0},
        Split::train);
    EXPECT_EQ(labels_in(*source).class_names(), (Names{"cat", "dog"}));
    EXPECT_EQ(labels_in(*source).labels(2), (Labels{0, 1}));
  }
}

TEST(Table, ARarerTitleSplitsIfAllItsValuesAreSplits) {
  const TemporaryFolder folder;
  const auto sizes = [&](const std::string& content) {
    const SourceConfig config = {.path = folder.write("l.csv", content), .val_share = 0};
    return Labels{open_source(config, Split::train)->size(),
                  open_source_with_problems(config, Split::validation)->size()};
  };
  EXPECT_EQ(sizes("path,label,subset\na,x,train\nb,y,Test\nc,y,train\n"), (Labels{2, 1}));
  EXPECT_EQ(sizes("path,label,is_valid\na,x,False\nb,y,True\nc,y,False\n"), (Labels{2, 1}));
  EXPECT_EQ(sizes("path,label,set\na,x,1\nb,y,2\nc,y,train\n"), (Labels{3, 0}));
}

// A table for detectors has a line for each box.
TEST(Table, BoxesAreNoClassesOfImages) {
  const TemporaryFolder folder;
  const auto open = [&](const std::string& rows) {
    return error_of(
        [&] {
          open_source(
              {.path = folder.write("l.csv", "filename,class,xmin,ymin,xmax,ymax\n" + rows), .val_share = 0},
              Split::train);
        },
        &folder);
  };
  EXPECT_EQ(open("a.jpg,cat,1,2,3,4\na.jpg,dog,3,4,5,6\n"),
            "DIR/l.csv line 3: a second box of 'a.jpg' (column 'xmin'): boxes must be in files of COCO, "
            "Pascal VOC or "
            "YOLO");
  EXPECT_EQ(open("a.jpg,cat,1,2,3,4\nb.jpg,dog,3,4,5,6\n"), "no error");
}

// Flickr8k's and Flickr30k's files, and a table that is called .txt.
TEST(Table, CaptionsHaveSeveralForms) {
  const TemporaryFolder folder;
  for (const char* image : {"a", "b", "c", "d"}) folder.write(text("images/", image, ".jpg"), image);
  for (const auto& [name, content] :
       {std::pair("captions.txt", "image,caption\na.jpg,A dog .\na.jpg,\"A dog , a cat\"\n"),
        {"token.txt", "a.jpg#0\tA dog .\na.jpg#1\tA dog , a cat\n"},
        {"results.csv", "image_name| comment_number| comment\na.jpg| 0| A dog .\na.jpg| 1| A dog , a cat\n"},
        {"results.token", "a.jpg#0\tA dog .\na.jpg#1\tA dog , a cat\n"},
        {"commas.csv", "image,caption\na.jpg,A dog .\na.jpg,A dog , a cat\n"},
        {"several.csv", "image,caption_0,Caption 1\na.jpg,A dog .,\"A dog , a cat\"\n"},
        {"metadata.jsonl",
         "{\"file_name\": \"a.jpg\", \"text\": \"A dog .\"}\n"
         "{\"file_name\": \"a.jpg\", \"text\": \"A dog , a cat\"}\n"}}) {
    const auto source = open_source({.path = folder.write(name, content), .val_share = 0}, Split::train);
    ASSERT_EQ(source->size(), 1) << name;
    EXPECT_EQ(source->read(0).annotation.captions, (Names{"A dog .", "A dog , a cat"})) << name;
  }
  const auto list = open_source(
      {.path = folder.write("l.txt", "a.jpg\tgreat white\nb.jpg\tcat\n"), .val_share = 0}, Split::train);
  EXPECT_EQ(labels_in(*list).class_names(), (Names{"cat", "great white"}));
  // Without titles, texts are captions if most differ.
  for (const auto& [name, gap] : {std::pair("k.txt", " "), {"k.tsv", "\t"}, {"k.csv", ","}}) {
    std::string lines;
    for (const char* image : {"a", "b", "c", "d"})
      lines += text(image, ".jpg", gap, "a dog of kind ", image, "\n");
    const auto source = open_source({.path = folder.write(name, lines), .val_share = 0}, Split::train);
    EXPECT_EQ(source->class_labels(), nullptr) << name;
    EXPECT_EQ(source->read(1).annotation.captions, Names{"a dog of kind b"}) << name;
    EXPECT_EQ(source->warnings(),
              Names{folder.path(name) + ": the texts are captions, since most of them differ"});
  }
}

// Names of several words are labels if the training list has such, or if the classes are given.
TEST(Table, TextsFollowTheTrainingList) {
  const TemporaryFolder folder;
  const auto lines = [](int count) {
    std::string all;
    for (int i = 0; i < count; ++i) all += text(i, ".jpg Audi S5 Coupe ", i % 4, "\n");
    return all;
  };
  for (int i = 0; i < 40; ++i) folder.write(text(i, ".jpg"), text(i));
  SourceConfig config{.path = folder.write("train.txt", lines(40)),
                      .val_path = folder.write("val.txt", lines(4))};
  EXPECT_EQ(labels_in(*open_source(config, Split::validation)).class_names().size(), 4u);
  config = {.path = folder.path("val.txt"), .val_share = 0};
  EXPECT_EQ(open_source(config, Split::train)->class_labels(), nullptr);
  config.class_names =
      folder.write("names.txt", "Audi S5 Coupe 0\nAudi S5 Coupe 1\nAudi S5 Coupe 2\nAudi S5 Coupe 3\n");
  EXPECT_EQ(labels_in(*open_source(config, Split::train)).class_names().size(), 4u);
}

TEST(Table, JsonHasTheTitlesOfTablesAndWholeNumbers) {
  const TemporaryFolder folder;
  const auto source =
      open_source({.path = folder.write(
                       "l.json", R"([{"file_name": "a.png", "class": 1.0}, {"image": "b.png", "label": 0}])"),
                   .val_share = 0},
                  Split::train);
  EXPECT_EQ(labels_of(*source), (Labels{1, 0}));
}

// A name that looks like a number with a fraction stays a name.
TEST(Table, ClassNamesKeepTheirFraction) {
  const TemporaryFolder folder;
  const auto source = open_source({.path = folder.write("l.csv", "a,v1.0\nb,2.0\nc,1.0\n"),
                                   .val_share = 0,
                                   .class_names = folder.write("names.txt", "2.0\n1.0\nv1.0\n")},
                                  Split::train);
  EXPECT_EQ(labels_in(*source).class_names(), (Names{"2.0", "1.0", "v1.0"}));
  EXPECT_EQ(labels_of(*source), (Labels{2, 0, 1}));
}

TEST(Table, UsualTitlesComeBeforeRarerOnes) {
  const TemporaryFolder folder;
  const auto source =
      open_source({.path = folder.write("l.csv", "img,category,label,path\nx.png,animal,cat,images/a.png\n"),
                   .val_share = 0},
                  Split::train);
  EXPECT_EQ(labels_in(*source).class_names(), Names{"cat"});
  EXPECT_NE(error_of([&] { source->read(0); }).find(folder.path("images/a.png")), std::string::npos);
}

TEST(Table, NamesThatMayBeMistakesAreWarnedOf) {
  const TemporaryFolder folder;
  const auto warnings = [&](const std::string& content) {
    const auto source = open_source({.path = folder.write("l.csv", content), .val_share = 0}, Split::train);
    return set_warnings(source.get(), nullptr);
  };
  EXPECT_EQ(warnings("a,Cat\nb,cat\nc,dog\n"),
            Names{"classes 0 ('Cat') and 1 ('cat') have names that differ by capitals or spaces alone"});
  EXPECT_EQ(warnings("a,NaN\nb,cat\n"),
            Names{"class 0 has the name 'NaN', which tables write for a missing value"});
  EXPECT_EQ(warnings("a,cat\nb,cat\n"),
            Names{"all images are of one class ('cat'): a classifier needs two or more to learn anything"});
  EXPECT_EQ(warnings("path,labels\na,cat\nb,\n"), Names{});  // an image may have no class
  EXPECT_EQ(warnings("a,cat\nb,dog\n"), Names{});
  EXPECT_EQ(warnings("a,0.5\nb,1.0\n"),
            Names{"the classes 0.5, 1.0 are numbers with fractions: each is a class, not a measurement"});
  EXPECT_EQ(
      warnings("path,cat,dog\na,1,0\nb,0,1\n"),
      Names{"every image has exactly one class, but in a form for several (columns of 0 and 1, or lists): "
            "classifiers take it as multi-label"});
}

TEST(Table, SeveralLabelsByBarsByTitleAndByColumns) {
  const TemporaryFolder folder;
  const std::string tables[] = {"path,label\na,cat|dog\nb,dog\nc,\n", "path,labels\na,cat|dog\nb,dog\nc,\n",
                                "path,cat,dog\na,1,1\nb,0,1\nc,0,0\n"};
  for (const std::string& table : tables) {
    const auto source = open_source({.path = folder.write("l.csv", table), .val_share = 0}, Split::train);
    EXPECT_TRUE(labels_in(*source).multi_label()) << table;
    EXPECT_EQ(labels_in(*source).class_names(), (Names{"cat", "dog"})) << table;
    EXPECT_EQ(labels_in(*source).label(0), -1);
    EXPECT_EQ(labels_in(*source).labels(0), (Labels{0, 1})) << table;
    EXPECT_EQ(labels_in(*source).labels(1), Labels{1}) << table;
    EXPECT_TRUE(labels_in(*source).labels(2).empty()) << table;
    EXPECT_EQ(class_counts(*source), (Labels{1, 2}));
  }
}

TEST(Table, AHeldOutTableOfAMultiLabelOneIsMultiLabel) {
  const TemporaryFolder folder;
  const SourceConfig config = {.path = folder.write("t.csv", "a,x|y\nb,y\n"),
                               .val_path = folder.write("v.csv", "d,y\n")};
  const auto held_out = open_source(config, Split::validation);
  EXPECT_TRUE(labels_in(*held_out).multi_label());
  EXPECT_EQ(labels_in(*held_out).labels(0), Labels{1});
}

// As in VTAB-1k's lists; the last word is the label.
TEST(Table, AListHasAPathAndALabelALine) {
  const TemporaryFolder folder;
  folder.write("images/a b.png", "A");
  const SourceConfig config = {
      .path = folder.write("train800.txt", "images/a b.png 2\r\n\nimages/c.png\t0\n"),
      .val_path = folder.write("val200.txt", "images/d.png 3\n")};
  const auto train = open_source(config, Split::train), held_out = open_source(config, Split::validation);
  EXPECT_EQ(labels_of(*train), (Labels{2, 0}));
  EXPECT_EQ(train->read(0).name, folder.path("images/a b.png"));
  EXPECT_EQ(labels_of(*held_out), Labels{3});
  EXPECT_EQ(labels_in(*train).class_names(), (Names{"0", "1", "2", "3"}));  // of both lists
  EXPECT_EQ(labels_in(*held_out).class_names(), labels_in(*train).class_names());
  EXPECT_EQ(train->describe(), "table " + config.path + ", 2 images, 4 classes");
  const SourceConfig named = {.path = folder.write("t.txt", "a.png dog\nb.png cat\n"),
                              .val_path = folder.write("v.txt", "c.png dog\n")};
  EXPECT_EQ(labels_of(*open_source(named, Split::validation)),
            Labels{1});  // index in the training list's names
}

TEST(Table, PicturesAlone) {
  const TemporaryFolder folder;
  for (const char* name : {"l.csv", "l.json", "l.txt"}) {
    const std::string kind = name;
    const SourceConfig config = {
        .path = folder.write(kind, kind == "l.csv"    ? "path,split\na.png,train\nb b.png,val\nc.png,train\n"
                                   : kind == "l.json" ? R"([{"path": "a.png"}, {"path": "b b.png"}])"
                                                      : "a.png\nb b.png\n"),
        .val_share = 0};
    const auto source = open_source(config, Split::train);
    EXPECT_EQ(source->size(), 2) << name;
    EXPECT_EQ(source->class_labels(), nullptr) << name;
    EXPECT_EQ(source->describe(), "table " + config.path + ", 2 images, no labels");
  }
}

TEST(Table, Json) {
  const TemporaryFolder folder;
  const auto single = open_source(
      {.path = folder.write("s.json", R"([{"path": "a", "label": "x"}, {"path": "b", "label": "w"}])"),
       .val_share = 0},
      Split::train);
  EXPECT_EQ(labels_in(*single).class_names(), (Names{"w", "x"}));
  EXPECT_EQ(labels_of(*single), (Labels{1, 0}));
  const auto several = open_source(
      {.path = folder.write("m.json", R"([{"path": "a", "labels": [2, 0]}, {"path": "b", "labels": []}])"),
       .val_share = 0},
      Split::train);
  EXPECT_EQ(labels_in(*several).class_names(), (Names{"0", "1", "2"}));
  EXPECT_EQ(labels_in(*several).labels(0), (Labels{0, 2}));
  EXPECT_TRUE(labels_in(*several).labels(1).empty());
}

TEST(Table, NamesComeBeforeNumbersInTextAndAfterThemInJson) {
  const TemporaryFolder folder;
  const std::string names = folder.write("names.txt", "1\n2\n0\n");
  const auto csv = open_source(
      {.path = folder.write("l.csv", "a,1\nb,2\nc,0\n"), .val_share = 0, .class_names = names}, Split::train);
  EXPECT_EQ(labels_of(*csv), (Labels{0, 1, 2}));
  const auto json = open_source(
      {.path = folder.write(
           "l.json",
           R"([{"path": "a", "label": 1}, {"path": "b", "label": "1"}, {"path": "c", "label": 2}])"),
       .val_share = 0,
       .class_names = names},
      Split::train);
  EXPECT_EQ(labels_of(*json), (Labels{1, 0, 2}));
}

TEST(Table, JsonThatMixesNumbersAndNamesIsRefused) {
  const TemporaryFolder folder;
  const auto open = [&](const std::string& rows) {
    return error_of(
        [&] { open_source({.path = folder.write("l.json", rows), .val_share = 0}, Split::train); }, &folder);
  };
  EXPECT_EQ(
      open(R"([{"path": "p", "label": "b"}, {"path": "q", "label": 1}])"),
      "DIR/l.json entry 1 has the number 1 as its label, others have names; must be numbers or names in "
      "all, or give class_names");
  EXPECT_NE(open(R"([{"path": "p", "labels": [2]}, {"path": "q", "labels": ["a"]}])"), "no error");
  EXPECT_EQ(open(R"([{"path": "p", "label": "0"}, {"path": "q", "label": 1}])"), "no error");
}

TEST(Table, APictureThatIsNamedSeveralTimesIsInOneSet) {
  const TemporaryFolder folder;
  std::string rows;
  for (int i = 0; i < 300; ++i)
    rows += "p" + std::to_string(i % 30) + ".jpg," + (i % 7 == 0 ? "b" : "a") + "\n";
  const SourceConfig config = {.path = folder.write("l.csv", rows), .val_share = 0.2};
  const auto count = [&](Split split) { return open_source(config, split)->size(); };
  EXPECT_EQ(count(Split::train), 240);
  EXPECT_EQ(count(Split::validation), 60);
}

TEST(Table, EveryProblemIsNamed) {
  const TemporaryFolder folder;
  const std::string names = folder.write("names.txt", "cat\ndog\nbird\n");
  SourceConfig config = {
      .path = folder.write("l.csv", "path,label\na,cat\nb,dogg\nc\nd,7\ne,\n,cat\nf,-1\ng,dog\n"),
      .val_share = 0,
      .class_names = names};
  EXPECT_EQ(problems_of(config, folder),
            (Names{"DIR/l.csv line 4 has 1 columns, must have 2",
                   "DIR/l.csv line 3 has label 'dogg', which is no class, did you mean 'dog'?",
                   "DIR/l.csv line 5 has label 7, must be 0 to 2", "DIR/l.csv line 6 has no label",
                   "DIR/l.csv line 7 has an empty path",
                   "DIR/l.csv line 8 has label -1, must be 0 to the number of classes less one",
                   "DIR/l.csv: class 2 ('bird') is empty: no image has it"}));
  config = {.path = folder.write("m.csv", "path,x,y\na,1,2\nb,1,1\n"), .val_share = 0};
  EXPECT_EQ(problems_of(config, folder), Names{"DIR/m.csv line 2: column 'y' holds '2', must be 0 or 1"});
  config = {.path = folder.write("l.json", R"([3, {"label": 1}, {"path": "a"}, {"path": "a", "label": 1.5},
      {"path": "a", "label": 1, "labels": []}, {"path": "a", "label": ""}, {"path": "a", "label": "x"}])"),
            .val_share = 0};
  EXPECT_EQ(problems_of(config, folder),
            (Names{R"(DIR/l.json entry 0 is number, must be an object such as {"path": …, "label": …})",
                   "DIR/l.json entry 1 has no text 'path'",
                   "DIR/l.json entry 2 must have either 'label' or 'labels'",
                   "DIR/l.json entry 3: a label is number, must be a whole number or a class name",
                   "DIR/l.json entry 4 must have either 'label' or 'labels'",
                   "DIR/l.json entry 5 has an empty label"}));
}

TEST(Table, AFileThatIsNoTableIsNamed) {
  const TemporaryFolder folder;
  const auto open = [&](const std::string& name, const std::string& content) {
    return error_of([&] { open_source({.path = folder.write(name, content)}, Split::train); }, &folder);
  };
  EXPECT_EQ(open("l.csv", ""), "DIR/l.csv is empty");
  EXPECT_EQ(open("l.csv", "a,b,c\n"),
            "DIR/l.csv has 3 columns and no title 'path'; must have two (path, label) or such a header");
  EXPECT_EQ(open("l.csv", "photo,label\n1.jpg,3\n2,4\n"),
            "DIR/l.csv starts with titles, 'photo' and so on, but none of them is 'path': the column of the "
            "images' files must be called so");
  const std::string headless = open("l.csv", "1.jpg,target\n2.jpg,other\n");
  EXPECT_EQ(headless.find("starts with titles"), std::string::npos) << headless;
  EXPECT_EQ(open("l.csv", "1.jpg,image\n2.jpg,file\n"), "no error");  // classes with the names of columns
  folder.write("titled.csv", "filepath,title\na.jpg,a cat\nb.jpg,a dog\n");
  const auto titled = open_source({.path = folder.path("titled.csv"), .val_share = 0}, Split::train);
  folder.write("a.jpg", "x"), folder.write("b.jpg", "x");
  EXPECT_EQ(titled->read(1).annotation.captions, std::vector<std::string>{"a dog"});
  EXPECT_EQ(open("l.csv", "path,other\n"),
            "DIR/l.csv has no column titled 'label' or 'caption', nor two or more of 0 and 1; the titles are "
            "path, other");
  EXPECT_EQ(open("l.csv", "a,\xff\n"), "DIR/l.csv is not UTF-8 text: save it as UTF-8");
  EXPECT_EQ(open("l.csv", "path,label,split\na,b,later\n"),
            "DIR/l.csv line 2: split is 'later', must be train, val or test");
  EXPECT_EQ(open("l.json", "{}"), R"(DIR/l.json is object, must be a list of {"path": …, "label": …})");
  EXPECT_EQ(open("l.json", "[[[[[1]]]]]"), "DIR/l.json: JSON is nested deeper than 4");
}

}  // namespace
}  // namespace tessera::data
