#include "lib/target/isa.h"

#include <gtest/gtest.h>

#include <string>

namespace ktx {
namespace {

TEST(Isa, NamesRoundTrip) {
  for (const IsaInfo& row : all_isas()) EXPECT_EQ(isa_from_name(row.name), row.isa);
  EXPECT_FALSE(isa_from_name("AVX2").has_value());
}

TEST(Isa, WeakerSetsAreUsable) {
  for (const IsaInfo& row : all_isas()) {
    if (row.isa > detect_isa()) continue;
    ASSERT_TRUE(usable_isa(row.name).ok());
    EXPECT_EQ(*usable_isa(row.name), row.isa);
  }
}

TEST(Isa, ASetThatTheMachineLacksIsAnError) {
  if (detect_isa() == Isa::Amx) GTEST_SKIP() << "this machine has every set";
  ASSERT_FALSE(usable_isa("amx").ok());
  EXPECT_NE(usable_isa("amx").error().message.find("lacks 'amx'"), std::string::npos);
}

TEST(Isa, AnUnknownNameIsAnErrorWithAHint) {
  ASSERT_FALSE(usable_isa("avx3").ok());
  const std::string message = usable_isa("avx3").error().message;
  EXPECT_NE(message.find("unknown instruction set 'avx3'"), std::string::npos) << message;
  EXPECT_NE(message.find("scalar, avx2, avx512, amx"), std::string::npos) << message;
}

}  // namespace
}  // namespace ktx
