#include "lib/trust/strict_base64.h"

#include <gtest/gtest.h>

namespace ktx::trust {
namespace {

std::string decoded(std::string_view text) {
  const auto bytes = from_base64(text);
  return bytes ? std::string(bytes->begin(), bytes->end()) : "(none)";
}

TEST(StrictBase64, HasOneTextForOneValue) {
  for (const std::string text : {"", "f", "fo", "foo", "foob", "fooba", "foobar"}) {
    const auto* data = reinterpret_cast<const unsigned char*>(text.data());
    EXPECT_EQ(decoded(to_base64({data, text.size()})), text);
  }
  EXPECT_EQ(decoded("Zm9v"), "foo");
  for (const char* wrong :
       {"Zm8", "Zm9=", "Zm8 ", " Zm9v", "Zm9v\n", "Zm9v====", "Z===", "====", "Zm9-", "Zg=A",
        "Zm9vZg=="
        "Zm9v"}) {
    EXPECT_EQ(decoded(wrong), "(none)") << wrong;
  }
}

}  // namespace
}  // namespace ktx::trust
