// The table of samplers, and a sampler that a program adds.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "diffusion/noise_process.h"

namespace tessera::diffusion {
namespace {

template <class Body>
std::string usage_error(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind, ErrorKind::usage);
    return error.what();
  }
  return "";
}

// Returns the first prediction of the network, times eta.
class OneCall final : public Sampler {
 public:
  explicit OneCall(double scale) : scale_(scale) {}
  int64_t steps() const override { return 1; }
  Level level(int64_t step) const override { return {step == 0 ? 0.0 : 1.0, step == 0 ? 1.0 : 0.0}; }
  bool draws_noise() const override { return false; }
  torch::Tensor run(const Network& network, const torch::Tensor& x, const Walk& walk) const override {
    torch::Tensor out = scale_ * network(x, time_of(0, x));
    finish_step(walk, 0, 1, out);
    return out;
  }

 private:
  double scale_;
};

TEST(Samplers, ARowIsASampler) {
  add_sampler({.name = "one_call",
               .reads = {"eta"},
               .make = [](const TrainedProcess&, const SamplerConfig& config) -> std::unique_ptr<Sampler> {
                 return std::make_unique<OneCall>(config.eta);
               }});
  EXPECT_EQ(sampler_names().back(), "one_call") << "commands offer it";
  const diffusion::NoiseProcess process({}, /*learns_sigma=*/false);
  const auto sampler = process.sampler({.sampler = "one_call", .eta = 3});
  const Network network = [](const torch::Tensor& x, const torch::Tensor&) { return x + 1; };
  const torch::Tensor noise = torch::ones({1, 3, 2, 2});
  EXPECT_TRUE(torch::equal(sampler->run(network, noise, {}), torch::full_like(noise, 6)));
  const std::string steps = usage_error([&] { process.sampler({.sampler = "one_call", .steps = 4}); });
  EXPECT_TRUE(steps.starts_with("steps is for ddpm, ddim, ")) << steps;
  EXPECT_TRUE(steps.ends_with(", not for one_call")) << steps;
  EXPECT_EQ(usage_error([&] { process.sampler({.sampler = "ddpm", .eta = 1}); }),
            "eta is for ddim, one_call, not for ddpm");
}

// Every key is read by a sampler, and every key that a row reads is there.
TEST(Samplers, RowsReadKeysOfTheConfig) {
  SamplerConfig config;
  std::vector<std::string> keys;
  for (const OptionField& field : option_fields(config)) keys.push_back(field.key);
  for (const SamplerRow& row : samplers())
    for (const std::string& key : row.reads)
      EXPECT_TRUE(std::ranges::find(keys, key) != keys.end()) << row.name << " " << key;
  for (const std::string& key : keys)
    EXPECT_TRUE(key == "sampler" ||
                std::ranges::any_of(samplers(), [&](const SamplerRow& row) { return row.reads_key(key); }))
        << key;
}

TEST(Samplers, AutoIsTheFirstOfTheKind) {
  const diffusion::NoiseProcess steps({}, false), path({.process = diffusion::Process::linear}, false);
  const SamplerConfig chain = steps.resolved({}, /*pixels=*/true), ordinary = path.resolved({}, true);
  EXPECT_EQ(chain.sampler, "ddpm");
  EXPECT_EQ(chain.steps, 250);
  EXPECT_EQ(chain.clip, 1);
  EXPECT_EQ(ordinary.sampler, "dopri5");
  EXPECT_FALSE(ordinary.steps);
  EXPECT_EQ(ordinary.clip, 0);
  const diffusion::NoiseProcess few({.steps = 40}, false);
  EXPECT_EQ(few.resolved({}).steps, 40) << "at most the schedule's";
  EXPECT_FALSE(steps.resolved({.respacing = "ddim50"}).steps);
  EXPECT_EQ(
      usage_error([&] { path.sampler({.sampler = "ddim"}); }),
      "sampler ddim is not for interpolants, by which these weights were trained: must be dopri5, heun, "
      "euler, sde, sde_heun");
}

}  // namespace
}  // namespace tessera::diffusion
