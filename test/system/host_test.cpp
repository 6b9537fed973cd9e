#include "src/system/host.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace partita::host_test {
namespace {

namespace fs = std::filesystem;

/// Files of /proc and /sys in a folder of their own.
class Host : public testing::Test {
 protected:
  void SetUp() override { root = fs::temp_directory_path() / ("partita-host-" + std::to_string(getpid())); }
  void TearDown() override { fs::remove_all(root); }
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  }
  std::optional<CpuQuota> quota() const { return cpu_quota(root.string()); }

  fs::path root;
};

TEST_F(Host, AQuotaOfVersion2) {
  write("proc/self/cgroup", "0::/user.slice/job\n");
  EXPECT_FALSE(quota());
  write("sys/fs/cgroup/user.slice/job/cpu.max", "max 100000\n");
  EXPECT_FALSE(quota());
  write("sys/fs/cgroup/user.slice/job/cpu.max", "150000 100000\n");
  write("sys/fs/cgroup/user.slice/job/cpu.stat", "usage_usec 7\nnr_periods 40\nnr_throttled 12\nthrottled_usec 9\n");
  ASSERT_TRUE(quota());
  EXPECT_EQ(quota()->cores, 1.5);
  EXPECT_DOUBLE_EQ(quota()->period, 0.1);
  EXPECT_EQ(quota()->throttled, 12);
  write("sys/fs/cgroup/user.slice/cpu.max", "50000 200000\n");  // the group above is tighter
  EXPECT_EQ(quota()->cores, 0.25);
  EXPECT_EQ(quota()->throttled, 0);
}

TEST_F(Host, AQuotaOfAContainerThatSeesItsGroupAsTheHighest) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/cpu.max", "200000 100000\n");
  ASSERT_TRUE(quota());
  EXPECT_EQ(quota()->cores, 2);
  write("proc/self/cgroup", "0::/system.slice/docker-1a2b.scope\n");  // the path on the host is not there
  ASSERT_TRUE(quota());
  EXPECT_EQ(quota()->cores, 2);
}

TEST_F(Host, AQuotaOfVersion1) {
  write("proc/self/cgroup", "11:cpuset:/a\n4:cpu,cpuacct:/docker/1a2b\n2:cpuacct_of_another:/b\n1:name=systemd:/\n");
  const std::string group = "sys/fs/cgroup/cpu,cpuacct/docker/1a2b/";
  write(group + "cpu.cfs_quota_us", "-1\n");
  write(group + "cpu.cfs_period_us", "100000\n");
  EXPECT_FALSE(quota());
  write(group + "cpu.cfs_quota_us", "100000\n");
  write(group + "cpu.stat", "nr_periods 3\nnr_throttled 2\n");
  ASSERT_TRUE(quota());
  EXPECT_EQ(quota()->cores, 1);
  EXPECT_EQ(quota()->throttled, 2);
}

TEST_F(Host, NumbersOfFiles) {
  write("n", "17 more\n");
  write("text", "max\n");
  write("memory", "MemTotalOther:  1 kB\nMemTotal:    16384 kB\nMemFree: 5\n");
  EXPECT_EQ(number_in(root / "n"), 17);
  EXPECT_EQ(number_in(root / "text"), std::nullopt);
  EXPECT_EQ(number_in(root / "none"), std::nullopt);
  EXPECT_EQ(proc_bytes(root / "memory", "MemTotal"), 16384 * 1024);
  EXPECT_EQ(proc_bytes(root / "memory", "MemFree"), std::nullopt);
  EXPECT_EQ(proc_bytes(root / "none", "MemTotal"), std::nullopt);
}

TEST(HostCores, AreThoseOfTheSystemCall) {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  if (sched_getaffinity(0, sizeof mine, &mine) != 0) return;  // more than 1024 cores
  EXPECT_EQ(allowed_cores(), CPU_COUNT(&mine));
  EXPECT_EQ(count_bits({0x80, 0, 0xff}), 9);
  EXPECT_EQ(count_bits({}), 0);
}

}  // namespace
}  // namespace partita::host_test
