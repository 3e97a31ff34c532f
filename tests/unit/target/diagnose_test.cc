#include "lib/target/diagnose.h"

#include <gtest/gtest.h>

#include "tests/unit/target/fake_machine.h"

namespace ktx::target {
namespace {

class Diagnose : public FakeMachine {
 protected:
  void SetUp() override {
    put_cpus(1, 8, 2);
    put("/proc/cpuinfo", "model name\t: Some CPU 9000\n");
    put("/proc/meminfo", "MemTotal: 33554432 kB\nMemAvailable: 16777216 kB\n");
    put("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  }

  Diagnosis run(const GpuFacts& gpus = {.problem = "no NVIDIA driver here"},
                Isa isa = Isa::Avx512) {
    return diagnose(gpus, isa, root());
  }
  static Finding find(const Diagnosis& diagnosis, const std::string& what) {
    for (const Finding& finding : diagnosis.findings) {
      if (finding.what == what) return finding;
    }
    ADD_FAILURE() << "no finding about " << what;
    return {};
  }
};

const GpuTarget kNew = {
    .name = "H200", .compute_major = 9, .compute_minor = 0, .memory_bytes = uint64_t{141} << 30};
const GpuTarget kOld = {
    .name = "V100", .compute_major = 7, .compute_minor = 0, .memory_bytes = uint64_t{16} << 30};

TEST_F(Diagnose, AMachineWithoutGpusRunsPlansForTheCpu) {
  const Diagnosis diagnosis = run();
  EXPECT_TRUE(diagnosis.runs_on_cpu);
  EXPECT_FALSE(diagnosis.runs_on_gpu);
  EXPECT_EQ(find(diagnosis, "processor").text, "Some CPU 9000: 8 cores, 16 hardware threads");
  EXPECT_EQ(find(diagnosis, "memory").text, "32.00 GiB, of which 16.00 GiB are free");
  for (const Finding& finding : diagnosis.findings) {
    if (finding.what != "limits") {  // of this process
      EXPECT_EQ(finding.health, Health::Ok) << finding.what;
    }
  }
}

TEST_F(Diagnose, SaysWhatTheProcessorLacks) {
  const Finding scalar = find(run({}, Isa::Scalar), "instructions");
  EXPECT_EQ(scalar.health, Health::Note);
  EXPECT_NE(scalar.advice.find("AVX2"), scalar.advice.npos);
  EXPECT_NE(find(run(), "instructions").text.find("no amx"), std::string::npos);
}

TEST_F(Diagnose, SaysHowToGetHugePages) {
  put("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  const Finding pages = find(run(), "huge pages");
  EXPECT_EQ(pages.health, Health::Note);
  EXPECT_NE(pages.advice.find("echo madvise"), pages.advice.npos);
}

TEST_F(Diagnose, LittleMemoryIsAProblem) {
  put("/proc/meminfo", "MemTotal: 33554432 kB\nMemAvailable: 500000 kB\n");
  EXPECT_EQ(find(run(), "memory").health, Health::Problem);
  EXPECT_FALSE(run().runs_on_cpu);
}

TEST_F(Diagnose, NodesWithoutMemoryAreNoted) {
  put("/sys/devices/system/node/online", "0-1\n");
  put_node(0, "0-7");
  put_node(1, "8-15");
  put("/sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 33554432 kB\n");
  put("/sys/devices/system/node/node1/meminfo", "Node 1 MemTotal: 0 kB\n");
  const Finding numa = find(run(), "NUMA");
  EXPECT_EQ(numa.health, Health::Note);
  EXPECT_EQ(numa.text.rfind("2 nodes: 0 with 8 threads and 32.00 GiB, 1 with 8 threads", 0), 0u)
      << numa.text;
}

TEST_F(Diagnose, AGpuNeedsGenerationKernelsAndDriver) {
  const GpuFacts good = {
      .driver_version = 13010, .gpus = {kOld, kNew}, .has_kernels = true, .oldest_driver = 13000};
  EXPECT_TRUE(run(good).runs_on_gpu);
  EXPECT_EQ(find(run(good), "GPU driver").text, "CUDA 13.1");
  EXPECT_EQ(find(run(good), "GPU").health, Health::Problem);  // the first, V100
  EXPECT_NE(find(run(good), "GPU").advice.find("7.5"), std::string::npos);

  GpuFacts facts = good;
  facts.gpus = {kOld};
  EXPECT_FALSE(run(facts).runs_on_gpu);
  facts = good;
  facts.has_kernels = false;
  EXPECT_FALSE(run(facts).runs_on_gpu);
  facts = good;
  facts.driver_version = 12080;
  EXPECT_FALSE(run(facts).runs_on_gpu);
  EXPECT_NE(find(run(facts), "GPU driver").advice.find("CUDA 13.0"), std::string::npos);
  EXPECT_TRUE(run(facts).runs_on_cpu);
}

}  // namespace
}  // namespace ktx::target
