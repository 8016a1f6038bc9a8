#include "io/weights/weight_file.h"

#include <gtest/gtest.h>

#include <fstream>

#include "io/files/io_testing.h"
#include "io/weights/safetensors_shards.h"

namespace tessera {
namespace {

const std::string kTorchFolder = std::string(TESSERA_TEST_DATA) + "/torch/";

class WeightFileTest : public TemporaryFolder {
 protected:
  const std::string index_ = path("m.safetensors.index.json");

  // Three tensors of 8, 24 and 4 bytes.
  std::vector<TensorView> tensors() const {
    const auto view = [this](const char* name, DType dtype, std::vector<int64_t> shape, size_t begin,
                             size_t size) {
      return TensorView{name, dtype, std::move(shape), as_bytes(bytes_).subspan(begin, size)};
    };
    return {view("c", DType::f32, {2}, 0, 8), view("a", DType::f32, {2, 3}, 8, 24),
            view("b", DType::bf16, {2}, 32, 4)};
  }
  void write(uint64_t most) const { write_sharded_safetensors(index_, tensors(), {{"who", "me"}}, most); }
  std::string refusal() const {
    std::string message = error_of([&] { WeightFile{index_}; });
    for (size_t at; (at = message.find(folder())) != std::string::npos;)
      message.replace(at, folder().size(), "DIR");
    return message;
  }
  std::string refused_index(const std::string& json) const {
    write_text_atomic(index_, json);
    return refusal();
  }

  const std::string bytes_ = "abcdefghijklmnopqrstuvwxyz0123456789";
};

TEST_F(WeightFileTest, ShardsComeBackAsTheyWere) {
  for (const auto& [most, files] : {std::pair{1, 3}, {10, 3}, {28, 2}, {32, 2}, {1000, 1}}) {
    std::filesystem::remove_all(folder());
    std::filesystem::create_directory(folder());
    write(static_cast<uint64_t>(most));
    EXPECT_EQ(names().size(), static_cast<size_t>(files) + 1) << most;
    const WeightFile file(index_);
    EXPECT_EQ(file.form(), text("safetensors in ", files, " files"));
    EXPECT_EQ(file.metadata(), (Metadata{{"who", "me"}, {"format", "pt"}}));
    ASSERT_EQ(file.tensors().size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      const TensorView want = tensors()[i], &got = file.tensors()[i];
      EXPECT_EQ(got.name, want.name);
      EXPECT_EQ(got.dtype, want.dtype);
      EXPECT_EQ(got.shape, want.shape);
      EXPECT_EQ(as_text(got.bytes), as_text(want.bytes));
    }
  }
}

// Returns the resident bytes of this process.
int64_t resident() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) return std::stoll(line.substr(6)) * 1024;
  return -1;
}

TEST_F(WeightFileTest, WhatIsForgottenIsReadAgain) {
  const std::string large(32 << 20, 'x'), file = path("large.safetensors");
  write_safetensors(file,
                    {TensorView{"a", DType::u8, {std::ssize(large) - 7}, as_bytes(large).subspan(7)},
                     TensorView{"b", DType::u8, {7}, as_bytes(large).first(7)}},
                    {});
  const WeightFile weights(file);
  const auto sum = [&] {
    int64_t total = 0;
    for (const TensorView& view : weights.tensors())
      for (const std::byte byte : view.bytes) total += static_cast<int64_t>(byte);
    return total;
  };
  const int64_t before = resident(), first = sum(), held = resident() - before;
  for (const TensorView& view : weights.tensors()) weights.forget(view);
  if (held > 16 << 20) {
    EXPECT_LT(resident() - before, held / 2);
  }
  EXPECT_EQ(sum(), first);
  EXPECT_EQ(first, std::ssize(large) * 'x');
}

// New files next to old ones would be read as one set.
TEST_F(WeightFileTest, AWriteThatIsStoppedLeavesAllOfTheOldFiles) {
  write(28);
  const std::string other(36, '-');
  std::vector<TensorView> fresh = tensors();
  for (TensorView& tensor : fresh) tensor.bytes = as_bytes(other).subspan(0, tensor.bytes.size());
  int left = 2;
  const auto stop = [&] {
    if (left-- == 0) fail("stopped");
  };
  EXPECT_EQ(error_of([&] { write_sharded_safetensors(index_, fresh, {}, 28, stop); }), "stopped");
  EXPECT_EQ(names().size(), 3u);
  const WeightFile file(index_);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(as_text(file.tensors()[i].bytes), as_text(tensors()[i].bytes));
}

TEST_F(WeightFileTest, AnIndexNeverLeadsOutOfItsFolder) {
  for (const char* name :
       {"../x.safetensors", "/etc/passwd", "", ".hidden", "a\\u0007b", "sub/x.safetensors"})
    EXPECT_EQ(refused_index(text(R"({"weight_map": {"a": ")", name, R"("}})")),
              "DIR/m.safetensors.index.json: tensor 'a' must name a file of the same folder");
}

TEST_F(WeightFileTest, AnIndexThatIsNoneIsRefused) {
  EXPECT_EQ(refused_index("[]"),
            R"(DIR/m.safetensors.index.json is array, must be an object with a "weight_map")");
  EXPECT_EQ(refused_index("{}"), R"(DIR/m.safetensors.index.json: has no object "weight_map")");
  EXPECT_EQ(refused_index(R"({"weight_map": {"a": 1}})"),
            "DIR/m.safetensors.index.json: tensor 'a' must name a file of the same folder");
  EXPECT_EQ(refused_index(R"({"weight_map": {"a": "none.safetensors"}})").substr(0, 36),
            "cannot open 'DIR/none.safetensors': ");
  EXPECT_EQ(refused_index("{"), "DIR/m.safetensors.index.json is not JSON: it goes wrong at byte 2");
}

TEST_F(WeightFileTest, IndexAndFilesMustAgree) {
  write(1);
  const std::string index = read_text(index_);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = index;
    const size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos);
    return refused_index(changed.replace(at, from.size(), to));
  };
  EXPECT_EQ(with("\"a\":", "\"d\":"),
            "DIR/m-00002-of-00003.safetensors: holds tensor 'a', which DIR/m.safetensors.index.json does not "
            "list in this file");
  EXPECT_EQ(with("\"a\":", "\"d\": \"m-00002-of-00003.safetensors\", \"a\":"),
            "DIR/m-00002-of-00003.safetensors: lacks tensor 'd', which DIR/m.safetensors.index.json lists in "
            "this file");
  write_text_atomic(path("m-00001-of-00003.safetensors"), "short");
  EXPECT_EQ(
      refused_index(index),
      "DIR/m-00001-of-00003.safetensors: is no weights file: must be of safetensors (.safetensors), or of "
      "PyTorch (.pth, .pt, .bin)");
  write_text_atomic(path("m-00001-of-00003.safetensors"), "version https://git-lfs.github.com/spec/v1\n");
  EXPECT_EQ(refused_index(index),
            "DIR/m-00001-of-00003.safetensors: is a Git LFS pointer: fetch the file itself");
}

TEST_F(WeightFileTest, TheFormFollowsFromTheContent) {
  EXPECT_EQ(WeightFile(kTorchFolder + "plain.pth").form(), "PyTorch archive");
  EXPECT_EQ(WeightFile(kTorchFolder + "plain.safetensors").form(), "safetensors");
  const WeightFile checkpoint(kTorchFolder + "checkpoint.pth");
  EXPECT_EQ(checkpoint.form(), "PyTorch archive, 'state_dict'; it also has 'state_dict_ema'");
  EXPECT_TRUE(checkpoint.has_other_weights());
  EXPECT_EQ(checkpoint.tensors()[0].name, "0.weight");
  const WeightFile averaged(kTorchFolder + "checkpoint.pth", "state_dict_ema");
  EXPECT_EQ(averaged.form(), "PyTorch archive, 'state_dict_ema'; it also has 'state_dict'");
  EXPECT_EQ(averaged.tensors()[0].dtype, DType::f64);
  // A header may have any length, even one that starts like a pickle.
  for (size_t size = 0; size < 256; size += 8) {
    write_safetensors(path("any"), tensors(), {{"pad", std::string(size, ' ')}});
    EXPECT_EQ(WeightFile(path("any")).form(), "safetensors") << size;
  }
  // The extension does not matter.
  std::filesystem::copy_file(kTorchFolder + "plain.pth", path("m.safetensors"));
  EXPECT_EQ(WeightFile(path("m.safetensors")).form(), "PyTorch archive");
  EXPECT_EQ(error_of([&] { WeightFile(kTorchFolder + "plain.safetensors", "ema"); }),
            kTorchFolder + "plain.safetensors: has no dictionary 'ema': it is no PyTorch archive");
  EXPECT_EQ(error_of([&] { WeightFile(kTorchFolder + "old_form.pth"); }),
            kTorchFolder +
                "old_form.pth: is in PyTorch's old form (before 1.6, no zip archive); load it there and "
                "torch.save() it again");
}

}  // namespace
}  // namespace tessera
