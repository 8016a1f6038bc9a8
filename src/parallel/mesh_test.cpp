#include "parallel/mesh.h"

#include <gtest/gtest.h>

#include "core/core_testing.h"
#include "core/random.h"

namespace tessera::parallel {
namespace {

ParallelConfig degrees(Value replicate, Value shard, Value context, Value tensor, Value pipeline) {
  return {std::move(replicate), std::move(shard), std::move(context), std::move(tensor), std::move(pipeline)};
}

TEST(Mesh, TensorIsInnermostAndPipelineOutermost) {
  const Mesh mesh(degrees(2, 1, 1, 3, 2), 12);
  EXPECT_EQ(mesh.group_of(0, {AxisName::tensor}), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(mesh.group_of(4, {AxisName::replicate}), (std::vector<int>{1, 4}));
  EXPECT_EQ(mesh.group_of(5, {AxisName::pipeline}), (std::vector<int>{5, 11}));
  EXPECT_EQ(mesh.group_of(7, {AxisName::shard}), (std::vector<int>{7}));
  EXPECT_EQ(mesh.group_of(1, {AxisName::replicate, AxisName::shard}), (std::vector<int>{1, 4}));
}

// The groups of each axis divide the processes: each process is a member of its group, and all members have the same
// group.
TEST(Mesh, GroupsDivideTheProcesses) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    RandomStream random(seed, "mesh", 0);
    std::array<int64_t, kAxes> d = {};
    int64_t all = 1;
    for (int64_t& one : d) all *= one = 1 + static_cast<int64_t>(random.below(3));
    const Mesh mesh(degrees(d[0], d[1], d[2], d[3], d[4]), all);
    for (size_t axis = 0; axis < kAxes; ++axis) {
      for (int rank = 0; rank < all; ++rank) {
        const auto members = mesh.group_of(rank, {static_cast<AxisName>(axis)});
        EXPECT_EQ(static_cast<int64_t>(members.size()), mesh.degree(static_cast<AxisName>(axis)));
        EXPECT_EQ(members[static_cast<size_t>(mesh.place_of(rank)[axis])], rank);
        for (const int member : members)
          EXPECT_EQ(mesh.group_of(member, {static_cast<AxisName>(axis)}), members);
      }
    }
  }
}

TEST(Mesh, AutoTakesTheRest) {
  EXPECT_EQ(Mesh(ParallelConfig{}, 6).degree(AxisName::replicate), 6);
  EXPECT_EQ(Mesh(degrees(2, "auto", 1, 1, 1), 6).degree(AxisName::shard), 3);
  EXPECT_EQ(Mesh(degrees("auto", 2, 1, 1, 1), 2).degree(AxisName::replicate), 1);
}

TEST(Mesh, WrongDegreesAreRefusedInOneLine) {
  const auto why = [](const ParallelConfig& config, int64_t processes) {
    return error_of([&] { Mesh(config, processes); });
  };
  EXPECT_EQ(why(degrees(2, 3, 1, 1, 1), 4),
            "[parallel] divides processes as replicate 2 x shard 3, and there are 4: start 6 processes, or "
            "change a degree");
  EXPECT_EQ(why(degrees("auto", 3, 1, 1, 1), 4),
            "[parallel] divides processes as shard 3 x auto, and there are 4: start 3 processes, or change a "
            "degree");
  EXPECT_EQ(why(degrees("auto", "auto", 1, 1, 1), 4),
            "parallel.replicate and parallel.shard are both \"auto\": one of them may be");
  EXPECT_EQ(why(degrees(0, 1, 1, 1, 1), 1), "parallel.replicate = 0, must be 1 to 1048576 or \"auto\"");
  EXPECT_EQ(why(degrees("all", 1, 1, 1, 1), 1),
            "parallel.replicate is 'all', must be a number of processes or \"auto\"");
  EXPECT_EQ(why(degrees(1, 1, 1, 1 << 20, 1 << 20), 1), "[parallel] needs more than 1048576 processes");
  const auto refusal = [](const ParallelConfig& config, int64_t processes) {
    return error_of([&] { require_trainable(config, Mesh(config, processes)); });
  };
  EXPECT_EQ(refusal(degrees(2, 1, 2, 1, 1), 4),
            "parallel.context = 2: training does not divide the tokens of a sample; leave it at 1");
  EXPECT_NO_THROW(require_trainable(degrees(2, 1, 1, 2, 1), Mesh(degrees(2, 1, 1, 2, 1), 4)));
  EXPECT_NO_THROW(require_trainable(degrees(2, 1, 1, 1, 2), Mesh(degrees(2, 1, 1, 1, 2), 4)));
  EXPECT_EQ(refusal(degrees(1, 1, 1, 2, 2), 4),
            "parallel.tensor and parallel.pipeline divide the same layers: leave one of them at 1");
  ParallelConfig both = degrees(1, 2, 1, 1, 2);
  both.zero = 1;
  EXPECT_EQ(refusal(both, 4),
            "parallel.zero = 1 divides what parallel.pipeline has divided: leave one of them out");
  EXPECT_EQ(refusal(degrees(2, 2, 1, 1, 1), 4),
            "parallel.shard = 2 divides nothing: set parallel.zero to 1, 2 or 3");
  EXPECT_EQ(error_of([] { require_trainable(degrees(1, "auto", 1, 1, 1)); }),
            "parallel.shard = \"auto\" divides nothing: set parallel.zero to 1, 2 or 3");
}

TEST(MeshTest, WithZeroTheShardAxisTakesTheProcessesThatAreLeft) {
  const auto shard_and_copies = [](ParallelConfig config, int64_t processes) {
    config.zero = 1;
    const Mesh mesh(config, processes);
    require_trainable(config, mesh);
    return std::pair(mesh.degree(AxisName::shard), mesh.degree(AxisName::replicate));
  };
  EXPECT_EQ(shard_and_copies({}, 4), std::pair(int64_t{4}, int64_t{1}));
  EXPECT_EQ(shard_and_copies(degrees(2, 1, 1, 1, 1), 4), std::pair(int64_t{2}, int64_t{2}));
  EXPECT_EQ(shard_and_copies(degrees("auto", 2, 1, 1, 1), 6), std::pair(int64_t{2}, int64_t{3}));
  EXPECT_EQ(shard_and_copies({}, 1), std::pair(int64_t{1}, int64_t{1}));
}

}  // namespace
}  // namespace tessera::parallel
