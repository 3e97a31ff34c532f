#include "lib/target/device_id.h"

#include <gtest/gtest.h>

namespace ktx::target {
namespace {

TEST(DeviceId, NamesRoundTrip) {
  for (const char* name :
       {"cpu", "cuda:0", "cuda:63", "b/cpu", "node-2.lab/cuda:1", "xpu", "npu"}) {
    const auto device = parse_device_id(name);
    ASSERT_TRUE(device) << name;
    EXPECT_EQ(to_string(*device), name);
  }
  EXPECT_EQ(to_string(*parse_device_id("cuda")), "cuda:0");
  EXPECT_EQ(to_string(device_id("b/cuda:3").cpu_beside()), "b/cpu");
}

TEST(DeviceId, RefusesWhatIsNotOneDevice) {
  for (const char* name :
       {"", "b", "auto", "cuda:0-1", "cuda:*", "cuda:64", "b/npu", "/cpu", "a/b/cpu"}) {
    EXPECT_FALSE(parse_device_id(name)) << name;
  }
}

}  // namespace
}  // namespace ktx::target
