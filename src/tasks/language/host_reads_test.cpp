// Tasks that answer about images: where the images are among the words is read from the batch of the host.
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "models/language/llava.h"
#include "ops/read_backs_testing.h"
#include "tasks/language/answering.h"

namespace tessera::tasks {
namespace {

using models::table;

constexpr int64_t kImage = 257;  // after the 256 bytes and their end token

// Two texts of six tokens, with `first` and `second` image tokens.
StreamInputs batch_with(int64_t per_image, int64_t first, int64_t second, int64_t images) {
  torch::Tensor ids = torch::arange(3, 15, torch::kInt32).view({2, 6}), labels = ids.to(torch::kInt32);
  ids[0].slice(0, 0, first * per_image).fill_(kImage), ids[1].slice(0, 0, second * per_image).fill_(kImage);
  labels = labels.clone();
  labels.slice(1, 0, 4).fill_(models::kIgnoredLabel);
  return {
      "train", 2, 0, 2, {{"image", torch::randn({2, images, 3, 32, 32})}, {"ids", ids}, {"labels", labels}}};
}

std::unique_ptr<Task> make_task(const char* name) {
  Value all = table({{"length", 120},
                     {"tokenizer", "bytes"},
                     {"language", table({{"dim", 16}, {"depth", 2}, {"heads", 2}, {"context", 128}})}});
  if (std::string(name) == "flamingo") all.set("every", 1), all.set("latents", 3);
  if (std::string(name) == "frozen") all.set("tokens", 1);
  TaskSetup setup;
  setup.settings = find_task(name).resolve(all);
  setup.model = models::resolve_model(
      "vit",
      table(
          {{"image_size", 32}, {"patch_size", 32}, {"dim", 16}, {"depth", 2}, {"heads", 2}, {"classes", 0}}));
  setup.preprocess.size = 32;
  setup.seed = 3;
  auto task = find_task(name).make(setup);
  move(task->parts(), torch::kCPU, torch::kFloat32);
  return task;
}

TEST(HostReads, AnsweringTasksReadNothingBack) {
  for (const char* name : {"instruct", "frozen", "flamingo"}) {
    const auto task = make_task(name);
    for (const auto& [first, second] : {std::pair{2, 2}, {2, 1}, {0, 0}}) {  // all, some and no images
      const Inputs inputs{{batch_with(1, first, second, 2)}};
      Loss loss;
      EXPECT_EQ(ops::read_backs([&] { loss = task->loss(inputs, {}, Collective::alone()); }), 0)
          << name << ", " << first << " and " << second << " images";
      EXPECT_TRUE(std::isfinite(loss.sum.item<double>()));
    }
  }
}

// A device's tensors have no values here, so that only the host's can be read.
TEST(HostReads, WeightsOfABatchComeFromTheHost) {
  const StreamInputs batch = batch_with(1, 1, 1, 1);
  Inputs there{{batch}};
  for (FieldTensor& field : there.streams[0].fields)
    field.host = std::exchange(field.values, field.values.to(torch::kMeta));
  EXPECT_EQ(make_task("instruct")->weight(there), 4);
  EXPECT_EQ(make_task("instruct")->weight(there.piece(1, 2)), 2);
  EXPECT_EQ(there.at("ids").device(), torch::kMeta);
  EXPECT_TRUE(there.on_host("ids").equal(batch.at("ids")));
}

}  // namespace
}  // namespace tessera::tasks
