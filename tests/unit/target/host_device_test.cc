#include "lib/target/host_device.h"

#include <gtest/gtest.h>

namespace ktx::target {
namespace {

TEST(HostDevice, NamesAreTakenApartAndPutTogether) {
  for (const char* name : {"cpu", "cuda:1", "b/cpu", "node-2.lab/cuda:0"}) {
    EXPECT_EQ(device_on(host_of(name), name_on_host(name)), name);
  }
  EXPECT_EQ(host_of("b/cuda:1"), "b");
  EXPECT_EQ(host_of("cuda:1"), "");
  EXPECT_TRUE(is_cpu("cpu") && is_cpu("b/cpu"));
  EXPECT_FALSE(is_cpu("b/cuda:0") || is_cpu("b"));
  EXPECT_EQ(cpu_beside("b/cuda:3"), "b/cpu");
  EXPECT_EQ(cpu_beside("cuda:3"), "cpu");
  EXPECT_TRUE(on_same_host("b/cpu", "b/cuda:0"));
  EXPECT_FALSE(on_same_host("b/cpu", "cpu"));
}

TEST(HostDevice, HostNamesAreThoseOfMachines) {
  EXPECT_TRUE(is_host_name("node-2.lab_a"));
  for (const char* name : {"", "a/b", "a b", "a:b", "é"}) EXPECT_FALSE(is_host_name(name)) << name;
  EXPECT_FALSE(is_host_name(std::string(64, 'a')));
}

}  // namespace
}  // namespace ktx::target
