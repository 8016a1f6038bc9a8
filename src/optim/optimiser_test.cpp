#include "optim/optimiser.h"

#include <gtest/gtest.h>
#include "ops/torch.h"

#include <set>

#include "core/error.h"
#include "core/threads.h"
#include "core/value.h"
#include "models/base/model.h"
#include "models/heads/class_head.h"

namespace tessera::train {
namespace {

// Parameters of every kind in a model: large, small, one-dimensional, a single number, empty, and one with
// its dimensions in another memory order.
std::vector<ParameterGroup> some_groups(torch::ScalarType dtype = torch::kFloat32) {
  torch::manual_seed(1);
  const auto make = [&](std::vector<int64_t> shape) {
    return torch::randn(shape, torch::kFloat64).to(dtype).requires_grad_();
  };
  auto channels_last =
      torch::randn({4, 3, 5, 5}, torch::kFloat64).to(dtype).contiguous(torch::MemoryFormat::ChannelsLast);
  channels_last.requires_grad_();
  return {{{{"w", make({130, 257})},
            {"conv", channels_last},
            {"zero", torch::zeros({3, 4}, dtype).requires_grad_()}},
           1,
           0.05},
          {{{"b", make({17})}, {"g", make({})}, {"none", make({0, 4})}}, 0.5, 0}};
}

std::vector<torch::Tensor> flat_parameters(const std::vector<ParameterGroup>& groups) {
  std::vector<torch::Tensor> all;
  for (const ParameterGroup& group : groups)
    for (const auto& [name, tensor] : group.parameters) all.push_back(tensor);
  return all;
}

void set_gradients(Optimiser& optimiser, uint64_t seed) {
  torch::manual_seed(seed);
  for (torch::Tensor p : optimiser.parameters())
    p.mutable_grad() = torch::randn(p.sizes(), torch::kFloat64).to(p.scalar_type());
}

std::unique_ptr<Optimiser> make(const std::string& toml, std::vector<ParameterGroup> groups) {
  return make_optimiser(resolve_optimiser(parse_toml(toml, "test")), std::move(groups));
}

const std::vector<std::string> kEveryKind = {
    "name = 'adamw'",
    "name = 'adam'\nbetas = [0.8, 0.9]\neps = 1e-6",
    "name = 'adamw'\namsgrad = true\nbetas = [0.9, 0.5]",
    "name = 'lamb'",
    "name = 'lamb'\nmax_grad_norm = 0\ntrust_clip = true\nalways_adapt = true\ndecoupled_decay = true\n"
    "grad_averaging = false\nbias_correction = false",
    "name = 'lars'",
    "name = 'lars'\ntrust_coeff = 0.02\ntrust_clip = true\nalways_adapt = true\nnesterov = true",
    "name = 'lars'\nweight_decay = 0\nadapt_matrices = true",
    "name = 'sgd'",
    "name = 'sgd'\nnesterov = true",
    "name = 'sgd'\nmomentum = 0.5\ndampening = 0.3",
    "name = 'sgd'\nmomentum = 0",
    "name = 'muon'",
    "name = 'muon'\nscale = 'first'\nnesterov = false\nmomentum = 0.8\niterations = 3\nby_adamw = ['co*']",
};

// Takes steps in which one parameter has no gradient, and something else changes another one.
void take_steps(Optimiser& optimiser, const std::vector<ParameterGroup>& groups, uint64_t from, uint64_t to) {
  std::vector<torch::Tensor> parameters = flat_parameters(groups);
  for (uint64_t step = from; step < to; ++step) {
    torch::manual_seed(step);
    for (torch::Tensor& p : parameters) p.mutable_grad() = torch::randn(p.sizes());
    parameters[step % parameters.size()].mutable_grad().reset();
    if (step % 2 == 1) parameters[1].detach().mul_(0.5);
    optimiser.step(1e-2, 0.7, 0.9);
    optimiser.zero_grad();
    for (const torch::Tensor& p : parameters) EXPECT_FALSE(p.grad().defined());
  }
}

TEST(Optimiser, StateInMainMemoryMakesTheSameWeights) {
  for (const std::string& kind : kEveryKind) {
    SCOPED_TRACE(kind);
    const auto offloaded = [&](const std::vector<ParameterGroup>& there) {
      auto copies = std::make_unique<Offload>(
          NamedTensors({there[0].parameters[0], there[0].parameters[1], there[0].parameters[2],
                        there[1].parameters[0], there[1].parameters[1], there[1].parameters[2]}));
      std::vector<ParameterGroup> here = there;
      size_t next = 0;
      for (ParameterGroup& group : here)
        for (auto& parameter : group.parameters) parameter = copies->here()[next++];
      auto optimiser = make(kind, std::move(here));
      optimiser->follow(std::move(copies));
      return optimiser;
    };
    const auto groups = some_groups(), there = some_groups();
    const auto usual = make(kind, groups);
    auto moved = offloaded(there);
    take_steps(*usual, groups, 0, 3), take_steps(*moved, there, 0, 3);
    const auto state = moved->state();
    auto continued = offloaded(there);
    continued->load_state(moved->steps(), state);
    take_steps(*usual, groups, 3, 6), take_steps(*continued, there, 3, 6);
    const auto expected = flat_parameters(groups), reached = flat_parameters(there);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(torch::equal(reached[i], expected[i])) << i;
    const auto states = usual->state(), others = continued->state();
    ASSERT_EQ(states.size(), others.size());
    for (size_t i = 0; i < states.size(); ++i)
      EXPECT_TRUE(torch::equal(states[i].second, others[i].second)) << states[i].first;
  }
}

// The float32 loops may differ from the composition only by rounding. Both are compared with the composition
// in float64: the loops' error may be at most twice that of the float32 composition, plus one rounding.
TEST(Optimiser, LoopsAreAsExactAsTheCompositionOfTensorOperations) {
  for (const std::string& kind : kEveryKind) {
    auto loops = make(kind, some_groups()), composed = make(kind, some_groups());
    auto exact = make(kind, some_groups(torch::kFloat64));
    // The same numbers in float64 as in float32.
    for (size_t i = 0; i < exact->parameters().size(); ++i)
      exact->parameters()[i].set_data(loops->parameters()[i].detach().to(torch::kFloat64));
    composed->use_composition(true);
    for (uint64_t step = 0; step < 5; ++step) {
      for (Optimiser* optimiser : {loops.get(), composed.get()}) set_gradients(*optimiser, 10 + step);
      set_gradients(*exact, 10 + step);
      for (torch::Tensor p : exact->parameters())
        p.mutable_grad() = p.grad().to(torch::kFloat32).to(torch::kFloat64);
      for (Optimiser* optimiser : {loops.get(), composed.get(), exact.get()}) optimiser->step(0.01, 0.75);
    }
    for (size_t i = 0; i < exact->parameters().size(); ++i) {
      const torch::Tensor want = exact->parameters()[i].detach();
      if (want.numel() == 0) continue;
      const auto error = [&](Optimiser& optimiser) {
        return (optimiser.parameters()[i].detach().to(torch::kFloat64) - want).abs().max().item<double>();
      };
      const double rounding = want.abs().max().item<double>() * 6e-8;
      EXPECT_LE(error(*loops), 2 * error(*composed) + rounding) << kind << ", parameter " << i;
      const torch::Tensor start = flat_parameters(some_groups())[i].detach().to(torch::kFloat64);
      EXPECT_FALSE(torch::equal(want, start)) << kind << ", parameter " << i;
    }
  }
}

// A model's memory format may change (channels last) after its optimiser was made.
TEST(Optimiser, AParameterLaidOutAnewIsUpdatedAllTheSame) {
  for (const std::string& kind : kEveryKind) {
    auto moved = make(kind, some_groups()), kept = make(kind, some_groups());
    for (uint64_t step = 0; step < 3; ++step) {
      set_gradients(*moved, step), set_gradients(*kept, step);
      if (step == 1) moved->parameters()[1].set_data(moved->parameters()[1].detach().contiguous());
      moved->step(0.01), kept->step(0.01);
    }
    EXPECT_TRUE(torch::allclose(moved->parameters()[1], kept->parameters()[1], 1e-6, 1e-7)) << kind;
  }
}

TEST(Optimiser, NumberOfThreadsChangesNoBit) {
  const int before = num_threads();
  for (const std::string& kind : kEveryKind) {
    std::vector<torch::Tensor> one_thread;
    for (const int threads : {1, 2}) {
      set_num_threads(threads);
      auto optimiser = make(kind, some_groups());
      for (uint64_t step = 0; step < 3; ++step) {
        set_gradients(*optimiser, step);
        optimiser->step(0.01);
      }
      if (threads == 1) one_thread = optimiser->parameters();
      for (size_t i = 0; i < one_thread.size(); ++i)
        EXPECT_TRUE(torch::equal(one_thread[i], optimiser->parameters()[i]))
            << kind << ", " << threads << " threads";
    }
  }
  set_num_threads(before);
}

TEST(Optimiser, TheFirstStepOfAdamWIsTheRateTimesTheSign) {
  auto optimiser = make("name = 'adamw'\neps = 1e-20", some_groups(torch::kFloat64));
  const torch::Tensor w = optimiser->parameters()[0], before = w.detach().clone();
  set_gradients(*optimiser, 3);
  const torch::Tensor want = before * (1 - 0.01 * 0.05) - 0.01 * w.grad().sign();
  optimiser->step(0.01);
  EXPECT_TRUE(torch::allclose(w.detach(), want, 1e-12, 1e-14));
}

// The formula in float64, one number at a time; gradients shrink, so that the largest v stays.
TEST(Optimiser, AmsgradDividesByTheLargestSecondMomentSoFar) {
  for (const bool decoupled : {true, false}) {
    const double beta1 = 0.8, beta2 = 0.6, eps = 1e-3, decay = 0.1, lr = 0.01;
    double p = 0.7, m = 0, v = 0, largest = 0;
    torch::Tensor parameter = torch::full({2, 3}, p, torch::kFloat64).requires_grad_();
    const std::string name = decoupled ? "adamw" : "adam";
    auto optimiser =
        make("name = '" + name + "'\namsgrad = true\nbetas = [0.8, 0.6]\neps = 1e-3\nweight_decay = 0.1",
             {{{{"w", parameter}}, 1, decay}});
    int falls = 0;
    for (int t = 1; t <= 8; ++t) {
      const double raw = (t % 3 == 0 ? 0.01 : 1.0) * (t % 2 == 0 ? -0.5 : 1.5);
      parameter.mutable_grad() = torch::full({2, 3}, raw, torch::kFloat64);
      optimiser->step(lr);
      const double g = decoupled ? raw : raw + decay * p;
      if (decoupled) p *= 1 - lr * decay;
      m = beta1 * m + (1 - beta1) * g;
      v = beta2 * v + (1 - beta2) * g * g;
      falls += v < largest;
      largest = std::max(largest, v);
      p -= lr / (1 - std::pow(beta1, t)) * m / (std::sqrt(largest) / std::sqrt(1 - std::pow(beta2, t)) + eps);
      EXPECT_NEAR(parameter[1][2].item<double>(), p, 1e-14) << name << " " << t;
    }
    EXPECT_GT(falls, 2);
  }
}

TEST(Optimiser, GroupsScaleTheRate) {
  for (const std::string& kind : kEveryKind) {
    auto whole = some_groups(), half = some_groups();
    for (ParameterGroup& group : half) group.lr_scale *= 0.5;
    auto a = make(kind, whole), b = make(kind, half);
    set_gradients(*a, 1), set_gradients(*b, 1);
    a->step(0.01), b->step(0.02);
    EXPECT_TRUE(torch::equal(a->parameters()[0], b->parameters()[0])) << kind;
  }
}

// The next backward pass makes new ones; both would take the memory of the gradients twice.
TEST(Optimiser, NothingKeepsTheGradientsOfAStepThatIsDone) {
  for (const std::string& kind : kEveryKind) {
    const auto optimiser = make(kind, some_groups(torch::kFloat32));
    set_gradients(*optimiser, 1);
    const torch::Tensor gradient = optimiser->parameters()[0].grad();
    optimiser->step(0.01);
    optimiser->zero_grad();
    EXPECT_EQ(gradient.use_count(), 1u) << kind;
  }
}

// With a rate of 1 and gradients of 0, AdamW leaves a share of 1 - decay.
TEST(Optimiser, AFactorScalesTheDecayOfOneStep) {
  const torch::Tensor w = torch::ones({3, 2}, torch::kFloat64).requires_grad_();
  const auto optimiser = make("name = 'adamw'", {{{{"w", w}}, 1, 0.25}});
  for (const auto& [factor, left] : {std::pair{2.0, 0.5}, std::pair{1.0, 0.375}}) {
    w.mutable_grad() = torch::zeros_like(w);
    optimiser->step(1, 1, factor);
    EXPECT_TRUE(w.eq(left).all().item<bool>()) << factor;
  }
}

TEST(Optimiser, LambIsBlindToTheScaleOfLargeGradients) {
  auto a = make("name = 'lamb'", some_groups(torch::kFloat64)),
       b = make("name = 'lamb'", some_groups(torch::kFloat64));
  set_gradients(*a, 1), set_gradients(*b, 1);
  a->step(0.01), b->step(0.01, 1000);
  EXPECT_TRUE(torch::allclose(a->parameters()[0], b->parameters()[0], 1e-12, 1e-14));
}

TEST(Optimiser, MuonTakesAStepOfAdamWsSizeInEveryDirectionOfAMatrix) {
  auto muon = make("name = 'muon'\nweight_decay = 0\niterations = 5", some_groups(torch::kFloat64));
  const auto before = muon->parameters()[0].detach().clone();
  set_gradients(*muon, 1);
  muon->step(1);
  const torch::Tensor step = (before - muon->parameters()[0]).detach() / (0.2 * std::sqrt(257.0));
  const torch::Tensor stretch = torch::linalg_svdvals(step);
  EXPECT_GT(stretch.min().item<double>(), 0.5);  // the published bounds
  EXPECT_LT(stretch.max().item<double>(), 1.5);
}

TEST(Optimiser, MuonKeepsOneStateOfAMatrixAndLeavesTheRestToAdamW) {
  const auto name_them = [](ParameterGroup& group) {
    group.parameters[0].first = "blocks.0.weight", group.parameters[1].first = "patch_embed.proj.weight";
  };
  auto groups = some_groups(), others = some_groups();
  name_them(groups[0]), name_them(others[0]);
  auto muon = make("name = 'muon'", groups), adamw = make("name = 'adamw'", others);
  set_gradients(*muon, 1), set_gradients(*adamw, 1);
  muon->step(0.01), adamw->step(0.01);
  EXPECT_FALSE(torch::equal(muon->parameters()[0], adamw->parameters()[0]));
  for (const size_t same : {1u, 3u, 4u})
    EXPECT_TRUE(torch::equal(muon->parameters()[same], adamw->parameters()[same])) << same;
  std::vector<std::string> names;
  for (const auto& [name, tensor] : muon->state()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{
                       "momentum_buffer.blocks.0.weight", "exp_avg.patch_embed.proj.weight",
                       "momentum_buffer.zero", "exp_avg.b", "exp_avg.g", "momentum_buffer.none",
                       "exp_avg_sq.patch_embed.proj.weight", "exp_avg_sq.b", "exp_avg_sq.g"}));
}

// AdamW updates heads and parameters without weight decay (positions, tokens, tables), Muon most others.
TEST(Optimiser, MuonLeavesHeadsAndPositionsOfEveryFamilyToAdamW) {
  for (const models::Family& family : models::families()) {
    const auto model = models::meta_classifier(models::resolve_model(family.sizes.front().name));
    const NamedTensors parameters = [&] {
      NamedTensors all;
      for (const auto& item : model->backbone->named_parameters()) all.emplace_back(item.key(), item.value());
      return all;
    }();
    const auto muon = make("name = 'muon'", make_parameter_groups(parameters, {}));
    std::set<std::string> matrices;
    for (const auto& [name, tensor] : muon->state())
      if (const std::string prefix = "momentum_buffer."; name.starts_with(prefix))
        matrices.insert(name.substr(prefix.size()));
    for (const std::string& name : model->head().tensor_names())
      EXPECT_FALSE(matrices.contains(name)) << family.name << name;
    for (const std::string& name : matrices)
      for (const std::string& exception : model->backbone->no_weight_decay())
        EXPECT_FALSE(matches(exception, name)) << family.name << " " << name;
    int64_t all = 0, taken = 0;
    for (const auto& [name, parameter] : parameters) {
      all += parameter.numel();
      taken += matrices.contains(name) ? parameter.numel() : 0;
    }
    EXPECT_GT(taken, all / 2) << family.name;
  }
}

TEST(Optimiser, AParameterWithoutGradientRestsAndKeepsItsOwnCount) {
  for (const std::string& kind : kEveryKind) {
    auto late = make(kind, some_groups()), fresh = make(kind, some_groups());
    const torch::Tensor before = late->parameters()[3].detach().clone();
    for (int step = 0; step < 3; ++step) {
      late->zero_grad();
      late->parameters()[0].mutable_grad() = torch::ones({130, 257});
      late->step(0.01);
    }
    EXPECT_TRUE(torch::equal(late->parameters()[3], before)) << kind;
    late->zero_grad(), fresh->zero_grad();
    for (Optimiser* optimiser : {late.get(), fresh.get()}) {
      optimiser->parameters()[3].mutable_grad() = torch::ones({17});
      optimiser->step(0.01);
    }
    EXPECT_TRUE(torch::equal(late->parameters()[3], fresh->parameters()[3])) << kind;
  }
}

TEST(Optimiser, ASavedStateContinuesBitForBit) {
  for (const std::string& kind : kEveryKind) {
    auto straight = make(kind, some_groups());
    const auto run = [&](Optimiser& optimiser, uint64_t from, uint64_t to) {
      for (uint64_t step = from; step < to; ++step) {
        set_gradients(optimiser, step);
        if (step == 0) optimiser.parameters()[3].mutable_grad().reset();
        optimiser.step(0.01);
      }
    };
    run(*straight, 0, 2);
    auto resumed = make(kind, some_groups());
    {
      NamedTensors saved;
      for (const auto& [name, tensor] : straight->state()) saved.emplace_back(name, tensor.clone());
      const torch::NoGradGuard no_grad;
      for (size_t i = 0; i < 6; ++i) resumed->parameters()[i].copy_(straight->parameters()[i]);
      resumed->load_state(straight->steps(), saved);
    }
    EXPECT_EQ(resumed->steps(), 2);
    run(*straight, 2, 5), run(*resumed, 2, 5);
    for (size_t i = 0; i < 6; ++i)
      EXPECT_TRUE(torch::equal(straight->parameters()[i], resumed->parameters()[i]))
          << kind << ", parameter " << i;
  }
}

std::string optimiser_error(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Optimiser, AStateThatDoesNotFitIsRefusedByName) {
  auto optimiser = make("name = 'adamw'", some_groups());
  NamedTensors missing = optimiser->state(), extra = optimiser->state(), shape = optimiser->state();
  missing.erase(missing.begin());
  extra.emplace_back("exp_avg.head", torch::zeros({3}));
  shape[0].second = torch::zeros({257, 130});
  EXPECT_EQ(optimiser_error([&] { optimiser->load_state(1, missing); }),
            "optimiser state: tensor 'exp_avg.w' is missing");
  EXPECT_EQ(optimiser_error([&] { optimiser->load_state(1, extra); }),
            "optimiser state: tensor 'exp_avg.head' belongs to no parameter of this optimiser");
  EXPECT_EQ(optimiser_error([&] { optimiser->load_state(1, shape); }),
            "optimiser state: tensor 'exp_avg.w' has shape [257, 130], must be [130, 257]");
  EXPECT_EQ(optimiser->steps(), 0);
}

TEST(Optimiser, SettingsAreCompleteAndSlipsNameTheNearest) {
  const OptimiserSpec spec = resolve_optimiser(parse_toml("name = 'lamb'\nlr = 4e-3", "test"));
  EXPECT_EQ(spec.common.name, "lamb");
  EXPECT_EQ(spec.common.lr, 4e-3);
  EXPECT_EQ(spec.settings.find("max_grad_norm")->as_double(), 1);
  EXPECT_EQ(resolve_optimiser(spec.settings).settings, spec.settings);
  EXPECT_EQ(resolve_optimiser(Value()).common.name, "adamw");
  const auto refusal = [](const std::string& toml) {
    return optimiser_error([&] { resolve_optimiser(parse_toml(toml, "test")); });
  };
  EXPECT_EQ(
      refusal("name = 'lamp'"),
      "optimiser.name is 'lamp', must be one of adamw, adam, lamb, lars, muon, sgd, did you mean 'lamb'?");
  EXPECT_EQ(refusal("name = 'adamw'\nbeta = [0.9, 0.95]"),
            "unknown key 'optimiser.beta', did you mean 'betas'?");
  EXPECT_EQ(refusal("betas = [0.9]"), "optimiser.betas has 1 numbers, must have 2");
  EXPECT_EQ(refusal("betas = [0.9, 1]"), "optimiser.betas is 1.0, must be at least 0.0 and below 1.0");
  EXPECT_EQ(refusal("name = 'muon'\nscale = 'rms'"), "optimiser.scale is 'rms', must be adamw, first");
  EXPECT_EQ(refusal("lr = -1"), "optimiser.lr is -1.0, must be at least 0.0 and below inf");
  EXPECT_EQ(refusal("name = 3"), "optimiser.name is an integer, must be a string");
}

TEST(Optimiser, GroupsAndPatternsThatDoNotFitAreRefused) {
  auto groups = some_groups();
  groups[1].parameters.push_back(groups[0].parameters[0]);
  EXPECT_EQ(optimiser_error([&] { make("name = 'muon'\nby_adamw = ['w', 'text.*']", some_groups()); }),
            "optimiser.by_adamw: no parameter matches 'text.*'");
  EXPECT_EQ(optimiser_error([&] { make("name = 'sgd'", groups); }),
            "optimiser: parameter 'w' is in two groups or twice in one");
}

}  // namespace
}  // namespace tessera::train
