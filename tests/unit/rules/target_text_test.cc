#include "lib/target/target_text.h"

#include <gtest/gtest.h>

#include "lib/rules/target_yaml.h"
#include "tests/support/diag_text.h"

namespace ktx::rules {
namespace {

TEST(TargetText, IsReadAsTheSameMachine) {
  target::Target machine;
  machine.name = "a \"name\": with [signs] \\ and\nlines";
  machine.cpu.model = "AMD EPYC 9654 96-Core Processor";
  machine.cpu.isa = Isa::Amx;
  machine.cpu.cores = 96;
  machine.cpu.memory_bytes = uint64_t{768} << 30;
  machine.cpu.numa.resize(2);
  machine.cpu.read_gbps = 412.5;
  machine.cpu.int8_tops = 11.25;
  machine.cpu.disk_gbps = 6.5;
  machine.gpus.resize(2);
  machine.gpus[0].name = "NVIDIA H200";
  machine.gpus[0].compute_major = 9;
  machine.gpus[0].memory_bytes = uint64_t{139} << 30;
  machine.gpus[0].multiprocessors = 132;
  machine.gpus[0].pcie_gbps = 55.25;
  machine.gpus[0].peer_gbps = 340;
  machine.gpus[0].peer_write_gbps = 390;
  machine.gpus[0].peer_both_gbps = 330;
  machine.gpus[0].sum_us = 2.5;
  machine.gpus[0].sum_mib_us = 7.25;
  machine.gpus[0].read_gbps = 4300;
  machine.gpus[0].tflops = 340;
  machine.gpus[0].launch_us = 4.4;
  machine.gpus[0].hand_over_us = 16;
  machine.gpus[1].name = "NVIDIA L4";
  machine.gpus[1].compute_major = 8;
  machine.gpus[1].compute_minor = 9;
  machine.gpus[1].memory_bytes = uint64_t{24} << 30;
  DiagSink diags;
  const std::string text = target_text(machine);
  const target::Target read = parse_target(text, "machine.yaml", diags);
  EXPECT_EQ(diags.errors(), 0) << ktx::testing::text_of(diags) << text;
  EXPECT_EQ(target_text(read), text);
  EXPECT_EQ(read.cpu.numa.size(), 2u);
  EXPECT_EQ(read.cpu.isa, Isa::Amx);
  EXPECT_EQ(read.cpu.read_gbps, 412.5);
  EXPECT_EQ(read.cpu.disk_gbps, 6.5);
  ASSERT_EQ(read.gpus.size(), 2u);
  EXPECT_EQ(read.gpus[0].pcie_gbps, 55.25);
  EXPECT_EQ(read.gpus[0].peer_gbps, 340);
  EXPECT_EQ(read.gpus[0].peer_write_gbps, 390);
  EXPECT_EQ(read.gpus[0].peer_both_gbps, 330);
  EXPECT_EQ(read.gpus[0].sum_us, 2.5);
  EXPECT_EQ(read.gpus[0].sum_mib_us, 7.25);
  EXPECT_EQ(read.gpus[0].multiprocessors, 132);
  EXPECT_EQ(read.gpus[1].compute_minor, 9);
}

TEST(TargetText, OfHostsHasTheirGpus) {
  target::GpuTarget gpu{"NVIDIA L4", 8, 9, uint64_t{24} << 30};
  gpu.bandwidth_gbps = 300;
  target::Target lab;
  lab.cpu.cores = 8;
  lab.cpu.memory_bytes = uint64_t{64} << 30;
  lab.gpus = {gpu};
  lab.hosts = {{"a", lab.cpu, 25, 20}, {"b", lab.cpu, 10, 30, {gpu, gpu}}, {"c", lab.cpu, 10, 30}};
  DiagSink diags;
  const std::string text = target_text(lab);
  const target::Target read = parse_target(text, "lab.yaml", diags);
  EXPECT_EQ(diags.errors(), 0) << ktx::testing::text_of(diags) << text;
  EXPECT_EQ(target_text(read), text);
  EXPECT_EQ(read.gpus.size(), 1u);
  ASSERT_EQ(read.hosts.size(), 3u);
  ASSERT_EQ(read.hosts[1].gpus.size(), 2u);
  EXPECT_EQ(read.hosts[1].gpus[1].bandwidth_gbps, 300);
  EXPECT_TRUE(read.hosts[2].gpus.empty());
}

}  // namespace
}  // namespace ktx::rules
