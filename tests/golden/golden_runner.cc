// Runs the command in the first line of each case and compares its output.
//
//   tests/golden/rules/R001.yaml      # ktx-compile --check R001.yaml --hf-config ...
//   tests/golden/rules/R001.golden    exit status, stdout and stderr
//
// A case is also the example of its code: docs/checks.md points here. After a change
// of texts: KTX_UPDATE_GOLDEN=1 build-release/tests/test_golden, then read the diff.
#include "tests/golden/golden_cases.h"
#include "tests/support/paths.h"

namespace ktx::golden {
namespace {

class GoldenRules : public testing::TestWithParam<fs::path> {};

// Goldens do not list the families that a message names: build_graph_test.cc holds it to the table.
std::string without_families(std::string text) {
  const size_t begin = text.find("; known are "), end = text.find(" [KTX-C002]");
  if (begin < end && end != std::string::npos) text.replace(begin, end - begin, "; known are ...");
  return text;
}

TEST_P(GoldenRules, SaysWhatItSaid) {
  const std::string text = read_file(GetParam());
  const std::string_view first = std::string_view(text).substr(0, text.find('\n'));
  constexpr std::string_view kStart = "# ktx-compile ";
  ASSERT_TRUE(first.starts_with(kStart)) << GetParam();
  const Ran ran = run(std::string(first.substr(kStart.size())));
  fs::path golden = GetParam();
  golden.replace_extension(".golden");
  expect_same(fmt::format("exit {}\n{}", ran.status, without_families(ran.output)), golden);
  // The case shows the code that it is named after.
  const std::string name = GetParam().stem().string();
  if (!name.starts_with("ok-") && name != "R001-optional") {
    EXPECT_NE(ran.output.find("[KTX-" + name.substr(0, 4) + "]"), std::string::npos) << ran.output;
  }
  EXPECT_EQ(ran.output.find(source_dir()), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenRules, testing::ValuesIn(cases()), [](const auto& info) {
  std::string name = info.param.stem().string();
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace ktx::golden
