#include "lib/support/sha256.h"

#include <gtest/gtest.h>

namespace ktx {
namespace {

TEST(Sha256, IsThatOfTheStandard) {
  EXPECT_EQ(to_hex(*sha256({})),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  const std::string abc = "abc";
  EXPECT_EQ(to_hex(*sha256(std::as_bytes(std::span(abc)))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace ktx
