#include "data/base/captions.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "data/base/data_testing.h"

namespace tessera::data {
namespace {

using Texts = std::vector<std::string>;

TEST(Captions, LinesAreTrimmedAndEmptyOnesDropped) {
  EXPECT_EQ(captions_of_lines(" a dog \r\n\n two dogs", "x"), (Texts{"a dog", "two dogs"}));
  EXPECT_TRUE(captions_of_lines("", "x").empty());
  EXPECT_EQ(captions_of_lines("\xEF\xBB\xBF a dog\n", "x"), Texts{"a dog"});  // after a byte order mark
  EXPECT_THROW(captions_of_lines("a \xff dog", "x"), Error);
}

TEST(Captions, JsonHasOneOrSeveral) {
  EXPECT_EQ(captions_of_json(nlohmann::json::parse(R"({"caption": "a"})"), "x"), Texts{"a"});
  EXPECT_TRUE(captions_of_json(nlohmann::json::parse(R"({"caption": null})"), "x").empty());
  EXPECT_EQ(captions_of_json(nlohmann::json::parse(R"({"captions": ["a", "b"]})"), "x"), (Texts{"a", "b"}));
  EXPECT_TRUE(captions_of_json(nlohmann::json::parse(R"({"label": 3})"), "x").empty());
  EXPECT_THROW(captions_of_json(nlohmann::json::parse(R"({"captions": [3]})"), "x"), Error);
  EXPECT_EQ(captions_of_json(nlohmann::json::parse(R"({"caption": ["a", "b"]})"), "x"), (Texts{"a", "b"}));
  EXPECT_EQ(captions_of_json(nlohmann::json::parse(R"({"captions": "a"})"), "x"), Texts{"a"});
  EXPECT_THROW(captions_of_json(nlohmann::json::parse(R"({"caption": 3})"), "x"), Error);
}

TEST(Captions, ProblemsAreNamed) {
  RawSample sample{"s", Image(), {}};
  sample.annotation.captions = {"a dog", "", "a dog", "a\x01 b"};
  EXPECT_EQ(caption_problems(sample).size(), 3u);
  sample.annotation.captions = {"a dog", "a cat"};
  EXPECT_TRUE(caption_problems(sample).empty());
}

TEST(CaptionFiles, LinesOfOnePathAreOneSample) {
  const TemporaryFolder folder;
  const std::string table =
      folder.write("t.csv", "path,caption\na.png,one\nb.png,\"two, three\"\na.png,four\n");
  const auto source = open_source_with_problems({.path = table, .val_path = table}, Split::train);
  EXPECT_EQ(source->size(), 2);
  EXPECT_EQ(source->class_labels(), nullptr);
  EXPECT_TRUE(source->problems().empty());
}

// A map of images to texts has captions, unless these look like classes.
TEST(CaptionFiles, AMapOfImagesHasCaptionsOrClasses) {
  const TemporaryFolder folder;
  folder.write("a.png", "x");
  const auto open = [&](const std::string& content) {
    return open_source({.path = folder.write("t.json", content), .val_share = 0}, Split::train);
  };
  for (const char* texts :
       {R"({"a.png": ["a dog runs on grass", "a dog"], "b.png": ["two cats look at a bird"]})",
        R"([{"image": "a.png", "caption": ["a dog runs on grass", "a dog"]}])"}) {
    const auto source = open(texts);
    EXPECT_EQ(source->class_labels(), nullptr) << texts;
    EXPECT_EQ(source->read(0).annotation.captions, (Texts{"a dog runs on grass", "a dog"})) << texts;
  }
  const auto source =
      open(R"({"a.png": ["black bird", "tern"], "b.png": ["tern"], "c.png": ["black bird"]})");
  EXPECT_EQ(labels_in(*source).class_names(), (Texts{"black bird", "tern"}));
}

TEST(CaptionFiles, AnEmptyCaptionOfATableIsNamed) {
  const TemporaryFolder folder;
  const std::string table = folder.write("t.csv", "path,caption\na.png, \n");
  EXPECT_EQ(open_source_with_problems({.path = table, .val_path = table}, Split::train)->problems().size(),
            1u);
}

TEST(CaptionFiles, CocoCaptionsNameWhatIsWrong) {
  const TemporaryFolder folder;
  const std::string path = folder.write("captions.json", R"({
    "images": [{"id": 1, "file_name": "a.png"}, {"id": 2, "file_name": "b.png"}, {"id": 1, "file_name": "c.png"}],
    "annotations": [{"image_id": 1, "caption": "one"}, {"image_id": 1, "caption": "two"}, {"image_id": 9, "caption": "x"},
                    {"image_id": 2, "caption": " "}]})");
  EXPECT_EQ(source_kind(path), "COCO captions");
  const auto source = open_source_with_problems({.path = path, .val_path = path}, Split::train);
  EXPECT_EQ(source->size(), 2);
  // A repeated id of another file, an empty caption, an image without captions.
  EXPECT_EQ(source->problems().size(), 3u);
  EXPECT_EQ(
      source->warnings(),
      std::vector<std::string>{path + ": left out 1 caption of images that are not in the list of images"});
}

TEST(CaptionFiles, IdsOfCocoCaptionsMayBeTexts) {
  const TemporaryFolder folder;
  folder.write("a.png", "A");
  const std::string path = folder.write("captions.json", R"({
    "images": [{"id": "x", "file_name": "a.png"}, {"id": "0002", "file_name": "b.png"}, {"id": 2, "file_name": "b.png"}],
    "annotations": [{"image_id": 2, "caption": "two"}, {"image_id": "x", "caption": "one"}]})");
  const auto source = open_source({.path = path, .val_path = path}, Split::train);
  ASSERT_EQ(source->size(), 2);
  EXPECT_EQ(source->read(0).annotation.captions, std::vector<std::string>{"one"});
  EXPECT_EQ(source->warnings(), std::vector<std::string>{path + ": 1 image listed more than once"});
}

TEST(CaptionFiles, KarpathysFilesHaveSplitsAndSentences) {
  const TemporaryFolder folder;
  const auto image = [](const std::string& name, const std::string& split) {
    return R"({"filepath": "val2014", "filename": ")" + name + R"(", "split": ")" + split +
           R"(", "sentences": [{"raw": "A dog .", "tokens": ["a", "dog"]}, {"raw": "A cat ."}]})";
  };
  folder.write("val2014/a.jpg", "A");
  const std::string path =
      folder.write("dataset_coco.json", R"({"dataset": "coco", "images": [)" + image("a.jpg", "train") + "," +
                                            image("b.jpg", "restval") + "," + image("c.jpg", "val") + "," +
                                            image("d.jpg", "test") + "]}");
  const auto train = open_source({.path = path}, Split::train),
             held_out = open_source({.path = path}, Split::validation);
  EXPECT_EQ(train->size(), 2);
  EXPECT_EQ(held_out->size(), 1);
  EXPECT_EQ(train->read(0).name, folder.path("val2014/a.jpg"));
  EXPECT_EQ(train->read(0).annotation.captions, (std::vector<std::string>{"A dog .", "A cat ."}));
}

TEST(Captions, StatisticsCountDistinctOnes) {
  const auto source = open_source({.path = "shapes:train=40,val=8"}, Split::train);
  const CaptionStatistics found = caption_statistics(*source, 40);
  EXPECT_EQ(found.images, 40);
  EXPECT_GT(found.captions, found.distinct);
  EXPECT_GT(found.words, 2);
}

}  // namespace
}  // namespace tessera::data
