// Documents generated from tables are current, the names in them exist, and their examples
// work.
#include "lib/rules/checks.h"
#include "lib/rules/rule_keys.h"
#include "tests/golden/golden_cases.h"
#include "tests/support/paths.h"

namespace ktx::golden {
namespace {

// The hook of docs/examples checks each file by itself and fails when one is wrong.
TEST(GoldenDocs, ThePreCommitHookWorks) {
  const std::string text = read_file(source_dir() + "/docs/examples/pre-commit-hooks.yaml");
  const size_t begin = text.find("entry: ") + 7;
  const std::string entry = text.substr(begin, text.find('\n', begin) - begin);
  const auto hook = [&](const std::string& files) {
    return cost_of(fmt::format("cd '{}' && PATH='{}':$PATH {} {} >/dev/null 2>&1",
                               source_dir() + "/tests/models/qwen3moe", binary_dir(), entry, files))
        .status;
  };
  const std::string good = source_dir() + "/rules/cpu-only.yaml";
  const std::string other = source_dir() + "/rules/all-gpu.yaml";
  EXPECT_EQ(hook(good + " " + other), 0);
  EXPECT_EQ(hook(good + " " + (kCases / "D004-gpu.yaml").string()), 1);
}

TEST(GoldenDocs, ChecksAndSchemaAreCurrent) {
  expect_same(rules::checks_markdown(), source_dir() + "/docs/checks.md");
  expect_same(rules::rules_json_schema(), source_dir() + "/docs/rules.schema.json");
}

std::string example_after(const std::string& page, const std::string& heading) {
  const std::string fence = "```yaml\n";
  const size_t begin = page.find(fence, page.find(heading)) + fence.size();
  return page.substr(begin, page.find("```", begin) - begin);
}

// The page's examples are files that can be used.
TEST(GoldenDocs, TheExamplesOfTheRulesPageAreClean) {
  const std::string page = read_file(source_dir() + "/docs/rules.md");
  const fs::path file = fs::temp_directory_path() / fmt::format("ktx_doc_{}.yaml", ::getpid());
  for (const auto& [heading, config] :
       {std::pair("# Rule files", "Qwen3-30B-A3B"),
        std::pair("## Rules on containers", "Llama-3.1-8B-Instruct")}) {
    std::ofstream(file) << example_after(page, heading);
    const Ran ran = run(fmt::format("--check --strict '{}' --hf-config ../../configs/{}.json",
                                    file.string(), config));
    EXPECT_EQ(ran.status, 0) << heading << ran.output;
  }
  fs::remove(file);
}

// An editor that uses the schema accepts our files and the real ones, and marks mistakes.
TEST(GoldenDocs, TheSchemaAcceptsGoodFilesAndRefusesMistakes) {
  const std::string schema = source_dir() + "/docs/rules.schema.json";
  std::vector<std::string> good;
  for (const std::string& folder :
       {source_dir() + "/rules", shared_dir() + "/ktransformers-rules"}) {
    if (!fs::exists(folder)) continue;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".yaml") good.push_back(entry.path().string());
    }
  }
  std::vector<std::string> bad;
  std::string all_bad;
  for (const char* name : {"Y002-key", "O004-kwarg", "O004-op", "D004-gpu", "Y003-kind"}) {
    bad.push_back((kCases / (std::string(name) + ".yaml")).string());
    all_bad += bad.back() + "\n";
  }
  const auto refused = refused_by(schema, good);
  if (!refused) GTEST_SKIP() << "no python3 with jsonschema and yaml";
  EXPECT_EQ(*refused, "");
  EXPECT_EQ(refused_by(schema, bad), all_bad);
}

// Each code has golden cases, or names a test that exists: "file: Suite.Name".
TEST(GoldenDocs, EveryCodeHasATest) {
  const auto all = cases();
  for (const rules::CheckInfo& check : rules::all_checks()) {
    SCOPED_TRACE(check.code);
    if (check.test.empty()) {
      const bool found = std::any_of(all.begin(), all.end(), [&](const fs::path& path) {
        return path.stem().string().starts_with(std::string(check.code));
      });
      EXPECT_TRUE(found) << "no tests/golden/rules/" << check.code << "*.yaml";
      continue;
    }
    const size_t colon = check.test.find(": ");
    const size_t dot = check.test.rfind('.');
    ASSERT_TRUE(colon != check.test.npos && dot != check.test.npos && dot > colon);
    const std::string text =
        read_file(fs::path(source_dir()) / std::string(check.test.substr(0, colon)));
    const std::string named = fmt::format("({}, {})", check.test.substr(colon + 2, dot - colon - 2),
                                          check.test.substr(dot + 1));
    EXPECT_NE(text.find("TEST" + named), text.find("TEST_F" + named)) << "no test " << check.test;
    EXPECT_NE(text.find(check.code), text.npos);
  }
}

// A code that nothing reports is no check; a golden case without a code checks none.
TEST(GoldenDocs, EveryCodeIsReportedSomewhereAndEveryCaseHasACode) {
  std::string sources;
  for (const char* folder : {"/lib", "/tools"}) {
    for (const auto& entry : fs::recursive_directory_iterator(source_dir() + std::string(folder))) {
      const fs::path kind = entry.path().extension();
      if (kind == ".cc" || kind == ".h") sources += read_file(entry.path());
    }
  }
  for (const rules::CheckInfo& check : rules::all_checks()) {
    const bool reported = sources.find(fmt::format("\"{}\"", check.code)) != sources.npos ||
                          sources.find(fmt::format("[KTX-{}]", check.code)) != sources.npos;
    EXPECT_TRUE(reported) << check.code;
    EXPECT_FALSE(check.explanation.empty() || check.mistake.empty() || check.mend.empty())
        << check.code;
  }
  for (const fs::path& path : cases()) {
    const std::string name = path.stem().string();
    EXPECT_TRUE(name.starts_with("ok-") || rules::find_check(name.substr(0, 4))) << path;
  }
}

TEST(GoldenDocs, TheTargetsThatAreShippedAreRead) {
  for (const fs::directory_entry& target : fs::directory_iterator(source_dir() + "/targets")) {
    const Ran ran =
        run(fmt::format("--estimate --strict --target '{}' --hf-config ../../configs/Qwen3-8B.json",
                        target.path().string()));
    EXPECT_EQ(ran.status, 0) << target.path() << "\n" << ran.output;
    EXPECT_NE(ran.output.find("tokens/s"), std::string::npos) << ran.output;
  }
}

}  // namespace
}  // namespace ktx::golden
