// Runs the command in the first line of each case and compares what it says.
//
//   tests/golden/rules/R001.yaml      # ktx-compile --check R001.yaml --hf-config ...
//   tests/golden/rules/R001.golden    exit status, stdout and stderr
//
// A case is also the example of its code: docs/checks.md points here. After a change
// of texts: KTX_UPDATE_GOLDEN=1 build/test_golden, then read the diff.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "lib/rules/checks.h"
#include "lib/rules/rule_keys.h"
#include "lib/support/strings.h"

namespace ktx {
namespace {

namespace fs = std::filesystem;

const fs::path kCases = KTX_SOURCE_DIR "/tests/golden/rules";

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

bool updating() {
  return std::getenv("KTX_UPDATE_GOLDEN") != nullptr;
}

void expect_same(const std::string& actual, const fs::path& golden) {
  if (updating()) {
    std::ofstream(golden, std::ios::binary) << actual;
    return;
  }
  EXPECT_EQ(actual, read_file(golden)) << golden << " differs; KTX_UPDATE_GOLDEN=1 rewrites it";
}

struct Ran {
  int status = -1;
  std::string output;
};

// stdout, then stderr, each as the program wrote it.
Ran run(const std::string& arguments) {
  const fs::path err = fs::temp_directory_path() / fmt::format("ktx_golden_{}.err", ::getpid());
  const std::string command = fmt::format("cd '{}' && NO_COLOR=1 '{}/ktx-compile' {} 2>'{}'",
                                          kCases.string(), KTX_BINARY_DIR, arguments, err.string());
  Ran ran;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (!pipe) return ran;
  char buffer[4096];
  for (size_t n = 0; (n = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) {
    ran.output.append(buffer, n);
  }
  const int status = ::pclose(pipe);
  ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  ran.output += read_file(err);
  fs::remove(err);
  return ran;
}

std::vector<fs::path> cases() {
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(kCases)) {
    if (entry.path().extension() == ".yaml") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

class GoldenRules : public testing::TestWithParam<fs::path> {};

TEST_P(GoldenRules, SaysWhatItSaid) {
  const std::string text = read_file(GetParam());
  const std::string_view first = std::string_view(text).substr(0, text.find('\n'));
  constexpr std::string_view kStart = "# ktx-compile ";
  ASSERT_TRUE(first.starts_with(kStart)) << GetParam();
  const Ran ran = run(std::string(first.substr(kStart.size())));
  fs::path golden = GetParam();
  golden.replace_extension(".golden");
  expect_same(fmt::format("exit {}\n{}", ran.status, ran.output), golden);
  // The case shows the code that it is named after.
  const std::string name = GetParam().stem().string();
  if (!name.starts_with("ok-") && name != "R001-optional") {
    EXPECT_NE(ran.output.find("[KTX-" + name.substr(0, 4) + "]"), std::string::npos) << ran.output;
  }
  EXPECT_EQ(ran.output.find("/work/"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenRules, testing::ValuesIn(cases()), [](const auto& info) {
  std::string name = info.param.stem().string();
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(GoldenCli, R008) {
  const Ran ran = run("--check R001.yml --hf-config ../../configs/Qwen3-8B.json");
  EXPECT_EQ(ran.status, 1);
  EXPECT_NE(ran.output.find("KTX-R008"), std::string::npos) << ran.output;
  const Ran near = run("--check r001.yaml --hf-config ../../configs/Qwen3-8B.json");
  EXPECT_NE(near.output.find("did you mean 'R001.yaml'"), std::string::npos) << near.output;
}

TEST(GoldenCli, ExitStatusesAndWarningFlags) {
  const std::string model = " --hf-config ../../configs/Qwen2-57B-A14B-Instruct.json ";
  EXPECT_EQ(run("--check R001-layer-number.yaml" + model).status, 0);
  EXPECT_EQ(run("--check R001-layer-number.yaml --strict" + model).status, 3);
  EXPECT_EQ(run("--check R001-layer-number.yaml -Werror" + model).status, 1);
  EXPECT_EQ(run("--check R001-layer-number.yaml -Werror=KTX-R001" + model).status, 1);
  EXPECT_EQ(run("--check R001-layer-number.yaml -Wno-R001 --strict" + model).status, 0);
  EXPECT_EQ(run("--check R001-layer-number.yaml -Wno-R999" + model).status, 2);
  EXPECT_EQ(run("--check R001-layer-number.yaml -Wno-error=KTX-Y001" + model).status, 2);
  EXPECT_EQ(
      run("--check D003.yaml -Wno-error=D003 --hf-config ../../configs/Qwen3-30B-A3B.json").status,
      0);
  EXPECT_EQ(run("--check R001.yaml").status, 2);
}

TEST(GoldenCli, ExplainsEveryCode) {
  for (const rules::CheckInfo& check : rules::all_checks()) {
    const Ran ran = run(fmt::format("--explain-code KTX-{}", check.code));
    EXPECT_EQ(ran.status, 0);
    EXPECT_NE(ran.output.find(check.title), std::string::npos);
  }
  EXPECT_EQ(run("--explain-code KTX-X001").status, 2);
}

TEST(GoldenCli, FixItsAreApplied) {
  const fs::path path = fs::temp_directory_path() / fmt::format("ktx_fix_{}.yaml", ::getpid());
  std::ofstream(path) << "- match:\n    nme: \"^lm_head$\"\n  replace:\n    class: default\n"
                         "    kwargs:\n      genrate_device: \"gpu\"\n";
  const std::string check =
      fmt::format("--check --fix '{}' --hf-config ../../configs/Qwen3-8B.json", path.string());
  EXPECT_EQ(run(check).status, 1);  // key and kwarg
  EXPECT_EQ(run(check).status, 1);  // then the device
  EXPECT_EQ(run(check).status, 0);
  EXPECT_EQ(read_file(path),
            "- match:\n    name: \"^lm_head$\"\n  replace:\n    class: default\n"
            "    kwargs:\n      generate_device: \"cuda\"\n");
  fs::remove(path);
}

// Our own rule files fit every model.
TEST(GoldenCli, OurRuleFilesAreCleanForEveryConfig) {
  for (const fs::directory_entry& rules : fs::directory_iterator(KTX_SOURCE_DIR "/rules")) {
    if (rules.path().extension() != ".yaml") continue;
    for (const fs::directory_entry& config :
         fs::directory_iterator(KTX_SOURCE_DIR "/tests/configs")) {
      const Ran ran = run(fmt::format("--check --strict '{}' --hf-config '{}'",
                                      rules.path().string(), config.path().string()));
      EXPECT_EQ(ran.status, 0) << rules.path() << " " << config.path() << "\n" << ran.output;
    }
  }
}

// The processor's seconds and the memory that a command takes, of it and its children.
struct Cost {
  int status = -1;
  double seconds = 0;
  int64_t kib = 0;
};

Cost cost_of(const std::string& command) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  int status = 0;
  struct rusage usage = {};
  ::wait4(child, &status, 0, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          seconds(usage.ru_utime) + seconds(usage.ru_stime), usage.ru_maxrss};
}

// The benchmark of the check: 61 layers, 256 experts, 60 rules for 8 GPUs take less
// than 0.3 s and 200 MB. Time is that of the processor, so that a busy machine does not
// change it; sanitizers do, and are let off.
TEST(GoldenCli, TheLargestRealFileIsCheckedWithinItsLimits) {
  const std::string rules = KTX_SHARED_DIR "/ktransformers-rules/DeepSeek-V3-Chat-multi-gpu-8.yaml";
  if (!fs::exists(rules)) GTEST_SKIP() << "no " << rules;
  const Cost cost = cost_of(
      fmt::format("exec '{}/ktx-compile' --check --coverage '{}' --hf-config '{}/tests/configs/"
                  "DeepSeek-V3.json' >/dev/null 2>&1",
                  KTX_BINARY_DIR, rules, KTX_SOURCE_DIR));
  EXPECT_EQ(cost.status, 0);
  std::cout << fmt::format("checked in {:.3f} s with {} MB\n", cost.seconds, cost.kib >> 10);
  RecordProperty("milliseconds", static_cast<int>(cost.seconds * 1000));
  RecordProperty("kib", static_cast<int>(cost.kib));
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  EXPECT_LT(cost.seconds, 10);
#else
  EXPECT_LT(cost.seconds, 0.3);
  EXPECT_LT(cost.kib, 200 << 10);
#endif
}

TEST(GoldenCli, SarifIsValid) {
  const std::string schema = KTX_SHARED_DIR "/schemas/sarif-schema-2.1.0.json";
  if (!fs::exists(schema)) GTEST_SKIP() << "no " << schema;
  if (std::system("python3 -c 'import jsonschema' 2>/dev/null") != 0) {
    GTEST_SKIP() << "no python3 with jsonschema";
  }
  const fs::path sarif = fs::temp_directory_path() / fmt::format("ktx_{}.sarif", ::getpid());
  for (const char* name : {"R002-rule", "D004-gpu", "ok-spread", "Y001-tab"}) {
    const Ran ran =
        run(fmt::format("--check {}.yaml --hf-config ../../configs/DeepSeek-V2-Lite.json "
                        "--diagnostics-format=sarif >'{}'",
                        name, sarif.string()));
    const std::string validate = fmt::format(
        "python3 -c \"import json,jsonschema; jsonschema.validate(json.load(open('{}')), "
        "json.load(open('{}')))\"",
        sarif.string(), schema);
    EXPECT_EQ(std::system(validate.c_str()), 0) << name;
  }
  fs::remove(sarif);
}

TEST(GoldenCli, ReportOpensInABrowser) {
  const fs::path page = fs::temp_directory_path() / fmt::format("ktx_{}.html", ::getpid());
  const Ran ran =
      run(fmt::format("--check ok-spread.yaml --target two-gpus.yaml.in --report '{}' "
                      "--hf-config ../../configs/Qwen3-30B-A3B.json",
                      page.string()));
  EXPECT_EQ(ran.status, 0) << ran.output;
  const std::string html = read_file(page);
  EXPECT_TRUE(html.starts_with("<!doctype html>"));
  EXPECT_EQ(html.find("http"), std::string::npos) << "the page must need no network";
  for (const char* part : {"cuda:1", "Memory", "Modules", "Rules", "experts on the CPU"}) {
    EXPECT_NE(html.find(part), std::string::npos) << part;
  }
  std::string browser;
  for (const char* name : {"chromium", "chromium-browser", "google-chrome"}) {
    if (browser.empty() &&
        std::system(fmt::format("command -v {} >/dev/null", name).c_str()) == 0) {
      browser = name;
    }
  }
  if (browser.empty()) {
    fs::remove(page);
    GTEST_SKIP() << "no chromium: the page was written but not opened";
  }
  // A script tells how wide the page is in a window as narrow as a phone's (headless
  // Chromium goes down to 500 pixels): what is wider scrolls inside of itself.
  std::ofstream(page, std::ios::app) << "<script>document.title = 'width ' + "
                                        "document.documentElement.scrollWidth;</script>";
  const fs::path dom = page.string() + ".dom";
  const std::string command = fmt::format(
      "{} --headless --no-sandbox --disable-gpu --window-size=500,844 --dump-dom 'file://{}' "
      ">'{}' 2>/dev/null",
      browser, page.string(), dom.string());
  EXPECT_EQ(std::system(command.c_str()), 0);
  const std::string shown = read_file(dom);
  fs::remove(dom);
  EXPECT_NE(shown.find("cuda:1"), std::string::npos);
  const size_t width = shown.find("<title>width ");
  ASSERT_NE(width, std::string::npos) << shown.substr(0, 500);
  EXPECT_LE(std::atoi(shown.c_str() + width + 13), 500);
  fs::remove(page);
}

// What newcomers write; each case answers with what to change.
TEST(GoldenCli, TenNewcomersMistakesAreAnsweredWithWhatToChange) {
  const std::pair<const char*, const char*> kMistakes[] = {
      {"wrong indentation", "Y001-indentation"},
      {"a tab", "Y001-tab"},
      {"a misspelt key", "Y002-key"},
      {"a misspelt kwarg", "O004-kwarg"},
      {"gpu as a device", "D004-gpu"},
      {"a pattern without anchors that catches too much", "R014"},
      {"a rule after a catch-all", "R003-shadowed"},
      {"a range beyond the last layer", "R013"},
      {"a lossy layout that is not allowed", "Q004"},
      {"two files in conflict", "R015"}};
  for (const auto& [mistake, name] : kMistakes) {
    const std::string said = read_file(kCases / (std::string(name) + ".golden"));
    EXPECT_TRUE(said.find("help: ") != said.npos || said.find("did you mean") != said.npos)
        << mistake << "\n"
        << said;
    EXPECT_NE(said.find(std::string(name) + ".yaml:"), said.npos) << mistake << ": no place";
  }
}

// The hook of docs/examples checks each file by itself and fails when one is wrong.
TEST(GoldenDocs, ThePreCommitHookWorks) {
  const std::string text = read_file(KTX_SOURCE_DIR "/docs/examples/pre-commit-hooks.yaml");
  const size_t begin = text.find("entry: ") + 7;
  const std::string entry = text.substr(begin, text.find('\n', begin) - begin);
  const auto hook = [&](const std::string& files) {
    return cost_of(fmt::format("cd '{}' && PATH='{}':$PATH {} {} >/dev/null 2>&1",
                               KTX_SOURCE_DIR "/tests/models/qwen3moe", KTX_BINARY_DIR, entry,
                               files))
        .status;
  };
  const std::string good = KTX_SOURCE_DIR "/rules/cpu-only.yaml";
  const std::string other = KTX_SOURCE_DIR "/rules/all-gpu.yaml";
  EXPECT_EQ(hook(good + " " + other), 0);
  EXPECT_EQ(hook(good + " " + (kCases / "D004-gpu.yaml").string()), 1);
}

TEST(GoldenDocs, ChecksAndSchemaAreCurrent) {
  expect_same(rules::checks_markdown(), KTX_SOURCE_DIR "/docs/checks.md");
  expect_same(rules::rules_json_schema(), KTX_SOURCE_DIR "/docs/rules.schema.json");
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
        read_file(fs::path(KTX_SOURCE_DIR) / std::string(check.test.substr(0, colon)));
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
    for (const auto& entry :
         fs::recursive_directory_iterator(KTX_SOURCE_DIR + std::string(folder))) {
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
  for (const fs::directory_entry& target : fs::directory_iterator(KTX_SOURCE_DIR "/targets")) {
    const Ran ran =
        run(fmt::format("--estimate --strict --target '{}' --hf-config ../../configs/Qwen3-8B.json",
                        target.path().string()));
    EXPECT_EQ(ran.status, 0) << target.path() << "\n" << ran.output;
    EXPECT_NE(ran.output.find("tokens/s"), std::string::npos) << ran.output;
  }
}

}  // namespace
}  // namespace ktx
