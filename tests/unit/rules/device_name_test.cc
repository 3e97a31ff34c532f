#include "lib/rules/device_name.h"

#include <gtest/gtest.h>

namespace ktx::rules {
namespace {

TEST(DeviceName, GrammarRoundTrips) {
  for (const char* text : {"cpu", "cuda:0", "cuda:7", "auto", "cuda:0,1,2", "cuda:*", "npu"}) {
    const auto device = parse_device(text);
    ASSERT_TRUE(device) << text;
    EXPECT_EQ(to_string(*device), text);
  }
  EXPECT_EQ(to_string(*parse_device("cuda")), "cuda:0");
  EXPECT_EQ(to_string(*parse_device("cuda:1-3")), "cuda:1,2,3");
  EXPECT_EQ(to_string(*parse_device("spread")), "cuda:*");
}

TEST(DeviceName, RefusesOthers) {
  for (const char* text : {"", "gpu", "CUDA", "cuda:", "cuda:x", "cuda:-1", "cuda:64", "cuda:0-",
                           "cuda:3-1", "cuda:0,0", "cuda:99999999999999999999", "cpu:0", "xpu:a"}) {
    EXPECT_FALSE(parse_device(text)) << text;
  }
}

TEST(DeviceName, KnowsWhatWasMeant) {
  EXPECT_EQ(nearest_device("gpu"), "cuda");
  EXPECT_EQ(nearest_device("gpu:1"), "cuda:1");
  EXPECT_EQ(nearest_device("GPU1"), "cuda:1");
  EXPECT_EQ(nearest_device("CUDA:0"), "cuda:0");
  EXPECT_EQ(nearest_device("cudaa"), "cuda");
  EXPECT_EQ(nearest_device("CPU"), "cpu");
  EXPECT_EQ(nearest_device("banana"), "");
}

}  // namespace
}  // namespace ktx::rules
