// Costs and memory against published figures and sums by hand; the search against trying everything.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "core/error.h"
#include "core/random.h"
#include "io/files/file.h"
#include "plan/layout.h"
#include "plan/published.h"
#include "plan/search.h"

namespace tessera::plan {
namespace {

constexpr double kMiB = 1024.0 * 1024, kGiB = 1024 * kMiB;

std::vector<Published> published() {
  return read_published(std::string(TESSERA_TEST_DATA) + "/../../bench/plan/published.csv");
}

Transformer gpt(int64_t width, int64_t heads, int64_t layers, int64_t sequence = 2048) {
  return {"gpt", width, heads, heads, layers, 4 * width, 51200, sequence, true};
}

TEST(Cluster, AMeasuredOneIsReadBack) {
  const std::string file = testing::TempDir() + "/cluster.toml";
  Cluster cluster{find_chip("h100-500w"), 16, 8};
  cluster.chip.link_bytes_per_s = 1.23456e8, cluster.chip.network_bytes_per_s = 7e9;
  write_text_atomic(file, cluster_toml(cluster));
  const Cluster read = read_cluster(file);
  EXPECT_EQ(read.chips, 16);
  EXPECT_EQ(read.per_machine, 8);
  EXPECT_EQ(read.chip.name, "h100-500w");
  EXPECT_EQ(read.chip.generation, Generation::hopper);
  EXPECT_DOUBLE_EQ(read.chip.flops, cluster.chip.flops);
  EXPECT_DOUBLE_EQ(read.chip.memory_bytes, cluster.chip.memory_bytes);
  EXPECT_DOUBLE_EQ(read.chip.link_bytes_per_s, 1.23456e8);
  EXPECT_DOUBLE_EQ(read.chip.network_bytes_per_s, 7e9);
  EXPECT_DOUBLE_EQ(read.chip.power, cluster.chip.power);
  for (const char* wrong :
       {"per_machine = 1\n", "chips = 0\nper_machine = 1\n", "chips = 1\nper_machine = 1\n"}) {
    write_text_atomic(file, wrong);
    EXPECT_THROW(read_cluster(file), Error) << wrong;
  }
}

TEST(Shape, AttentionOverPixelsPatchesAndWindows) {
  // 128 x 128 pixels, 48 layers of 16 heads in float: one example.
  EXPECT_DOUBLE_EQ(4 * 48 * 16 * score_entries(128, 128) / kGiB, 768);
  EXPECT_DOUBLE_EQ(score_entries(14, 14), 38416);  // patches of 16 x 16 in 224 x 224 pixels: 150 KiB
  EXPECT_NEAR(4 * score_entries(14, 14) / 1024, 150, 0.1);
  EXPECT_NEAR(4 * 48 * 16 * score_entries(14, 14) / kMiB, 112.5, 0.1);
  EXPECT_DOUBLE_EQ(4 * score_entries(16, 16) / 1024, 256);  // patches of 14 x 14
  EXPECT_DOUBLE_EQ(4 * 48 * 16 * score_entries(16, 16) / kMiB, 192);
  // Swin: 56 x 56 tokens globally, and in windows of 7 x 7: M^2 H W.
  EXPECT_DOUBLE_EQ(score_entries(56, 56), std::pow(56.0, 4));
  EXPECT_DOUBLE_EQ(score_entries(56, 56, 7), 49.0 * 56 * 56);
}

TEST(Shape, ParametersAreThoseOfPublishedModels) {
  const Shape gpt3 = shape_of(gpt(12288, 96, 96));
  EXPECT_NEAR(gpt3.all_parameters() / 1e9, 174.6, 0.5);
  const Shape llama = shape_of({"llama", 4096, 32, 8, 32, 14336, 128256, 8192, false});
  EXPECT_EQ(llama.all_parameters(), 8030261248.0);
  const Shape large = shape_of({"llama", 16384, 128, 8, 126, 53248, 128256, 8192, false});
  EXPECT_NEAR(large.all_parameters() / 1e9, 405.85, 0.1);
}

TEST(Memory, ActivationsFollowKorthikanti) {
  Stack stack = shape_of(gpt(12288, 96, 96)).stacks[0];
  stack.dropout = true;
  const double s = 2048, h = 12288, a = 96;
  Layout layout{.sequence_parallel = false, .flash = false};
  EXPECT_DOUBLE_EQ(kept_bytes(stack, layout), s * h * (34 + 5 * a * s / h));
  layout.tensor = 8;
  EXPECT_DOUBLE_EQ(kept_bytes(stack, layout), s * h * (10 + 24 / 8.0 + 5 * a * s / (h * 8)));
  layout.sequence_parallel = true;
  EXPECT_DOUBLE_EQ(kept_bytes(stack, layout), s * h / 8 * (34 + 5 * a * s / h));
  layout.recompute = Recompute::attention;
  EXPECT_DOUBLE_EQ(kept_bytes(stack, layout), s * h * 34 / 8);
  layout.recompute = Recompute::full;
  EXPECT_DOUBLE_EQ(kept_bytes(stack, layout), s * h * 2 / 8);
}

TEST(Memory, StagesOfZeroShardTheState) {
  const Shape shape = shape_of(gpt(1024, 16, 24));
  const double parameters = shape.all_parameters();
  Layout layout{.data = 8};
  const auto state = [&](int64_t zero) {
    layout.zero = zero;
    const StepMemory memory = step_memory(shape, layout, {.batch = 16});  // two passes a step
    return memory.weights + memory.gradients + memory.optimiser;
  };
  EXPECT_DOUBLE_EQ(state(0), 16 * parameters);
  EXPECT_DOUBLE_EQ(state(1), (4 + 4 + 8 / 8.0) * parameters);
  EXPECT_DOUBLE_EQ(state(2), (4 + 4 / 8.0 + 8 / 8.0) * parameters);
  EXPECT_DOUBLE_EQ(state(3), 16 / 8.0 * parameters);
}

TEST(Memory, DividedGradientsOfOnePassTakeThePlaceOfActivations) {
  const Shape shape = shape_of(gpt(1024, 16, 24));
  const double parameters = shape.all_parameters();
  const auto gradients = [&](int64_t zero, Recompute recompute) {
    const Layout layout{.data = 8, .zero = zero, .recompute = recompute};
    const StepMemory memory = step_memory(shape, layout, {.batch = 8});
    return std::pair(memory.gradients, memory.activations);
  };
  EXPECT_DOUBLE_EQ(gradients(0, Recompute::none).first, 4 * parameters);  // whole until the update
  for (const int64_t zero : {1, 2, 3}) {
    EXPECT_EQ(gradients(zero, Recompute::none).first, 0);
    const auto [left, activations] = gradients(zero, Recompute::full);
    EXPECT_DOUBLE_EQ(left, 4 / 8.0 * parameters - activations);
  }
}

TEST(Memory, FrozenPartsHaveNoGradientsAndNoState) {
  Shape shape = shape_of(gpt(1024, 16, 24));
  shape.stacks[0].trained = 0;
  const StepMemory memory = step_memory(shape, {}, {.batch = 1});
  EXPECT_DOUBLE_EQ(memory.gradients, 4 * shape.trained);
  EXPECT_DOUBLE_EQ(memory.weights, 4 * shape.all_parameters());
}

TEST(Traffic, CountsCollectives) {
  const Shape shape = shape_of(gpt(1024, 16, 24));
  const double parameters = shape.all_parameters();
  const Arithmetic arithmetic{.batch = 8};
  EXPECT_DOUBLE_EQ(step_traffic(shape, {.data = 4, .microbatch = 2}, arithmetic).data,
                   2 * 0.75 * 4 * parameters);
  EXPECT_DOUBLE_EQ(step_traffic(shape, {.data = 4, .zero = 3, .microbatch = 2}, arithmetic).data,
                   0.75 * (4 + 2 * 2) * parameters);
  // Four all-reduces of a microbatch's activations in each layer.
  EXPECT_DOUBLE_EQ(step_traffic(shape, {.tensor = 2, .microbatch = 8}, arithmetic).tensor,
                   24 * 4 * 2 * 0.5 * 2 * 8 * 2048 * 1024);
}

TEST(Cost, BubbleIsThatOfTheSchedule) {
  const Shape shape = shape_of(gpt(4096, 32, 32));
  const Cluster cluster{find_chip("a100-80"), 4, 8};
  Layout layout{.pipeline = 4};
  StepTime time = step_cost(shape, cluster, layout, {.batch = 8}, fitted_constants()).time;
  const auto ideal = [](const StepTime& t) {
    return t.products + t.attention + t.memory_bound + t.recomputed + t.launches + t.tensor_traffic;
  };
  EXPECT_NEAR(time.bubble / ideal(time), 3.0 / 8, 1e-9);
  layout.virtual_stages = 2;
  time = step_cost(shape, cluster, layout, {.batch = 8}, fitted_constants()).time;
  EXPECT_NEAR(time.bubble / ideal(time), 3.0 / 16, 1e-9);
}

TEST(Schedule, BubbleAndOrderAreThoseOfTheFormulas) {
  for (const int64_t stages : {1, 2, 4, 8})
    for (const int64_t microbatches : {8, 16}) {
      const Schedule schedule = one_forward_one_backward(stages, microbatches);
      EXPECT_NEAR(bubble_of(schedule), static_cast<double>(stages - 1) / static_cast<double>(microbatches),
                  1e-12);
      for (size_t s = 0; s < schedule.size(); ++s) {
        int64_t alive = 0, most = 0, backward_slots = 0;
        for (const Slot& slot : schedule[s]) {
          if (slot.work == Work::forward) most = std::max(most, ++alive);
          if (slot.work == Work::backward && ++backward_slots % 2 == 0) --alive;
        }
        EXPECT_EQ(alive, 0);
        EXPECT_EQ(most, std::min(microbatches, stages - static_cast<int64_t>(s)));
      }
    }
}

TEST(Bandwidth, ChipsOfAMachineShareItsCards) {
  const Cluster cluster{find_chip("h100"), 64, 8};
  EXPECT_DOUBLE_EQ(bandwidth(cluster, 8, 1).bytes_per_s, 450e9);
  EXPECT_DOUBLE_EQ(bandwidth(cluster, 64, 1).bytes_per_s, 400e9);  // eight cards
  EXPECT_DOUBLE_EQ(bandwidth(cluster, 8, 8).bytes_per_s, 50e9);
}

TEST(Published, PredictionsHoldOnPointsLeftOut) {
  const std::vector<Published> points = published();
  ASSERT_EQ(points.size(), 123u);
  const Errors errors = errors_of(cross_validate(points));
  EXPECT_LE(errors.median, 0.05);
  EXPECT_GE(errors.within_10, 0.8);
  EXPECT_GE(errors.within_25, 0.95);
}

TEST(Published, TheTableHoldsTheFit) {
  const Constants fit = fit_constants(published()), table = fitted_constants();
  for (size_t i = 0; i < fit.values.size(); ++i)
    EXPECT_NEAR(fit.values[i], table.values[i], 0.02 * table.values[i]) << constant_table()[i].name;
}

TEST(Published, MemoryOfTorchtitan) {
  int compared = 0;
  for (const Published& point : published()) {
    const Prediction prediction = predict(point, fitted_constants());
    if (prediction.published_bytes == 0) continue;
    ++compared;
    EXPECT_NEAR(prediction.memory_bytes / prediction.published_bytes, 1, 0.15) << prediction.id;
  }
  EXPECT_EQ(compared, 2);
}

// A random model, cluster and batch.
struct Drawn {
  Shape shape{};
  Cluster cluster{};
  int64_t batch = 1;
};

Drawn draw(RandomStream& random, bool small) {
  const auto one_of = [&](std::initializer_list<int64_t> values) {
    return *(values.begin() + static_cast<std::ptrdiff_t>(random.below(values.size())));
  };
  const int64_t heads = small ? one_of({2, 3, 4, 6, 8}) : one_of({4, 6, 8, 12, 16, 32, 40, 96});
  const int64_t width = heads * one_of({32, 64, 128});
  Drawn drawn;
  drawn.shape =
      shape_of({random.chance(0.5) ? "gpt" : "llama", width, heads, heads, random.integer(1, small ? 8 : 48),
                4 * width, random.integer(100, 60000), one_of({64, 196, 512, 1024, 2048}), true});
  const auto& known = chips();
  drawn.cluster.chip = known[random.below(known.size() - 1)];
  drawn.cluster.chip.memory_bytes *= small ? random.uniform(0.03, 0.2) : 1;
  drawn.cluster.chips = small ? random.integer(1, 12) : one_of({1, 2, 6, 8, 16, 24, 64, 512});
  drawn.cluster.per_machine = std::min<int64_t>(one_of({1, 2, 4, 6, 8}), drawn.cluster.chips);
  drawn.batch = small ? random.integer(1, 24) : one_of({1, 7, 48, 64, 96, 256, 1024});
  return drawn;
}

TEST(Search, TenThousandPlansArePossible) {
  int found = 0;
  for (uint64_t i = 0; i < 10000; ++i) {
    RandomStream random(7, "plans", i);
    const Drawn drawn = draw(random, /*small=*/i % 2 == 0);
    const std::vector<Plan> plans =
        search(drawn.shape, drawn.cluster, {.batch = drawn.batch}, fitted_constants(), {.keep = 3});
    for (const Plan& plan : plans) {
      const Layout& l = plan.layout;
      ASSERT_EQ(l.data * l.tensor * l.pipeline, drawn.cluster.chips);
      ASSERT_EQ(drawn.batch % (l.data * l.microbatch), 0);
      ASSERT_EQ(drawn.cluster.per_machine % l.tensor, 0);
      ASSERT_EQ(drawn.shape.stacks[0].heads % l.tensor, 0);
      ASSERT_EQ(drawn.shape.stacks[0].layers % (l.pipeline * l.virtual_stages), 0);
      ASSERT_LE(plan.cost.memory.sum(), usable_bytes(drawn.cluster.chip));
      ASSERT_GT(plan.cost.time.sum(), 0);
      ASSERT_TRUE(plan.cost.mfu > 0 && plan.cost.mfu < 1) << plan.cost.mfu << " " << l.text();
      ++found;
    }
  }
  EXPECT_GT(found, 5000);
}

// The fastest time over every combination of numbers up to the number of chips, the batch and the layers.
double best_of_all(const Drawn& drawn) {
  double best = INFINITY;
  const int64_t chips = drawn.cluster.chips;
  Layout l;
  for (l.data = 1; l.data <= chips; ++l.data)
    for (l.tensor = 1; l.tensor <= chips; ++l.tensor)
      for (l.pipeline = 1; l.pipeline <= chips; ++l.pipeline) {
        if (l.chips() != chips) continue;
        for (l.microbatch = 1; l.microbatch <= drawn.batch; ++l.microbatch)
          for (l.virtual_stages = 1; l.virtual_stages <= drawn.shape.stacks[0].layers; ++l.virtual_stages)
            for (l.zero = 0; l.zero <= 3; ++l.zero)
              for (l.recompute = Recompute::none; l.recompute <= Recompute::full;
                   l.recompute = static_cast<Recompute>(static_cast<int>(l.recompute) + 1)) {
                if (!why_impossible(l, drawn.shape, drawn.cluster, drawn.batch).empty()) continue;
                const StepCost cost =
                    step_cost(drawn.shape, drawn.cluster, l, {.batch = drawn.batch}, fitted_constants());
                if (cost.memory.sum() <= usable_bytes(drawn.cluster.chip))
                  best = std::min(best, cost.time.sum());
              }
      }
  return best;
}

TEST(Search, FindsWhatTryingEverythingFinds) {
  int possible = 0;
  for (uint64_t i = 0; i < 200; ++i) {
    RandomStream random(8, "plans", i);
    const Drawn drawn = draw(random, /*small=*/true);
    const std::vector<Plan> plans =
        search(drawn.shape, drawn.cluster, {.batch = drawn.batch}, fitted_constants());
    const double best = best_of_all(drawn);
    ASSERT_EQ(plans.empty(), std::isinf(best)) << i;
    if (plans.empty()) continue;
    ++possible;
    EXPECT_DOUBLE_EQ(plans[0].cost.time.sum(), best) << i << ": " << plans[0].layout.text();
  }
  EXPECT_GT(possible, 60);
}

TEST(Search, SixteenThousandChipsTakeSeconds) {
  const auto began = std::chrono::steady_clock::now();
  const Shape shape = shape_of({"llama", 16384, 128, 8, 128, 53248, 128256, 8192, false});
  EXPECT_GT(possible_layouts(shape, parse_cluster("h100x16384"), 16384).size(), 500u);
  const std::vector<Plan> plans =
      search(shape, parse_cluster("h100x16384"), {.batch = 16384}, fitted_constants());
  ASSERT_FALSE(plans.empty());
  EXPECT_GT(plans[0].cost.mfu, 0.2);
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count(), 10);
}

TEST(Search, NamesTheSmallestClusterThatWouldDo) {
  const Shape shape = shape_of({"llama", 16384, 128, 8, 126, 53248, 128256, 8192, false});
  const Cluster cluster = parse_cluster("h100x8");
  EXPECT_TRUE(search(shape, cluster, {.batch = 512}, fitted_constants()).empty());
  const Shortfall why = shortfall(shape, cluster, {.batch = 512});
  EXPECT_GT(why.missing_bytes, 700e9);  // 16 bytes of 405 G parameters over 8 chips, less their 80 GB
  EXPECT_EQ(why.smallest_chips, 128);
  EXPECT_FALSE(shortfall(shape, parse_cluster("h100x7"), {.batch = 1}).batch_divides);
}

std::string error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind, ErrorKind::usage);
    return error.what();
  }
  return "";
}

TEST(Cluster, RefusalsAreOneLine) {
  EXPECT_EQ(parse_cluster("h100x64").chips, 64);
  EXPECT_EQ(parse_cluster("a100-80x16/4").per_machine, 4);
  EXPECT_EQ(parse_cluster("cpu").chips, 1);
  EXPECT_NE(error_of([] { parse_cluster("h10x64"); }).find("did you mean 'h100'"), std::string::npos);
  EXPECT_NE(error_of([] { parse_cluster("h100x0"); }).find("write CHIPxCOUNT"), std::string::npos);
  const std::string path = ::testing::TempDir() + "/chips.toml";
  write_text_atomic(path,
                    "[b300]\ngeneration = \"hopper\"\nflops = \"2.5 PFLOP/s\"\nmemory = \"288 GB\"\n"
                    "memory_rate = \"8 TB/s\"\nlink = \"900 GB/s\"\nnetwork = \"100 GB/s\"\n");
  EXPECT_DOUBLE_EQ(find_chip("b300", read_chips(path)).flops, 2.5e15);
  write_text_atomic(path, "[b300]\nflops = 2.5e15\n");
  EXPECT_NE(error_of([&] { read_chips(path); }).find("b300.flops has no unit"), std::string::npos);
  write_text_atomic(path, "[b300]\nflops = \"2.5\"\n");
  EXPECT_NE(error_of([&] { read_chips(path); }).find("has no unit FLOP/s"), std::string::npos);
  write_text_atomic(path, "[b300]\nflop = \"2.5\"\n");
  EXPECT_NE(error_of([&] { read_chips(path); }).find("did you mean 'flops'"), std::string::npos);
}

}  // namespace
}  // namespace tessera::plan
