// The parts of a set that each task reads.
#include "tasks/base/registry.h"

#include <gtest/gtest.h>

#include "core/text.h"
#include "data/base/data_testing.h"
#include "data/base/objects.h"
#include "data/transforms/mask_labels.h"
#include "io/files/file.h"
#include "io/images/image.h"

namespace tessera::tasks {
namespace {

using data::CaptionUse;

TEST(DataFor, TasksReadClassesMasksOrCaptions) {
  const auto captions = [](const char* task) { return data_for(find_task(task), {}).captions; };
  for (const char* task : {"classify", "mae", "segment", "detect", "diffuse", "simmim", "beit"})
    EXPECT_EQ(captions(task), CaptionUse::none) << task;
  for (const char* task : {"clip", "coca", "simvlm"})
    EXPECT_EQ(captions(task), CaptionUse::over_boxes) << task;
  for (const char* task : {"language", "instruct", "frozen", "flamingo", "bert"})
    EXPECT_EQ(captions(task), CaptionUse::as_found) << task;
  for (const TaskKind& kind : task_kinds())
    EXPECT_EQ(data_for(kind, {}).reads_masks, std::string(kind.name) == "segment") << kind.name;
  EXPECT_TRUE(data_for(find_task("classify"), {}).reads_classes);
  EXPECT_FALSE(data_for(find_task("simmim"), {}).reads_classes);
  EXPECT_EQ(data_for(find_task("mae"), {.path = "a", .val_share = 0.5}).val_share, 0.5);
}

TEST(DataFor, PascalVocHasMasksForSegmentationAndBoxesForOthers) {
  const data::TemporaryFolder folder;
  for (const char* name : {"JPEGImages/a.png", "JPEGImages/b.png", "SegmentationClass/a.png"})
    write_file_atomic(folder.write(name, ""), encode_png(Image(8, 8)));
  for (const char* name : {"a", "b"})
    folder.write(text("Annotations/", name, ".xml"), "<annotation></annotation>");
  const auto open = [&](const char* task) {
    return data::open_source(data_for(find_task(task), {.path = folder.path(), .val_share = 0}),
                             data::Split::train);
  };
  EXPECT_EQ(open("segment")->size(), 1);
  EXPECT_NE(data::mask_labels(*open("segment")), nullptr);
  EXPECT_EQ(open("detect")->size(), 2);
  EXPECT_NE(data::object_labels(*open("detect")), nullptr);
}

}  // namespace
}  // namespace tessera::tasks
