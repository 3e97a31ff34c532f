// Each pass as text in, text out.
//
//   tests/golden/passes/insert-transfers/cpu.ktxir    # ktx-compile cpu.ktxir --passes=...
//   tests/golden/passes/insert-transfers/cpu.golden   exit status, the graph, the findings
//
// The folder is the last of the passes that the command in the first line names. After a change
// of a pass: KTX_UPDATE_GOLDEN=1 build-release/tests/test_golden, then read the diff.
#include <set>

#include "lib/passes/pass.h"
#include "tests/golden/golden_cases.h"
#include "tests/support/paths.h"

namespace ktx::golden {
namespace {

const fs::path kPasses = source_dir() + "/tests/golden/passes";

std::vector<fs::path> pass_cases() {
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(kPasses)) {
    if (entry.path().extension() == ".ktxir") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

class GoldenPasses : public testing::TestWithParam<fs::path> {};

TEST_P(GoldenPasses, MakeTheTextTheyMade) {
  const std::string text = read_file(GetParam());
  const std::string_view first = std::string_view(text).substr(0, text.find('\n'));
  constexpr std::string_view kStart = "# ktx-compile ";
  ASSERT_TRUE(first.starts_with(kStart)) << GetParam();
  const Ran ran = run(std::string(first.substr(kStart.size())), GetParam().parent_path());
  fs::path golden = GetParam();
  golden.replace_extension(".golden");
  expect_same(fmt::format("exit {}\n{}", ran.status, ran.output), golden);
  EXPECT_EQ(ran.output.find(source_dir()), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenPasses, testing::ValuesIn(pass_cases()), [](const auto& info) {
  std::string name =
      info.param.parent_path().filename().string() + "_" + info.param.stem().string();
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(GoldenPasses, EveryPassHasACase) {
  std::set<std::string> folders;
  for (const fs::path& path : pass_cases()) folders.insert(path.parent_path().filename().string());
  for (const passes::Pass& pass : passes::all_passes()) {
    EXPECT_EQ(folders.erase(std::string(pass.name)), 1u) << "no case for pass " << pass.name;
  }
  EXPECT_TRUE(folders.empty()) << "no pass is called " << *folders.begin();
}

}  // namespace
}  // namespace ktx::golden
