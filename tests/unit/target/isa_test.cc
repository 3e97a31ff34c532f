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
  const std::vector<Isa> usable = usable_isas();
  ASSERT_FALSE(usable.empty());
  EXPECT_EQ(usable.front(), Isa::Scalar);
  EXPECT_EQ(usable.back(), detect_isa());
  for (const Isa isa : usable) {
    ASSERT_TRUE(usable_isa(name(isa)).ok());
    EXPECT_EQ(*usable_isa(name(isa)), isa);
  }
}

TEST(Isa, ASetThatTheMachineLacksIsAnError) {
  const std::string other = is_of_this_kind(ProcessorKind::X86) ? "dotprod" : "amx";
  ASSERT_FALSE(usable_isa(other).ok());
  EXPECT_NE(usable_isa(other).error().message.find("lacks '" + other + "'"), std::string::npos);
}

TEST(Isa, AnUnknownNameIsAnErrorWithAHint) {
  ASSERT_FALSE(usable_isa("avx3").ok());
  const std::string message = usable_isa("avx3").error().message;
  EXPECT_NE(message.find("unknown instruction set 'avx3'"), std::string::npos) << message;
  EXPECT_NE(message.find("scalar, avx2, avx512, amx, neon, dotprod"), std::string::npos) << message;
}

}  // namespace
}  // namespace ktx
