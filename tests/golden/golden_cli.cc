// ktx-compile --check as a whole: exit statuses, flags, fix-its, formats, the report page in a
// browser, and the cost of a check.
#include <iostream>

#include "lib/rules/checks.h"
#include "tests/golden/golden_cases.h"
#include "tests/support/paths.h"

namespace ktx::golden {
namespace {

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

// A machine of a config alone: which quantisation fits, side by side.
TEST(GoldenCli, ComparesQuantisations) {
  const Ran ran = run(
      "--hf-config ../../configs/Qwen2-57B-A14B-Instruct.json --quant Q2_K,q4_k_m,BF16 --target "
      "small-machine.yaml.in");
  EXPECT_EQ(ran.status, 0) << ran.output;
  expect_same(ran.output, kCases.parent_path() / "quants.golden");
  const Ran one = run("--hf-config ../../configs/Qwen3-8B.json --quant Q8_0 --estimate");
  EXPECT_NE(one.output.find("types of a usual Q8_0 file"), one.output.npos) << one.output;
  const Ran wrong = run("--hf-config ../../configs/Qwen3-8B.json --quant Q4_K_L");
  EXPECT_EQ(wrong.status, 2);
  EXPECT_NE(wrong.output.find("no types of 'Q4_K_L' are known; did you mean 'Q4_K_M'?"),
            wrong.output.npos)
      << wrong.output;
  const Ran gguf = run("../../models/llama/llama-q4_k_m.gguf --quant Q8_0");
  EXPECT_EQ(gguf.status, 2) << gguf.output;
}

// What the page was made for stands first: whether it fits, and how fast it is.
TEST(GoldenCli, AReportBeginsWithItsVerdict) {
  const fs::path page = fs::temp_directory_path() / fmt::format("ktx_verdict_{}.html", ::getpid());
  const std::string target = "--target small-machine.yaml.in --report " + page.string();
  const auto verdict = [&](const std::string& arguments) {
    const Ran ran = run("--check " + arguments + " " + target);
    const std::string html = read_file(page);
    EXPECT_LT(html.find("class=\"verdict"), html.find("<h2>Memory")) << ran.output;
    EXPECT_NE(html.find("<th class=l>predicted<th>tokens/s"), html.npos);
    fs::remove(page);
    const size_t at = html.find("<p class=\"verdict");
    return html.substr(at, html.find("</p>", at) - at);
  };
  const std::string fits = verdict("--hf-config ../../configs/Qwen3-8B.json");
  EXPECT_NE(fits.find("<b>It fits</b>: "), fits.npos) << fits;
  EXPECT_NE(fits.find(" tokens/s in decode"), fits.npos) << fits;
  const std::string not_so = verdict("M002.yaml --hf-config ../../configs/gemma-3-27b.json");
  EXPECT_NE(not_so.find("<b>It does not fit</b>: cpu "), not_so.npos) << not_so;
  const std::string disk = verdict("M002-move.yaml --hf-config ../../configs/Qwen3-30B-A3B.json");
  EXPECT_NE(disk.find(", 3.00 GiB of experts on disk"), disk.npos) << disk;
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

// Places and fix-its count from behind the mark; U+FEFF has three bytes in UTF-8.
TEST(GoldenCli, FixItsFitAFileWithAByteOrderMark) {
  const fs::path path = fs::temp_directory_path() / fmt::format("ktx_bom_{}.yaml", ::getpid());
  std::ofstream(path) << "\xEF\xBB\xBF- match: {kind: expertz}\n  replace: {devic: cpu}\n";
  const std::string check =
      fmt::format("--check --fix '{}' --hf-config ../../configs/Qwen3-30B-A3B.json", path.string());
  const Ran sarif = run(check + " --diagnostics-format=sarif");
  EXPECT_NE(sarif.output.find("\"startColumn\": 17,"), std::string::npos) << sarif.output;
  EXPECT_EQ(run(check).status, 0);
  EXPECT_EQ(read_file(path), "\xEF\xBB\xBF- match: {kind: experts}\n  replace: {device: cpu}\n");
  fs::remove(path);
}

// YAML may be UTF-16, but places and fix-its are those of UTF-8.
TEST(GoldenCli, AFileOfUtf16IsRefusedAndLeftAsItIs) {
  const fs::path path = fs::temp_directory_path() / fmt::format("ktx_utf16_{}.yaml", ::getpid());
  using std::string_view_literals::operator""sv;
  const std::string_view texts[] = {"\xFF\xFE-\0 \0a\0"sv, "\xFE\xFF\0-\0 \0a"sv, "-\0 \0a\0"sv,
                                    "\0-\0 \0a"sv, "\0\0\xFE\xFF\0\0\0-"sv};
  for (const std::string_view text : texts) {
    std::ofstream(path) << text;
    const Ran ran = run(fmt::format(
        "--check --fix '{}' --hf-config ../../configs/Qwen3-30B-A3B.json", path.string()));
    EXPECT_EQ(ran.status, 1);
    EXPECT_NE(ran.output.find(":1:1: error: the file is UTF-16 or UTF-32; save it as UTF-8 "
                              "[KTX-Y001]"),
              std::string::npos)
        << ran.output;
    EXPECT_EQ(read_file(path), text);
  }
  fs::remove(path);
}

// What is in the containers goes along after the fix, in rules of both forms; a rule that says
// `recursive` already is left to its author.
TEST(GoldenCli, ARuleOnContainersIsMendedByItsFixIt) {
  const std::string model = " --hf-config ../../configs/Llama-3.1-8B-Instruct.json ";
  const std::string rest = "- match: {name: \".\"}\n  replace: {device: cuda:0}\n";
  const fs::path path = fs::temp_directory_path() / fmt::format("ktx_fix_{}.yaml", ::getpid());
  for (const char* rule : {"- match: {kind: mlp}\n  replace: {device: cpu}\n",
                           "-   replace: {device: cpu}\n    match: {class: LlamaMLP}\n",
                           "- {match: {kind: mlp}, replace: {device: cpu}}\n"}) {
    std::ofstream(path) << rule << rest;
    const Ran found = run(fmt::format("--check --strict --fix '{}'{}", path.string(), model));
    EXPECT_EQ(found.status, 3) << found.output;
    EXPECT_NE(found.output.find("KTX-R018"), std::string::npos) << found.output;
    const Ran mended =
        run(fmt::format("--check --strict --explain model.layers.3.mlp.up_proj "
                        "'{}'{}",
                        path.string(), model));
    EXPECT_EQ(mended.status, 0) << read_file(path) << mended.output;
    EXPECT_NE(mended.output.find("device  cpu"), std::string::npos) << mended.output;
  }
  const std::string kept = "- match: {kind: mlp}\n  recursive: true\n  replace: {device: cpu}\n";
  std::ofstream(path) << kept << rest;
  EXPECT_EQ(run(fmt::format("--check --strict --fix '{}'{}", path.string(), model)).status, 3);
  EXPECT_EQ(read_file(path), kept + rest);
  fs::remove(path);
}

// The estimate counts what the steps transfer: glu alone on the CPU costs as many hand-overs
// as the whole feed-forward part there.
TEST(GoldenCli, TheEstimateCountsTransfersOfTheSteps) {
  const std::string model =
      " --target two-gpus.yaml.in --hf-config ../../configs/Llama-3.1-8B-Instruct.json";
  const std::string parts = run("--estimate R018.yaml" + model).output;
  EXPECT_NE(parts.find("hand-overs between devices: 65 a token, of 97 values"), parts.npos)
      << parts;
  const std::string whole = run("--estimate ../../../rules/all-gpu.yaml" + model).output;
  EXPECT_NE(whole.find("hand-overs between devices: 1 a token, of 1 value\n"), whole.npos)
      << whole;  // the logits
  const std::string none = run("--estimate ../../../rules/cpu-only.yaml" + model).output;
  EXPECT_EQ(none.find("hand-overs between devices"), none.npos) << none;
}

// Files that are in use have none of the findings about a rule's reach and hand-overs.
TEST(GoldenCli, RealRuleFilesReachWhatTheyMean) {
  const fs::path folder = shared_dir() + "/ktransformers-rules";
  if (!fs::exists(folder)) GTEST_SKIP() << "no " << folder;
  const std::pair<const char*, const char*> kConfigs[] = {{"DeepSeek-V2-Lite", "DeepSeek-V2-Lite"},
                                                          {"DeepSeek-V2-Chat", "DeepSeek-V2"},
                                                          {"DeepSeek-V3", "DeepSeek-V3"},
                                                          {"Moonlight", "Moonlight-16B-A3B"},
                                                          {"Mixtral", "Mixtral-8x7B-Instruct-v0.1"},
                                                          {"Qwen2", "Qwen2-57B-A14B-Instruct"},
                                                          {"Qwen3Moe", "Qwen3-30B-A3B"},
                                                          {"Internlm2_5", "Llama-3.1-8B-Instruct"}};
  int checked = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    for (const auto& [start, config] : kConfigs) {
      if (!entry.path().filename().string().starts_with(start)) continue;
      const Ran ran = run(fmt::format("--check '{}' --hf-config ../../configs/{}.json",
                                      entry.path().string(), config));
      const bool npu = entry.path().string().find("npu") != std::string::npos;
      EXPECT_EQ(ran.status, npu ? 1 : 0) << entry.path() << ran.output;
      for (const char* code : {"R018", "R019", "R020", "D007", "D008", "D009"}) {
        EXPECT_EQ(ran.output.find(code), std::string::npos) << entry.path() << ran.output;
      }
      ++checked;
      break;
    }
  }
  EXPECT_GT(checked, 15);
}

// Our own rule files fit every model.
TEST(GoldenCli, OurRuleFilesAreCleanForEveryConfig) {
  for (const fs::directory_entry& rules : fs::directory_iterator(source_dir() + "/rules")) {
    if (rules.path().extension() != ".yaml") continue;
    for (const fs::directory_entry& config :
         fs::directory_iterator(source_dir() + "/tests/configs")) {
      const Ran ran = run(fmt::format("--check --strict '{}' --hf-config '{}'",
                                      rules.path().string(), config.path().string()));
      EXPECT_EQ(ran.status, 0) << rules.path() << " " << config.path() << "\n" << ran.output;
    }
  }
}

// The benchmark of the check: 61 layers, 256 experts, 60 rules for 8 GPUs take less
// than 0.3 s and 200 MB. Time is that of the processor, so that a busy machine does not
// change it; sanitizers do, and are let off.
TEST(GoldenCli, TheLargestRealFileIsCheckedWithinItsLimits) {
  const std::string rules = shared_dir() + "/ktransformers-rules/DeepSeek-V3-Chat-multi-gpu-8.yaml";
  if (!fs::exists(rules)) GTEST_SKIP() << "no " << rules;
  const Cost cost = cost_of(
      fmt::format("exec '{}/ktx-compile' --check --coverage '{}' --hf-config '{}/tests/configs/"
                  "DeepSeek-V3.json' >/dev/null 2>&1",
                  binary_dir(), rules, source_dir()));
  EXPECT_EQ(cost.status, 0);
  std::cout << fmt::format("checked in {:.3f} s with {} MB\n", cost.seconds, cost.kib >> 10);
  RecordProperty("milliseconds", static_cast<int>(cost.seconds * 1000));
  RecordProperty("kib", static_cast<int>(cost.kib));
  EXPECT_LT(cost.seconds, sanitized() ? 10 : 0.3);
  if (!sanitized()) {
    EXPECT_LT(cost.kib, 200 << 10);
  }
}

TEST(GoldenCli, SarifIsValid) {
  const std::string schema = shared_dir() + "/schemas/sarif-schema-2.1.0.json";
  if (!fs::exists(schema)) GTEST_SKIP() << "no " << schema;
  const fs::path folder = fs::temp_directory_path() / fmt::format("ktx_sarif_{}", ::getpid());
  fs::create_directories(folder);
  std::vector<std::string> files;
  for (const fs::path& path : cases()) {
    files.push_back((folder / path.stem()).string() + ".sarif");
    (void)run(
        fmt::format("--check {} --hf-config ../../configs/DeepSeek-V2-Lite.json "
                    "--diagnostics-format=sarif >'{}'",
                    path.filename().string(), files.back()));
  }
  const auto refused = refused_by(schema, files);
  fs::remove_all(folder);
  if (!refused) GTEST_SKIP() << "no python3 with jsonschema and yaml";
  EXPECT_EQ(*refused, "");
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
  for (const char* part :
       {"cuda:1", "Memory", "Modules", "Rules", "Kernels", "router_gemv", "experts on the CPU"}) {
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
  // A script reports the width of the page in a window as narrow as a phone's (headless
  // Chromium goes down to 500 pixels): wider content scrolls within itself, and the
  // formula of the speed, which would be cut off at the edge, wraps.
  std::ofstream(page, std::ios::app)
      << "<script>const formula = document.querySelector('pre.text');"
         "document.title = 'width ' + document.documentElement.scrollWidth + (/hand-overs/.test("
         "formula.textContent) && formula.scrollWidth <= formula.clientWidth ? ' whole' : ' cut');"
         "</script>";
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
  EXPECT_NE(shown.find(" whole</title>"), std::string::npos) << shown.substr(width, 40);
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

}  // namespace
}  // namespace ktx::golden
