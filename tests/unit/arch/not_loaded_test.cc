#include "lib/families/not_loaded.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "lib/arch/build_graph.h"
#include "lib/families/family.h"
#include "lib/input/hf_config.h"
#include "lib/support/strings.h"

namespace ktx::families {
namespace {

std::string refusal_of(std::string_view name) {
  input::HfConfig config;
  config.set_file("model.gguf");
  config.set("model_type", std::string(name), input::ConfigOrigin::Gguf);
  const Status status = arch::accept_architecture(config);
  return status.ok() ? "" : status.error().message;
}

TEST(NotLoaded, EachSaysWhatItWouldNeed) {
  for (const NotLoaded& row : all_not_loaded()) {
    for (std::string_view name : split(row.names, ' ')) {
      EXPECT_EQ(refusal_of(name), "model.gguf: '" + std::string(name) +
                                      "' is not loaded: it would need " + std::string(row.needs) +
                                      " [KTX-C002]");
    }
  }
}

TEST(NotLoaded, NoneHasAFamilyOrTwoRows) {
  std::set<std::string_view> seen;
  for (const Family* family : all_families()) {
    seen.insert(family->gguf_arch);
    for (std::string_view type : split(family->model_types, ' ')) seen.insert(type);
  }
  for (const NotLoaded& row : all_not_loaded()) {
    for (std::string_view name : split(row.names, ' ')) {
      EXPECT_TRUE(seen.insert(name).second) << name;
    }
  }
}

TEST(NotLoaded, OthersAreUnknown) {
  EXPECT_EQ(needs_of(""), "");
  EXPECT_EQ(needs_of("jam"), "");
  EXPECT_THAT(refusal_of("jam"), ::testing::HasSubstr("unknown architecture 'jam'"));
}

}  // namespace
}  // namespace ktx::families
