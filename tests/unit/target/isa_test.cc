#include "lib/target/isa.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace ktx {
namespace {

// Sets KTX_FORCE_ISA for one scope.
class Forced {
 public:
  explicit Forced(const char* value) {
    if (const char* old = std::getenv("KTX_FORCE_ISA")) old_ = old;
    setenv("KTX_FORCE_ISA", value, 1);
  }
  ~Forced() { old_.empty() ? unsetenv("KTX_FORCE_ISA") : setenv("KTX_FORCE_ISA", old_.c_str(), 1); }

 private:
  std::string old_;
};

TEST(Isa, NamesRoundTrip) {
  for (const IsaInfo& row : all_isas()) EXPECT_EQ(isa_from_name(row.name), row.isa);
  EXPECT_FALSE(isa_from_name("AVX2").has_value());
}

TEST(Isa, ForcingAWeakerSetIsObeyed) {
  for (const IsaInfo& row : all_isas()) {
    if (row.isa > detect_isa()) continue;
    Forced forced(std::string(row.name).c_str());
    ASSERT_TRUE(choose_isa().ok());
    EXPECT_EQ(*choose_isa(), row.isa);
  }
}

TEST(Isa, ForcingASetThatTheMachineLacksIsAnError) {
  if (detect_isa() == Isa::Amx) GTEST_SKIP() << "this machine has every set";
  Forced forced("amx");
  ASSERT_FALSE(choose_isa().ok());
  EXPECT_NE(choose_isa().error().message.find("lacks 'amx'"), std::string::npos);
}

TEST(Isa, AnUnknownNameIsAnErrorWithAHint) {
  Forced forced("avx3");
  ASSERT_FALSE(choose_isa().ok());
  const std::string message = choose_isa().error().message;
  EXPECT_NE(message.find("unknown instruction set 'avx3'"), std::string::npos) << message;
  EXPECT_NE(message.find("scalar, avx2, avx512, amx"), std::string::npos) << message;
}

}  // namespace
}  // namespace ktx
