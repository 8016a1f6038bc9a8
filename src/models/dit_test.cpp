// Properties of DiT, SiT and their LLaMA forms; tests/parity checks their numbers against published code.
#include <gtest/gtest.h>

#include "core/error.h"
#include "models/backbones/models_testing.h"
#include "models/base/denoiser.h"
#include "ops/inference.h"

namespace tessera::models::dit_test {
namespace {

using torch::Tensor;

ModelSpec small(bool llama, const char* sigma = "learned") {
  return resolve_model("dit", Value(Value::Table{{"image_size", 8},
                                                 {"dim", 32},
                                                 {"depth", 2},
                                                 {"heads", 4},
                                                 {"classes", 0},
                                                 {"labels", 5},
                                                 {"llama", llama},
                                                 {"sigma", sigma}}));
}

Denoiser& denoiser_of(const Classifier& model) { return dynamic_cast<Denoiser&>(*model.backbone); }

Tensor noised(int64_t batch, int64_t height, int64_t width) {
  torch::manual_seed(4);
  return torch::randn({batch, 4, height, width}, torch::kFloat64);
}

Tensor run(const Classifier& model, const Tensor& x, double time, int64_t label) {
  return denoiser_of(model).denoise(x, torch::full({x.size(0)}, time, torch::kFloat64),
                                    torch::full({x.size(0)}, label, torch::kInt64));
}

// Peebles & Xie 2023, Table 4; VisionLLaMA, Tables 1 and 8 print the same numbers.
TEST(Dit, MultiplyAddsAreThePapers) {
  const std::pair<const char*, double> printed[] = {
      {"DiT-S/2", 6.06}, {"DiT-B/2", 23.01}, {"DiT-L/2", 80.71},  {"DiT-XL/2", 118.64},
      {"DiT-B/4", 5.56}, {"DiT-L/4", 19.70}, {"DiT-XL/4", 29.05}, {"SiT-XL/2", 118.64}};
  for (const auto& [name, giga] : printed) {
    const auto model = meta_classifier(resolve_model(name));
    EXPECT_NEAR(static_cast<double>(model->macs(32, 32)) * 1e-9, giga, 0.006 * giga) << name;
  }
}

// adaLN-Zero: every block is the identity at first, and the output is zero.
TEST(Dit, BeginsAsNothing) {
  for (const bool llama : {false, true}) {
    const auto model = build_classifier(small(llama), 1);
    const torch::NoGradGuard no_grad;
    EXPECT_EQ(run(*model, noised(2, 8, 8).to(torch::kFloat32), 3, 1).abs().max().item<double>(), 0);
  }
}

TEST(Dit, TimeClassAndPlaceMatter) {
  const torch::NoGradGuard no_grad;
  for (const bool llama : {false, true}) {
    const auto model = lively(small(llama), 0.2);
    const Tensor x = noised(2, 8, 8), out = run(*model, x, 3, 1);
    EXPECT_EQ(out.sizes(), (std::vector<int64_t>{2, 8, 8, 8}));
    EXPECT_FALSE(torch::allclose(out, run(*model, x, 4, 1)));
    EXPECT_FALSE(torch::allclose(out, run(*model, x, 3, 2)));
    EXPECT_FALSE(torch::allclose(out, run(*model, x, 3, denoiser_of(*model).null_label())));
    EXPECT_FALSE(torch::allclose(out.roll(2, 3), run(*model, x.roll(2, 3), 3, 1)));
    // Samples are independent; other sizes of whole patches work.
    EXPECT_TRUE(torch::allclose(out.slice(0, 1), run(*model, x.slice(0, 1), 3, 1)));
    EXPECT_EQ(run(*model, noised(1, 6, 10), 3, 1).sizes(), (std::vector<int64_t>{1, 8, 6, 10}));
    EXPECT_ANY_THROW(run(*model, noised(1, 7, 8), 3, 1));
  }
}

TEST(Dit, SigmaIsLearnedDroppedOrNotThere) {
  const torch::NoGradGuard no_grad;
  const auto learned = lively(small(true), 0.2), dropped = lively(small(true, "dropped"), 0.2),
             none = lively(small(true, "none"), 0.2);
  const Tensor x = noised(1, 8, 8);
  EXPECT_TRUE(torch::equal(run(*learned, x, 3, 1).slice(1, 0, 4), run(*dropped, x, 3, 1)));
  EXPECT_EQ(run(*none, x, 3, 1).size(1), 4);
  EXPECT_EQ(count_parameters(*learned->backbone), count_parameters(*dropped->backbone));
  EXPECT_LT(count_parameters(*none->backbone), count_parameters(*learned->backbone));
}

// The condition reaches every block, and recomputing a block must also return the condition's gradient. This
// holds for a backbone's maps too, with the condition of a clean image without a class.
TEST(Dit, CheckpointingKeepsTheGradientOfTheCondition) {
  const auto model = lively(small(true), 0.2);
  model->backbone->train();
  const auto gradients = [&](bool checkpointing, bool denoises) {
    model->backbone->set_checkpointing(checkpointing);
    model->backbone->zero_grad();
    const Tensor x = noised(3, 8, 8);
    const Tensor out = denoises ? run(*model, x, 0.5, 2) : model->backbone->features(x, {1}, {}).at(0);
    out.square().sum().backward();
    std::vector<std::pair<std::string, Tensor>> all;
    for (const auto& entry : model->backbone->named_parameters())
      if (entry.value().grad().defined()) all.emplace_back(entry.key(), entry.value().grad().clone());
    return all;
  };
  for (const bool denoises : {true, false}) {
    const auto plain = gradients(false, denoises), again = gradients(true, denoises);
    ASSERT_EQ(plain.size(), again.size());
    for (size_t i = 0; i < plain.size(); ++i)
      EXPECT_TRUE(torch::allclose(plain[i].second, again[i].second)) << plain[i].first;
  }
}

TEST(Dit, GradientsReachAllButTheFrozenPositions) {
  for (const bool llama : {false, true}) {
    const auto model = lively(small(llama), 0.2);
    model->backbone->train();
    const Tensor out = run(*model, noised(2, 8, 8), 0.5, 2);
    (out * torch::randn_like(out)).sum().backward();
    for (const auto& entry : model->backbone->named_parameters())
      EXPECT_EQ(entry.value().grad().defined(), entry.key() != "pos_embed") << entry.key();
  }
}

// Shift, scale and gate of each sample are fused with the adjacent linear layers, also if drop path leaves
// samples out.
TEST(Dit, FusedIsTheComposition) {
  for (const bool llama : {false, true})
    for (const bool trained : {false, true}) {
      ModelSpec spec = small(llama);
      spec.settings.set("drop_path", 0.5);
      const auto model = lively(spec, 0.2);
      model->backbone->to(torch::kFloat32);
      model->backbone->train(trained);
      const Tensor x = noised(6, 8, 8).to(torch::kFloat32);
      const auto outputs = [&](bool fused) {
        const ops::InferenceScope scope({.fused = fused});
        std::vector<Tensor> all;
        if (trained) {
          model->backbone->zero_grad();
          all.push_back(run(*model, x, 0.5, 2));
          all[0].square().sum().backward();
          for (const auto& entry : model->backbone->named_parameters())
            if (entry.value().grad().defined()) all.push_back(entry.value().grad().clone());
        } else {
          const torch::NoGradGuard no_grad;
          all.push_back(run(*model, x, 0.5, 2));
        }
        return all;
      };
      const auto fused = outputs(true), composed = outputs(false);
      ASSERT_EQ(fused.size(), composed.size());
      for (size_t i = 0; i < fused.size(); ++i)
        EXPECT_LT((fused[i] - composed[i]).abs().max().item<double>(),
                  1e-5 * (1 + composed[i].abs().max().item<double>()))
            << llama << trained << " tensor " << i;
    }
}

TEST(Dit, RefusesSettingsThatDoNotGoTogether) {
  const auto refuses = [](const char* key, const Value& value) {
    Value settings = small(true).settings;
    settings.set(key, value);
    EXPECT_THROW(resolve_model("dit", settings), Error) << key;
  };
  refuses("image_size", 9);
  refuses("heads", 16);
  refuses("labels", 0);
  refuses("sigma", "both");
}

}  // namespace
}  // namespace tessera::models::dit_test
