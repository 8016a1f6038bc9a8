// Interleaved documents as a source: both forms, files and shards, and errors by name.
#include "data/sources/interleaved.h"

#include <gtest/gtest.h>

#include <set>

#include "core/text.h"
#include "data/base/annotations.h"
#include "data/base/data_testing.h"
#include "data/tools/check.h"
#include "io/files/tar.h"
#include "io/images/image.h"

namespace tessera::data {
namespace {

using Strings = std::vector<std::string>;

std::string png(uint8_t shade) {
  Image image(4, 4);
  image.pixels.assign(48, shade);
  const std::vector<std::byte> bytes = encode_image(image, "a.png");
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Writes two documents of three images, one in each form, and one without images.
std::string some_documents(const TemporaryFolder& folder) {
  folder.write("a.png", png(10)), folder.write("b.png", png(20)), folder.write("sub/c.png", png(30));
  return folder.write(
      "docs.jsonl",
      R"({"text_list": ["Before.", "A cat.", "It sleeps. ", "A dog."], "image_info": [{"image_name": "b.png", )"
      R"("matched_text_index": 3, "raw_url": "x"}, {"image_name": "a.png", "matched_text_index": 1}], "url": "u"})"
      "\n\n"
      R"({"images": ["sub/c.png", null, null], "texts": [null, "One.", "Two."]})"
      "\n"
      R"({"text_list": ["Words alone."], "image_info": []})"
      "\n");
}

std::unique_ptr<Source> open_documents(const std::string& path, Split split = Split::train,
                                       double share = 0) {
  return open_source({.path = "interleaved:" + path, .val_share = share}, split);
}

const Interleaved& documents_in(const Source& source) { return dynamic_cast<const Interleaved&>(source); }

int shade_of(const RawSample& sample) { return decode_sample(sample).pixels[0]; }

TEST(Interleaved, BothFormsAreTextsAroundImages) {
  const TemporaryFolder folder;
  const auto source = open_documents(some_documents(folder));
  ASSERT_EQ(source->size(), 2);
  EXPECT_EQ(source->describe(), "interleaved " + folder.path("docs.jsonl") +
                                    ", 2 documents with 3 images; 1 without an image left out");
  const RawSample first = source->read(0);
  EXPECT_EQ(first.annotation.captions, (Strings{"Before.", "A cat. It sleeps.", "A dog."}));
  EXPECT_EQ(first.annotation.classes, std::vector<int64_t>{0});
  EXPECT_EQ(shade_of(first), 10);
  const Interleaved& documents = documents_in(*source);
  EXPECT_EQ(shade_of(documents.image(0, 1)), 20);
  EXPECT_EQ(documents.document(1).texts, (Strings{"", "One.\nTwo."}));
  EXPECT_EQ(shade_of(documents.image(1, 0)), 30);
  EXPECT_EQ(documents.line_of(0), "Before. <image> A cat. It sleeps. <image> A dog.");
  EXPECT_EQ(preview_cells(*source, 2, 0, 8).at(1).caption, "<image> One.\nTwo.");
  EXPECT_EQ(source->annotations()->facts(2).json["documents"].dump(),
            R"({"documents":2,"images":1.5,"words":4.5})");
}

TEST(Interleaved, ImagesMayLieElsewhere) {
  const TemporaryFolder folder;
  folder.write("images/a.png", png(60));
  const std::string path = folder.write("docs.jsonl", R"({"images": ["a.png", null], "texts": [null, "x"]})");
  const auto source = open_source(
      {.path = "interleaved:" + path, .val_share = 0, .image_root = folder.path("images")}, Split::train);
  EXPECT_EQ(shade_of(source->read(0)), 60);
}

TEST(Interleaved, ShardsHoldTheirImages) {
  const TemporaryFolder folder;
  TarWriter shard(folder.path("docs-000.tar"));
  shard.add("x/1.json", R"({"images": ["p.png", null, "q.png"], "texts": [null, "p", null]})");
  shard.add("x/p.png", png(40));
  shard.add("q.png", png(50));
  shard.commit();
  folder.write("more.jsonl", R"({"images": ["docs-000.tar/q.png", null], "texts": [null, "q"]})");
  const auto source = open_documents(folder.path());
  ASSERT_EQ(source->size(), 2);
  const Interleaved& documents = documents_in(*source);
  EXPECT_EQ(shade_of(documents.image(0, 0)), 40);
  EXPECT_EQ(shade_of(documents.image(0, 1)), 50);
  EXPECT_EQ(shade_of(documents.image(1, 0)), 50);
  EXPECT_EQ(documents.document(0).name, folder.path("docs-000.tar") + ": x/1.json");
}

// OpenFlamingo's conversion of MMC4: base64 images in lines or in shard members.
TEST(Interleaved, ImagesMayBeInTheRecord) {
  const TemporaryFolder folder;
  folder.write("a.png", png(10));
  const auto coded = [](uint8_t shade) {
    const std::string bytes = png(shade);
    return to_base64(std::as_bytes(std::span(bytes)));
  };
  const std::string record =
      R"({"text_list": ["One.", "Two.", "Three."], "image_info": [{"image_base64": ")" + coded(40) +
      R"(", "matched_text_index": 2, "image_name": "c.png"}, {"image_name": "a.png", "matched_text_index": 1}, )"
      R"({"image_base64": ")" +
      coded(50) + R"(", "matched_text_index": 0}]})";
  const std::string shard = folder.path("docs.tar");
  TarWriter writer(shard);
  writer.add("x.json", record);
  writer.add("a.png", png(10));
  writer.commit();
  for (const std::string& path : {folder.write("docs.jsonl", record + "\n"), shard}) {
    const auto source = open_documents(path);
    ASSERT_EQ(source->size(), 1) << path;
    const Interleaved& documents = documents_in(*source);
    EXPECT_EQ(documents.document(0).texts, (Strings{"", "One.", "Two.", "Three."}));
    EXPECT_EQ(shade_of(documents.image(0, 0)), 50);
    EXPECT_EQ(shade_of(documents.image(0, 1)), 10);
    EXPECT_EQ(shade_of(documents.image(0, 2)), 40);
    EXPECT_TRUE(documents.problems_of(0).empty());
  }
  const auto refusal = [&](const std::string& bytes) {
    const std::string path =
        folder.write("bad.jsonl", R"({"text_list": ["One."], "image_info": [{"image_base64": )" + bytes +
                                      R"(, "matched_text_index": 0}]})"
                                      "\n");
    return error_of([&] { open_documents(path)->read(0); }, &folder);
  };
  EXPECT_EQ(refusal("\"?\""), "DIR/bad.jsonl line 1: its image 'in the record' is not base64");
  EXPECT_EQ(refusal("3"),
            "DIR/bad.jsonl line 1: 'image_info' entry 1: 'image_base64' is number, must be a text");
}

TEST(Interleaved, MayBeMeasuredOnImagesWithClasses) {
  const TemporaryFolder folder;
  const auto documents = open_documents(some_documents(folder)),
             shapes = open_source({.path = "shapes:train=4,val=4"}, Split::validation);
  EXPECT_NO_THROW(require_same_classes(*documents, *shapes));
}

TEST(Interleaved, AShareOfTheDocumentsIsForValidation) {
  const TemporaryFolder folder;
  folder.write("a.png", png(1));
  std::string lines;
  for (int i = 0; i < 20; ++i)
    lines += R"({"images": ["a.png", null], "texts": [null, ")" + std::to_string(i) + "\"]}\n";
  const std::string path = folder.write("docs.jsonl", lines);
  std::multiset<std::string> all;
  for (const Split split : {Split::train, Split::validation}) {
    const auto source = open_documents(path, split, 0.25);
    EXPECT_EQ(source->size(), split == Split::train ? 15 : 5);
    for (int64_t i = 0; i < source->size(); ++i) all.insert(source->read(i).annotation.captions.at(1));
  }
  EXPECT_EQ(all.size(), 20u);
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), 20u);
  EXPECT_NE(open_documents(path, Split::train, 0.25)->fingerprint(), open_documents(path)->fingerprint());
}

TEST(Interleaved, WhatIsWrongIsNamedByFileRecordAndField) {
  const TemporaryFolder folder;
  folder.write("a.png", png(1));
  const auto error_in = [&](const std::string& record) {
    const std::string path = folder.write("bad.jsonl", record + "\n");
    return error_of([&] { open_documents(path)->read(0); }, &folder);
  };
  EXPECT_EQ(error_in("[1]"), "DIR/bad.jsonl line 1 is no JSON object");
  EXPECT_EQ(error_in(R"({"text": "x"})"),
            "DIR/bad.jsonl line 1 has neither 'text_list' and 'image_info' (MMC4) nor 'images' and 'texts' "
            "(OBELICS)");
  EXPECT_EQ(error_in(R"({"text_list": ["x"]})"), "DIR/bad.jsonl line 1 has no 'image_info'");
  EXPECT_EQ(error_in(R"({"text_list": "x", "image_info": []})"),
            "DIR/bad.jsonl line 1: 'text_list' is string, must be an array");
  EXPECT_EQ(error_in(R"({"text_list": ["x", 3], "image_info": []})"),
            "DIR/bad.jsonl line 1: 'text_list' entry 2 is number, must be a text");
  EXPECT_EQ(error_in(R"({"text_list": ["x"], "image_info": [{"image_name": "a.png"}]})"),
            "DIR/bad.jsonl line 1: 'image_info' entry 1 has no whole number 'matched_text_index'");
  for (const char* place : {"1", "-1"})
    EXPECT_EQ(
        error_in(text(R"({"text_list": ["x"], "image_info": [{"image_name": "a.png", "matched_text_index": )",
                      place, "}]}")),
        text("DIR/bad.jsonl line 1: 'image_info' entry 1: 'matched_text_index' is ", place,
             ", must be 0 to 0, the number of a text"));
  EXPECT_EQ(error_in(R"({"images": [null], "texts": ["x", "y"]})"),
            "DIR/bad.jsonl line 1 has 1 'images' and 2 'texts', must be as many of both");
  EXPECT_EQ(error_in(R"({"images": ["a.png"], "texts": ["x"]})"),
            "DIR/bad.jsonl line 1: place 1 has both image and text, must be one of them and null");
  EXPECT_EQ(error_in(R"({"images": ["b.png", null], "texts": [null, "x"]})"),
            "DIR/bad.jsonl line 1: its image 'DIR/b.png' does not exist");
  EXPECT_EQ(
      error_in(R"({"images": ["https://a/b.png", null], "texts": [null, "x"]})"),
      "DIR/bad.jsonl line 1: its image 'https://a/b.png' is an address: fetch it first, and name the file");
  EXPECT_EQ(error_in(R"({"images": [""], "texts": [null]})"),
            "DIR/bad.jsonl line 1 names an image by an empty text");
  EXPECT_EQ(error_of([] { open_documents("docs.txt"); }),
            "data path 'interleaved:docs.txt' must be a .jsonl file, tar shards or a folder of these, as "
            "documents are "
            "kept");
}

TEST(Interleaved, CheckLooksAtEveryImageAndEveryText) {
  const TemporaryFolder folder;
  const std::string path = some_documents(folder);
  const SourceConfig config{.path = "interleaved:" + path, .val_share = 0};
  const CheckReport sound = check_data(config);
  EXPECT_EQ(sound.problems(), 0);
  EXPECT_EQ(sound.splits.at(0).pictures, 3);
  EXPECT_EQ(sound.splits.at(0).readable, 3);
  folder.write("b.png", "no image");
  folder.write("docs.jsonl", R"({"images": ["a.png", "b.png", "a.png"], "texts": [null, null, null]})"
                             "\n{}\n");
  const CheckReport report = check_data(config);
  EXPECT_EQ(report.set.count, 1);
  EXPECT_EQ(report.unreadable.count, 1);
  EXPECT_EQ(report.duplicates.count, 0);
  EXPECT_EQ(report.captions.lines, (Strings{path + " line 1: has no words",
                                            path + " line 1: shows '" + folder.path("a.png") + "' twice"}));
}

}  // namespace
}  // namespace tessera::data
