#include "core/memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace tessera {
namespace {

class Container : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove_all(root_); }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& content) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << content;
  }
  ContainerLimits limits() const { return container_limits(root_); }

 private:
  std::string root_ = testing::TempDir() + "container_test";
};

TEST_F(Container, MissingFilesSetNoLimit) {
  EXPECT_FALSE(limits().cores);
  write("/proc/self/cgroup", "0::/job\n");
  EXPECT_FALSE(limits().cores);
  EXPECT_FALSE(limits().memory);
}

TEST_F(Container, TheSmallestLimitOfAGroupAndThoseAboveItCounts) {
  write("/proc/self/cgroup", "0::/slice/job/step\n");
  write("/sys/fs/cgroup/slice/job/step/cpu.max", "max 100000\n");
  write("/sys/fs/cgroup/slice/job/cpu.max", "150000 100000\n");
  write("/sys/fs/cgroup/slice/cpu.max", "800000 100000\n");
  write("/sys/fs/cgroup/slice/job/step/memory.max", "8589934592\n");
  write("/sys/fs/cgroup/slice/memory.max", "4294967296\n");
  EXPECT_EQ(limits().cores, 1.5);
  EXPECT_EQ(limits().memory, uint64_t{4} << 30);
}

TEST_F(Container, TheFirstVersionHasAFolderForEachKind) {
  write("/proc/self/cgroup", "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/\n");
  write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "200000\n");  // a container sees its group as the top
  write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  write("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "1073741824\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(limits().cores, 2.0);
  EXPECT_EQ(limits().memory, uint64_t{1} << 30);
}

TEST_F(Container, WordsThatAreNoLimitsSetNone) {
  write("/proc/self/cgroup", "4:cpu:/a\nx\n0::job\n0::/\n");
  write("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
  write("/sys/fs/cgroup/cpu.max", "100000 0\n");
  write("/sys/fs/cgroup/memory.max", "many\n");
  EXPECT_FALSE(limits().cores);
  EXPECT_FALSE(limits().memory);
}

}  // namespace
}  // namespace tessera
