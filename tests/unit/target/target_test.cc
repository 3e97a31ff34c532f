#include "lib/target/target.h"

#include <gtest/gtest.h>

#include "lib/target/cgroup.h"
#include "lib/target/proc_text.h"
#include "tests/unit/target/fake_machine.h"

namespace ktx::target {
namespace {

TEST_F(FakeMachine, AddsUpCachesThatDifferentThreadsShare) {
  put_cpus(1, 4, 1);
  EXPECT_EQ(last_level_cache_bytes(root()), 0u);
  for (int cpu = 0; cpu < 4; ++cpu) {
    const std::string at = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index3/";
    put(at + "shared_cpu_list", cpu < 2 ? "0-1\n" : "2-3\n");
    put(at + "size", "32768K\n");
  }
  EXPECT_EQ(last_level_cache_bytes(root()), uint64_t{64} << 20);
}

TEST_F(FakeMachine, CountsCoresNotHardwareThreads) {
  put_cpus(2, 4, 2);
  put("/proc/meminfo", "MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    600 kB\n");
  put("/proc/cpuinfo", "processor\t: 0\nmodel name\t: Some \"CPU\" 9000\n");
  const Target host = detect_host(root());
  EXPECT_EQ(host.cpu.hardware_threads, 16);
  EXPECT_EQ(host.cpu.cores, 8);
  EXPECT_EQ(host.cpu.default_threads(), 8);
  EXPECT_EQ(host.cpu.memory_bytes, 1000u * 1024);
  EXPECT_EQ(available_memory(root()), 600u * 1024);
  EXPECT_EQ(host.cpu.model, "Some \"CPU\" 9000");
}

TEST_F(FakeMachine, ReadsVersion2LimitsOfTheGroupAndItsParents) {
  put_cpus(1, 8, 1);
  put("/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n");
  put("/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n");
  put("/proc/self/cgroup", "0::/user.slice/job\n");
  put("/sys/fs/cgroup/user.slice/cpu.max", "150000 100000\n");
  put("/sys/fs/cgroup/user.slice/job/cpu.max", "max 100000\n");
  put("/sys/fs/cgroup/user.slice/memory.max", "max\n");
  put("/sys/fs/cgroup/user.slice/job/memory.max", "1000000\n");
  put("/sys/fs/cgroup/user.slice/job/memory.current", "700000\n");
  put("/sys/fs/cgroup/user.slice/job/memory.stat", "anon 1\ninactive_file 300000\nactive_file 1\n");
  const Target host = detect_host(root());
  EXPECT_EQ(host.cpu.cpu_quota, 1.5);
  EXPECT_EQ(host.cpu.default_threads(), 2);
  EXPECT_EQ(host.cpu.memory_bytes, 1000000u);
  EXPECT_EQ(available_memory(root()), 600001u);
}

TEST_F(FakeMachine, ReadsVersion1LimitsInAContainer) {
  put_cpus(1, 4, 1);
  put("/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n");
  put("/proc/self/mountinfo",
      "31 1 0:28 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
      "32 1 0:29 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  put("/proc/self/cgroup", "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n");
  put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n");
  put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n");
  put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "147483648\n");
  const Target host = detect_host(root());
  EXPECT_EQ(host.cpu.cpu_quota, 0.5);
  EXPECT_EQ(host.cpu.default_threads(), 1);
  EXPECT_EQ(host.cpu.memory_bytes, 2147483648u);
  EXPECT_EQ(available_memory(root()), 2000000000u);
}

TEST_F(FakeMachine, TakesHugeAndMissingLimitsAsNone) {
  put("/proc/self/mountinfo", "32 1 0:29 / /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  put("/proc/self/cgroup", "5:memory:/\ngarbage\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const CgroupLimits limits = read_cgroup_limits(root());
  EXPECT_FALSE(limits.cpus);
  EXPECT_FALSE(limits.memory_bytes);
  EXPECT_FALSE(limits.memory_available);
  EXPECT_FALSE(available_memory(root()));
}

TEST(Target, DetectsThisMachine) {
  const Target host = detect_host();
  EXPECT_GE(host.cpu.default_threads(), 1);
  EXPECT_LE(host.cpu.cores, host.cpu.hardware_threads);
  EXPECT_GT(host.cpu.memory_bytes, 0u);
  EXPECT_GT(available_memory().value_or(0), 0u);
  EXPECT_LE(available_memory().value_or(0), host.cpu.memory_bytes);
}

TEST(ProcText, ParsesCpuLists) {
  EXPECT_EQ(parse_cpu_list("0-2,5\n"), (std::vector<int>{0, 1, 2, 5}));
  EXPECT_EQ(parse_cpu_list("7"), (std::vector<int>{7}));
  EXPECT_TRUE(parse_cpu_list("").empty());
  EXPECT_TRUE(parse_cpu_list("0-99999999999").empty());
  EXPECT_TRUE(parse_cpu_list("3-1").empty());
}

}  // namespace
}  // namespace ktx::target
