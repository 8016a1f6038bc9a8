// Archives written by PyTorch; torch_archive_parts_test.cpp has archives made by hand.
#include "io/weights/torch_archive.h"

#include <gtest/gtest.h>

#include "io/files/io_testing.h"
#include "io/weights/safetensors.h"

namespace tessera {
namespace {

const std::string kFolder = std::string(TESSERA_TEST_DATA) + "/torch/";

void expect_same(const std::vector<TensorView>& got, const std::string& safetensors) {
  const SafetensorsFile want(kFolder + safetensors);
  EXPECT_EQ(got.size(), want.tensors().size());
  for (const TensorView& t : got) {
    const TensorView* w = want.find(t.name);
    ASSERT_NE(w, nullptr) << t.name;
    EXPECT_EQ(t.dtype, w->dtype) << t.name;
    EXPECT_EQ(t.shape, w->shape) << t.name;
    EXPECT_EQ(as_text(t.bytes), as_text(w->bytes)) << t.name;
  }
}

std::vector<std::string> keys_of(const TorchArchive& archive) {
  std::vector<std::string> out;
  for (const TorchGroup& group : archive.groups()) out.push_back(group.key);
  return out;
}

TEST(TorchArchive, ReadsAStateDict) {
  const TorchArchive archive(kFolder + "plain.pth");
  EXPECT_EQ(keys_of(archive), std::vector<std::string>{""});
  expect_same(archive.weights(), "plain.safetensors");
  EXPECT_EQ(archive.weights()[0].name, "0.weight") << "in the file's order";
}

TEST(TorchArchive, ReadsEveryTypeAndEveryViewOfAStorage) {
  expect_same(TorchArchive(kFolder + "views.pth").weights(), "views.safetensors");
  expect_same(TorchArchive(kFolder + "views_protocol4.pth").weights("model"), "views.safetensors");
}

TEST(TorchArchive, FindsTheWeightsOfATrainingCheckpoint) {
  const TorchArchive archive(kFolder + "checkpoint.pth");
  EXPECT_EQ(keys_of(archive), (std::vector<std::string>{"state_dict", "state_dict_ema"}));
  expect_same(archive.weights(), "plain.safetensors");  // "module." is removed
  EXPECT_EQ(archive.groups()[0].tensors[0].name, "module.0.weight");
  EXPECT_EQ(archive.weights("state_dict_ema")[0].dtype, DType::f64);
  EXPECT_EQ(
      error_of([&] { archive.weights("model"); }),
      kFolder +
          "checkpoint.pth: has no weights under 'model', must be one of 'state_dict', 'state_dict_ema'");
}

// As in detectron2's model zoo; protocol 3 encodes bytes differently.
TEST(TorchArchive, ReadsArraysOfNumpyFromAPickle) {
  for (const std::string name : {"arrays_protocol3.pkl", "arrays_protocol4.pkl"}) {
    const TorchArchive archive(kFolder + name);
    EXPECT_EQ(keys_of(archive), std::vector<std::string>{"model"});
    expect_same(archive.weights(), "arrays.safetensors");
    EXPECT_EQ(archive.form(), std::string("pickle of numpy's arrays"));
  }
}

TEST(TorchArchive, RefusesArraysThatAreNotWhatTheySay) {
  const std::string whole = read_text(kFolder + "arrays_protocol3.pkl");
  const auto said = [&](std::string_view from, std::string_view to) {
    std::string changed = whole;
    changed.replace(changed.find(from), from.size(), to);
    return error_of([&] { parse_torch_archive(as_bytes(changed), "f"); });
  };
  using namespace std::string_view_literals;
  const std::string plain = "f: tensor 'plain' ",
                    type = plain + "has elements of numpy's type 'U4', which are not read";
  EXPECT_EQ(said("f4", "U4"), type);
  EXPECT_EQ(said("X\x01\0\0\0<"sv, "X\x01\0\0\0>"sv),
            plain + "has big-endian numbers, must be little-endian");
  EXPECT_EQ(said("K\x02K\x03"sv, "K\x02K\x04"sv), plain + "has 24 bytes, its shape needs 32");
  EXPECT_EQ(said("K\x02K\x03"sv, "K\x02N"sv), plain + "has a shape of an unknown form");
  EXPECT_EQ(said("K\x02K\x03"sv, "J\xFF\xFF\xFF\x7FJ\xFF\xFF\xFF\x7F"sv),
            plain + "has a size that overflows");
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_NE(error_of([&] { parse_torch_archive(as_bytes(whole.substr(0, size)), "f"); }), "") << size;
}

// OpenAI's CLIP files are such programs.
TEST(TorchArchive, ReadsTheWeightsOfATorchScriptProgram) {
  const TorchArchive archive(kFolder + "script.pt");
  const auto weights = archive.weights();
  ASSERT_EQ(weights.size(), 2U);
  EXPECT_EQ(weights[0].name, "weight");
  EXPECT_EQ(weights[0].shape, (std::vector<int64_t>{5, 4}));
  EXPECT_EQ(weights[1].name, "bias");
  EXPECT_EQ(archive.groups().size(), 1U);
  EXPECT_TRUE(archive.unread().empty());
}

TEST(TorchArchive, RefusesWhatIsNoFileOfWeightsByName) {
  const auto said = [](const std::string& name) {
    const std::string path = kFolder + name;
    const std::string message = error_of([&] { TorchArchive{path}; });
    EXPECT_TRUE(message.starts_with(path + ": ")) << message;
    return message.substr(std::min(message.size(), path.size() + 2));
  };
  EXPECT_EQ(said("old_form.pth"),
            "is in PyTorch's old form (before 1.6, no zip archive); load it there and torch.save() it again");
  EXPECT_EQ(said("whole_model.pth"),
            "data.pkl: names 'torch.nn.modules.container.Sequential': it holds a pickled model or program, "
            "which was not run; save model.state_dict()");
  EXPECT_EQ(said("complex.pth"),
            "data.pkl: names 'torch.ComplexFloatStorage', a kind of tensor that is not read");
  EXPECT_EQ(said("sparse.pth"),
            "data.pkl: names 'torch._utils._rebuild_sparse_tensor', a kind of tensor that is not read");
  EXPECT_EQ(said("plain.safetensors"), "is no PyTorch file: must be a zip archive of PyTorch 1.6 or later");
}

}  // namespace
}  // namespace tessera
