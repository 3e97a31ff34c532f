// Main memory as it is sold, and what programs see of it.
#include <gtest/gtest.h>

#include "lib/rules/target_yaml.h"
#include "tests/support/temp_dir.h"

namespace ktx::rules {
namespace {

double seen_gib(const std::string& memory, size_t& notes) {
  const testing::TempDir dir;
  DiagSink diags;
  const auto target = read_target(
      dir.write("t.yaml", "cpu: {isa: avx2, cores: 8, memory_gib: " + memory + "}\n"), diags);
  EXPECT_TRUE(target.ok());
  notes = diags.all().size();
  return static_cast<double>(target->cpu.memory_bytes) / (1 << 30);
}

TEST(InstalledMemory, IsMoreThanProgramsSee) {
  size_t notes = 0;
  // MemTotal of such machines.
  const std::pair<const char*, double> kMachines[] = {
      {"16", 15.5}, {"32GB", 31.2}, {"64", 62.7}, {"128 GiB", 125.7}, {"512", 503.7}};
  for (const auto& [installed, seen] : kMachines) {
    EXPECT_NEAR(seen_gib(installed, notes), seen, 0.06) << installed;
    EXPECT_EQ(notes, 1u) << installed;
  }
  for (const auto& [measured, seen] : {std::pair("64.0", 64.0), {"62.61", 62.61}, {"7", 7.0}}) {
    EXPECT_NEAR(seen_gib(measured, notes), seen, 1e-6) << measured;
    EXPECT_EQ(notes, 0u) << measured;
  }
}

}  // namespace
}  // namespace ktx::rules
