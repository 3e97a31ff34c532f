// What `mpirun -n N ktx-run probe` measures and writes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "lib/runtime/hosts/probe_network.h"
#include "lib/runtime/hosts/thread_network.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"

namespace ktx::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(ProbeNetwork, MeasuresEachOfTheOthers) {
  auto ends = runtime::make_thread_network(3);
  auto first = runtime::HostGroup::start(std::move(ends[0]));
  std::vector<std::thread> others;
  for (int rank = 1; rank < 3; ++rank) {
    others.emplace_back([rank, end = std::move(ends[static_cast<size_t>(rank)])]() mutable {
      const auto group = runtime::HostGroup::start(std::move(end));
      const Status followed = runtime::follow_probe(*group, [rank] {
        runtime::ProbedHost host;
        host.name = fmt::format("m{}", rank);
        host.cpu.cores = 10 * rank;
        host.cpu.isa = Isa::Avx512;
        host.cpu.read_gbps = 77;
        host.gpus.resize(static_cast<size_t>(rank - 1));
        for (target::GpuTarget& gpu : host.gpus) {
          gpu = {.name = "NVIDIA L4",
                 .compute_major = 8,
                 .compute_minor = 9,
                 .memory_bytes = uint64_t{23} << 30,
                 .bandwidth_gbps = 300,
                 .pcie_gbps = 12.5,
                 .peer_gbps = 25,
                 .peer_write_gbps = 24,
                 .sum_us = 8,
                 .multiprocessors = 58,
                 .hand_over_us = 21};
        }
        return host;
      });
      EXPECT_TRUE(followed.ok());
    });
  }
  ASSERT_TRUE(runtime::ask_hosts(*first).ok());
  for (int rank = 1; rank < 3; ++rank) {
    const auto host = runtime::receive_host(*first, rank);
    ASSERT_TRUE(host.ok()) << host.error().message;
    EXPECT_EQ(host->name, fmt::format("m{}", rank));
    EXPECT_EQ(host->cpu.cores, 10 * rank);
    EXPECT_EQ(host->cpu.isa, Isa::Avx512);
    EXPECT_EQ(host->cpu.read_gbps, 77);
    ASSERT_EQ(std::ssize(host->gpus), rank - 1);
    for (const target::GpuTarget& gpu : host->gpus) {
      EXPECT_EQ(gpu.name, "NVIDIA L4");
      EXPECT_EQ(gpu.compute_minor, 9);
      EXPECT_EQ(gpu.memory_bytes, uint64_t{23} << 30);
      EXPECT_EQ(gpu.pcie_gbps, 12.5);
      EXPECT_EQ(gpu.peer_gbps, 25);
      EXPECT_EQ(gpu.peer_write_gbps, 24);
      EXPECT_EQ(gpu.sum_us, 8);
      EXPECT_EQ(gpu.multiprocessors, 58);
      EXPECT_EQ(gpu.hand_over_us, 21);
    }
    const auto link = runtime::measure_link(*first, rank);
    ASSERT_TRUE(link.ok()) << link.error().message;
    EXPECT_GT(link->gbit, 0.1);
    EXPECT_GT(link->latency_us, 0);
    EXPECT_LT(link->latency_us, 1e5);
  }
  first.reset();
  for (std::thread& other : others) other.join();
}

TEST(MpirunProbe, WritesATargetWithHosts) {
  if (!fs::exists(binary_dir() + "/ktx-mpi.so") || !fs::exists("/usr/bin/mpirun")) {
    GTEST_SKIP() << "no MPI (libopenmpi-dev, openmpi-bin)";
  }
  const TempDir dir;
  const std::string file = dir.path("lab.yaml");
  const Finished probed =
      run_program({"/usr/bin/mpirun", "-n", "2", ktx_run(), "probe", "-o", file}, "",
                  {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                   "OMPI_MCA_rmaps_base_oversubscribe=1", "OMPI_MCA_hwloc_base_binding_policy=none",
                   "OMPI_MCA_btl_vader_single_copy_mechanism=none",
                   "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe",
                   "PRTE_MCA_hwloc_default_binding_policy=none"});
  ASSERT_EQ(probed.status, 0) << probed.err;
  const std::string text = read_file(file);
  EXPECT_THAT(text, HasSubstr("hosts:\n  - {name: "));
  EXPECT_THAT(text, HasSubstr("network: {gbit: "));
  const Finished estimate = run_program(
      {ktx_compile(), "--check", test_model_gguf("qwen3moe"), "--target", file, "--estimate"});
  EXPECT_EQ(estimate.status, 0) << estimate.err;
  EXPECT_THAT(estimate.out, HasSubstr("GB/s (measured)"));
  EXPECT_THAT(estimate.out, ::testing::Not(HasSubstr("where not stated")));
}

}  // namespace
}  // namespace ktx::testing
