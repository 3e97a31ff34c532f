#include "lib/runtime/gpu/latent_form.h"

#include <gtest/gtest.h>

namespace ktx::runtime {
namespace {

TEST(LatentForm, TheVariableForcesEitherFormAndUnsetLeavesTheUsual) {
  EXPECT_EQ(expanded_from(std::nullopt, 64).take(), 64);
  EXPECT_EQ(expanded_from("absorbed", 64).take(), INT64_MAX);
  EXPECT_EQ(expanded_from("expanded", 64).take(), 2);
}

TEST(LatentForm, AnotherValueIsAnErrorThatNamesTheForms) {
  const auto wrong = expanded_from("expand", 64);
  ASSERT_FALSE(wrong);
  EXPECT_EQ(
      wrong.error().message,
      "KTX_CUDA_MLA: unknown form 'expand'; did you mean 'expanded'?; known are absorbed, expanded, or "
      "leave it unset for the faster");
  EXPECT_FALSE(expanded_from("foo", 64));
}

}  // namespace
}  // namespace ktx::runtime
