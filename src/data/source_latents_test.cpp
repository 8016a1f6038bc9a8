#include "data/sources/latents.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "data/base/data_testing.h"
#include "io/files/file.h"
#include "io/weights/array_file.h"

namespace tessera::data {
namespace {

LatentInfo info_of(int64_t views = 2) {
  return {.codec = "vae",
          .checksum = "0123",
          .scale = 0.5,
          .factor = 4,
          .channels = 2,
          .rows = 3,
          .columns = 1,
          .views = views};
}

// Sample i has mean 10 i + view, deviation 0 in view 0 and 1 in view 1, and label i % 2.
void write_shard(const std::string& path, const LatentInfo& info, int64_t first, int64_t samples) {
  ArrayFile file(path,
                 {{"moments", DType::f32, {samples, info.views, 2, info.channels, info.rows, info.columns}},
                  {"labels", DType::i64, {samples}}});
  for (int64_t i = first; i < first + samples; ++i)
    for (int64_t view = 0; view < info.views; ++view)
      for (const float value : {static_cast<float>(10 * i + view), static_cast<float>(view)}) {
        const std::vector<float> numbers(static_cast<size_t>(info.numel()), value);
        file.write(std::as_bytes(std::span(numbers)));
      }
  for (int64_t i = first; i < first + samples; ++i) {
    const int64_t label = i % 2;
    file.write(std::as_bytes(std::span(&label, 1)));
  }
  file.commit();
}

void write_folder(const TemporaryFolder& folder, const LatentInfo& info = info_of()) {
  write_shard(folder.path("a.safetensors"), info, 0, 3);
  write_shard(folder.path("b.safetensors"), info, 3, 2);
  write_shard(folder.path("c.safetensors"), info, 0, 2);
  folder.write("latents.json",
               latents_json(info, {"cat", "dog"}, {{"a.safetensors", "b.safetensors"}, {3, 2}},
                            {{"c.safetensors"}, {2}}));
}

std::vector<float> latent_of(const Source& source, const Transform& transform, int64_t index, uint64_t seed) {
  std::vector<float> out(static_cast<size_t>(transform.fields().at(0).numel()));
  RandomStream random(seed, "test");
  const Slot slot{reinterpret_cast<std::byte*>(out.data()), nullptr};
  transform.apply(source.read(index), random, {&slot, 1});
  return out;
}

TEST(Latents, AreReadAsTheyWereWritten) {
  const TemporaryFolder folder;
  write_folder(folder);
  const auto train = open_source({.path = folder.path()}, Split::train),
             validation = open_source({.path = folder.path()}, Split::validation);
  EXPECT_EQ(train->size(), 5);
  EXPECT_EQ(validation->size(), 2);
  ASSERT_TRUE(as_latents(train.get()));
  EXPECT_EQ(as_latents(train.get())->latents().scale, 0.5);
  EXPECT_EQ(labels_in(*train).label(3), 1);
  EXPECT_EQ(labels_in(*train).class_names(), (std::vector<std::string>{"cat", "dog"}));
  const auto transform = make_latent_transform(info_of(), /*training=*/false);
  EXPECT_EQ(transform->fields().at(0).shape, (std::vector<int64_t>{2, 3, 1}));
  for (int64_t i = 0; i < 5; ++i)
    EXPECT_EQ(latent_of(*train, *transform, i, 1), std::vector<float>(6, 0.5f * 10 * static_cast<float>(i)));
  EXPECT_NE(train->fingerprint(), validation->fingerprint());
}

// The view and the noise are drawn, and depend only on the stream.
TEST(Latents, TrainingDrawsTheViewAndTheNoise) {
  const TemporaryFolder folder;
  write_folder(folder);
  const auto train = open_source({.path = folder.path()}, Split::train);
  const auto transform = make_latent_transform(info_of(), /*training=*/true);
  int plain = 0;
  double sum = 0, squares = 0;
  int64_t count = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const std::vector<float> latent = latent_of(*train, *transform, 2, seed);
    EXPECT_EQ(latent, latent_of(*train, *transform, 2, seed));
    if (latent == std::vector<float>(6, 10.0f)) {
      ++plain;
      continue;
    }
    for (const float value : latent)
      sum += value / 0.5 - 21, squares += std::pow(value / 0.5 - 21, 2), ++count;
  }
  EXPECT_NEAR(plain, 200, 50);
  EXPECT_NEAR(sum / static_cast<double>(count), 0, 0.15);
  EXPECT_NEAR(squares / static_cast<double>(count), 1, 0.2);
}

TEST(Latents, SayWhatIsWrong) {
  const auto error = [](const auto& spoil) {
    const TemporaryFolder folder;
    write_folder(folder);
    spoil(folder);
    return error_of([&] { open_source({.path = folder.path()}, Split::train); }, &folder);
  };
  const auto replaced = [](const char* from, const char* to) {
    return [from, to](const TemporaryFolder& folder) {
      std::string json = read_text(folder.path("latents.json"));
      json.replace(json.find(from), std::strlen(from), to);
      folder.write("latents.json", json);
    };
  };
  EXPECT_EQ(error(replaced("\"scale\": 0.5", "\"scale\": 0")),
            "DIR/latents.json: scale must be a positive number");
  EXPECT_EQ(error(replaced("\"scale\"", "\"skale\"")), "DIR/latents.json has no 'scale'");
  EXPECT_EQ(error(replaced("\"rows\": 3", "\"rows\": 4")),
            "'DIR/a.safetensors': 'moments' has another shape than latents.json says");
  EXPECT_EQ(error(replaced("\"dog\"", "3")), "DIR/latents.json: class_names must be a list of texts");
  EXPECT_EQ(error(replaced(",\n    \"dog\"", "")), "DIR: latent 1 of train has label 1, must be 0 to 0");
  EXPECT_EQ(error(replaced("a.safetensors", "../a.safetensors")),
            "DIR/latents.json: '../a.safetensors' must be a file of the folder itself");
  EXPECT_NE(error([](const TemporaryFolder& folder) {
              std::filesystem::remove(folder.path("b.safetensors"));
            }).find("DIR/b.safetensors"),
            std::string::npos);
}

TEST(Latents, OfTwoVaesAreNotMixed) {
  LatentInfo other = info_of();
  require_same_codec(info_of(), "x", other, "y");
  other.scale = 0.25;
  EXPECT_EQ(error_of([&] { require_same_codec(info_of(), "x", other, "y"); }),
            "latents of two scales cannot be mixed: x has 0.5, y 0.25");
  other.checksum = "4567";
  EXPECT_EQ(error_of([&] { require_same_codec(info_of(), "x", other, "y"); }),
            "latents of two VAEs cannot be mixed: x has those of vae 0123, y those of vae 4567");
}

}  // namespace
}  // namespace tessera::data
