// GitHub's code scanning requires more of a SARIF file than its schema (its documentation,
// "SARIF support for code scanning"), and rejects the whole file if one result breaks a rule.
// Checks these rules over many runs of the program.
#include <cctype>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/golden/golden_cases.h"
#include "tests/support/paths.h"

namespace ktx::golden {
namespace {

using Json = nlohmann::json;

const std::string kModel = " --hf-config ../../configs/Qwen3-30B-A3B.json ";

bool is_relative_uri(const std::string& uri) {
  if (uri.empty() || uri.front() == '/' || uri.find("..") != uri.npos) return false;
  return std::all_of(uri.begin(), uri.end(), [](unsigned char c) {
    return std::isalnum(c) ||
           std::string_view("-._~/%").find(static_cast<char>(c)) != std::string_view::npos;
  });
}

std::string wrong_with_location(const Json& location) {
  const Json& physical = location.value("physicalLocation", Json::object());
  const std::string uri = physical.value("artifactLocation", Json::object()).value("uri", "");
  if (!is_relative_uri(uri) && !uri.starts_with("file:///")) return "uri '" + uri + "'";
  if (uri.find('\\') != uri.npos) return "a backslash in the uri";
  const Json& region = physical.value("region", Json::object());
  for (const char* key : {"startLine", "startColumn", "endLine", "endColumn"}) {
    if (region.value(key, 0) < 1) return std::string("no ") + key;
  }
  if (region["endLine"] < region["startLine"]) return "endLine before startLine";
  if (region["endLine"] == region["startLine"] && region["endColumn"] < region["startColumn"]) {
    return "endColumn before startColumn";
  }
  return "";
}

std::string wrong_with_result(const Json& result, const Json& rules) {
  if (result.value("message", Json::object()).value("text", "").empty()) return "no message";
  const std::string id = result.value("ruleId", "");
  const size_t index = result.value("ruleIndex", size_t{1} << 20);
  if (index >= rules.size() || rules[index]["id"] != id) return "no rule '" + id + "'";
  if (!std::set<std::string>{"note", "warning", "error"}.contains(result.value("level", ""))) {
    return "level";
  }
  if (result.value("partialFingerprints", Json::object())
          .value("primaryLocationLineHash", "")
          .empty()) {
    return "no fingerprint";
  }
  const Json& locations = result.value("locations", Json::array());
  if (locations.empty() || locations.size() > 10) return "expected at least one location";
  for (const Json& location : locations) {
    if (const std::string wrong = wrong_with_location(location); !wrong.empty()) return wrong;
  }
  for (const Json& location : result.value("relatedLocations", Json::array())) {
    if (const std::string wrong = wrong_with_location(location); !wrong.empty()) return wrong;
  }
  return "";
}

// Why code scanning would refuse the file, or "".
std::string refused_by_code_scanning(const std::string& text) {
  const Json sarif = Json::parse(text, nullptr, false);
  if (sarif.is_discarded()) return "no JSON: " + text.substr(0, 200);
  if (sarif.value("version", "") != "2.1.0" || sarif.value("$schema", "").empty()) return "version";
  if (sarif.value("runs", Json::array()).size() != 1) return "runs";
  if (text.size() > (10u << 20)) return "too large";
  const Json& run = sarif["runs"][0];
  const Json& driver = run["tool"]["driver"];
  std::set<std::string> ids;
  for (const Json& rule : driver["rules"]) {
    if (!ids.insert(rule["id"]).second) return "two rules " + rule["id"].get<std::string>();
    for (const char* key : {"shortDescription", "fullDescription", "help"}) {
      const std::string words = rule[key]["text"];
      const bool fits = std::string(key) == "help" || words.size() <= 1024;
      if (words.empty() || !fits) return rule["id"].get<std::string>() + " " + key;
    }
  }
  if (driver.value("name", "").empty() || !run.contains("results")) return "driver";
  if (run["results"].size() > 25000) return "too many results";
  for (const Json& result : run["results"]) {
    const std::string wrong = wrong_with_result(result, driver["rules"]);
    if (!wrong.empty()) return wrong + " in " + result.dump();
  }
  const Json& invocation = run["invocations"][0];
  for (const char* key : {"toolConfigurationNotifications", "toolExecutionNotifications"}) {
    for (const Json& notification : invocation.value(key, Json::array())) {
      if (notification["message"].value("text", "").empty()) return "an empty notification";
      const bool error = notification.value("level", "") == "error";
      if (error && invocation["executionSuccessful"]) return "a failed run that says it did not";
    }
  }
  return "";
}

// stdout alone, as a workflow redirects it.
Ran sarif_of(const std::string& arguments,
             const std::string& environment = "env -u GITHUB_WORKSPACE") {
  Ran ran;
  const std::string command =
      fmt::format("cd '{}' && {} '{}/ktx-compile' {} --diagnostics-format=sarif 2>/dev/null",
                  kCases.string(), environment, binary_dir(), arguments);
  FILE* pipe = ::popen(command.c_str(), "r");
  if (!pipe) return ran;
  char buffer[4096];
  for (size_t n = 0; (n = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) {
    ran.output.append(buffer, n);
  }
  const int status = ::pclose(pipe);
  ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ran;
}

Json run_of(const std::string& arguments,
            const std::string& environment = "env -u GITHUB_WORKSPACE") {
  const Ran ran = sarif_of(arguments, environment);
  EXPECT_EQ(refused_by_code_scanning(ran.output), "") << arguments;
  const Json sarif = Json::parse(ran.output, nullptr, false);
  if (sarif.is_discarded()) return {{"results", Json::array()}, {"invocations", {Json::object()}}};
  EXPECT_EQ(sarif["runs"][0]["invocations"][0]["exitCode"], ran.status) << arguments;
  return sarif["runs"][0];
}

std::string first_uri(const Json& run) {
  if (run["results"].empty()) return "no result";
  return run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"];
}

Json first_region(const Json& run) {
  if (run["results"].empty()) return {};
  return run["results"][0]["locations"][0]["physicalLocation"]["region"];
}

// A folder for a test's own files, removed with it.
struct Folder {
  fs::path path = fs::temp_directory_path() / fmt::format("ktx_sarif_{}", ::getpid());
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path / name, std::ios::binary) << text;
    return (path / name).string();
  }
};

class GoldenSarif : public testing::TestWithParam<fs::path> {};

// The command of the case, and the case against a model that it was not written for.
TEST_P(GoldenSarif, IsTakenByCodeScanning) {
  const std::string text = read_file(GetParam());
  const std::string first = text.substr(14, text.find('\n') - 14);
  const Ran plain = run(first);
  EXPECT_EQ(run_of(first)["invocations"][0]["exitCode"], plain.status);
  (void)run_of(fmt::format("--check {} --hf-config ../../configs/DeepSeek-V2-Lite.json",
                           GetParam().filename().string()));
}

INSTANTIATE_TEST_SUITE_P(All, GoldenSarif, testing::ValuesIn(cases()), [](const auto& info) {
  std::string name = info.param.stem().string();
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// What keeps a run from its end is said by a notification, and the run is not successful.
TEST(GoldenSarifErrors, AreNotificationsOfARunThatFailed) {
  const Folder folder;
  const std::string no_gguf = folder.write("cut.gguf", "GGUF\x03");
  const std::string no_config = folder.write("config.json", "{\"architectures\": 3");
  for (const std::string& arguments : {
           std::string("--check missing.yaml") + kModel,
           std::string("--check r001.yaml ok-spread.yaml") + kModel,
           std::string("--check ok-spread.yaml --hf-config missing.json"),
           "--check ok-spread.yaml --hf-config " + no_config,
           std::string("--check ok-spread.yaml missing.gguf"),
           "--check " + no_gguf,
           std::string("--check ok-spread.yaml --target=no-such-machine") + kModel,
       }) {
    const Json run = run_of(arguments);
    EXPECT_FALSE(run["invocations"][0].value("executionSuccessful", true)) << arguments;
    EXPECT_EQ(run["invocations"][0].value("exitCode", 0), 1) << arguments;
  }
  const Json missing = run_of("--check missing.yaml" + kModel);
  EXPECT_TRUE(missing["results"].empty());
  EXPECT_EQ(missing["invocations"][0]["toolConfigurationNotifications"][0]["associatedRule"]["id"],
            "KTX-R008");
}

// Also where the command line is wrong: what a workflow uploads is never empty.
TEST(GoldenSarifErrors, WrongUsageIsANotification) {
  for (const char* arguments : {"--check ok-spread.yaml", "--check --no-such-option", "--ctx=-1",
                                "--check ../rules --hf-config ../../configs/Qwen3-8B.json"}) {
    const Json run = run_of(arguments);
    EXPECT_EQ(run["invocations"][0].value("exitCode", 0), 2) << arguments;
    EXPECT_FALSE(run["invocations"][0].value("executionSuccessful", true)) << arguments;
    EXPECT_FALSE(run["invocations"][0]["toolExecutionNotifications"].empty()) << arguments;
  }
}

TEST(GoldenSarifErrors, NotesWithoutAPlaceAreNotifications) {
  const Json run = run_of("--check ok-spread.yaml" + kModel);
  EXPECT_TRUE(run["results"].empty()) << run["results"];
  EXPECT_TRUE(run["invocations"][0]["executionSuccessful"]);
  std::string said;
  for (const Json& note : run["invocations"][0]["toolConfigurationNotifications"]) {
    EXPECT_EQ(note["level"], "note");
    said += note["message"]["text"].get<std::string>() + "\n";
  }
  EXPECT_NE(said.find("no GGUF given"), said.npos) << said;
  EXPECT_NE(said.find("no --target given"), said.npos) << said;
}

// A finding about the call as a whole is shown at the rule file, not dropped.
TEST(GoldenSarifErrors, AWarningWithoutAPlaceIsShownAtTheRuleFile) {
  const Json run = run_of("--check ok-spread.yaml --ctx 1000000" + kModel);
  ASSERT_EQ(run["results"].size(), 1u);
  EXPECT_EQ(run["results"][0]["ruleId"], "KTX-S001");
  EXPECT_EQ(first_uri(run), "ok-spread.yaml");
}

TEST(GoldenSarifPlaces, AreRelativeToTheCheckout) {
  const std::string absolute = (kCases / "R001-kind.yaml").string();
  EXPECT_EQ(first_uri(run_of("--check " + absolute + kModel)), "R001-kind.yaml");
  EXPECT_EQ(first_uri(run_of("--check ./../rules/R001-kind.yaml" + kModel)), "R001-kind.yaml");
  const std::string root = fmt::format("env GITHUB_WORKSPACE='{}'", source_dir());
  EXPECT_EQ(first_uri(run_of("--check R001-kind.yaml" + kModel, root)),
            "tests/golden/rules/R001-kind.yaml");
  // A workspace that the program does not run in says nothing of its files.
  EXPECT_EQ(first_uri(run_of("--check R001-kind.yaml" + kModel, "env GITHUB_WORKSPACE=/nowhere")),
            "R001-kind.yaml");
}

TEST(GoldenSarifPlaces, AFileOutsideOfTheCheckoutHasAFileUri) {
  const Folder folder;
  const std::string path = folder.write("far.yaml", read_file(kCases / "R001-kind.yaml"));
  EXPECT_EQ(first_uri(run_of("--check " + path + kModel)),
            "file://" + fs::weakly_canonical(path).string());
}

TEST(GoldenSarifPlaces, NamesAreEscapedAndLinksResolved) {
  const Folder folder;
  const fs::path config = fs::canonical(kCases / "../../configs/Qwen3-30B-A3B.json");
  const std::string text = read_file(kCases / "R001-kind.yaml");
  (void)folder.write("a b\\c#é:%.yaml", text);
  fs::create_symlink("a b\\c#é:%.yaml", folder.path / "link.yaml");
  const std::string there = fmt::format("cd '{}' && env -u GITHUB_WORKSPACE", folder.path.string());
  for (const char* name : {"'a b\\c#é:%.yaml'", "link.yaml"}) {
    EXPECT_EQ(
        first_uri(run_of(fmt::format("--check {} --hf-config '{}'", name, config.string()), there)),
        "a%20b%5Cc%23%C3%A9%3A%25.yaml");
  }
}

// Columns count characters, not bytes, and a line that the file does not have is its last.
TEST(GoldenSarifPlaces, ColumnsCountCodePoints) {
  const Folder folder;
  const std::string path =
      folder.write("columns.yaml", "- {note: \"é✓😀\", match: {kind: mlp}, replace: {}}\n");
  const Json region = first_region(run_of("--check " + path + kModel));
  ASSERT_FALSE(region.is_null());
  EXPECT_EQ(region["startLine"], 1);
  EXPECT_EQ(region["startColumn"], 4);
  const std::string behind =
      folder.write("behind.yaml", "- {note: \"é✓😀\", match: {kind: head}, replce: {}}\n");
  EXPECT_EQ(first_region(run_of("--check " + behind + kModel))["startColumn"], 38);
  const std::string open = folder.write("open.yaml", "- match: {kind: head\n");
  EXPECT_EQ(first_region(run_of("--check " + open + kModel))["endLine"], 1);
}

// The hashes are those of the upload action, which warns of others; it gives these for the
// same texts.
TEST(GoldenSarifPlaces, FingerprintsAreThoseOfTheUploadAction) {
  const Folder folder;
  const auto print_of = [&](const std::string& text) {
    const std::string path = folder.write("print.yaml", text);
    const Json run = run_of("--check " + path + kModel);
    if (run["results"].empty()) return std::string("no result");
    const Json& result = run["results"][0];
    const int line = result["locations"][0]["physicalLocation"]["region"]["startLine"];
    return fmt::format("{} {}", line,
                       result["partialFingerprints"]["primaryLocationLineHash"].get<std::string>());
  };
  std::string lorem;
  for (int i = 0; i < 10; ++i) lorem += "Lorem ipsum dolor sit amet.\n";
  EXPECT_EQ(print_of(lorem), "1 a7f2ff13bc495cf2:1");
  EXPECT_EQ(print_of(" a\nb\n  \t\tc\n d"), "1 271789c17abda88f:1");
  EXPECT_EQ(print_of(" hello; \t\r\nworld!!!\r\n\r\n\r\n  \t\tGreetings\r\n End\r\n"),
            "1 e9496ae3ebfced30:1");
}

// A file of many mistakes stays within the limits of an upload.
TEST(GoldenSarifLimits, ManyFindingsAreCut) {
  const Folder folder;
  std::string text = "- match: {kind: head}\n  replace: {device: cpu}\n";
  for (int i = 0; i < 30000; ++i) text += fmt::format("  k{}: 1\n", i);
  const Json run = run_of("--check " + folder.write("many.yaml", text) + kModel);
  EXPECT_EQ(run["results"].size(), 5000u);
  EXPECT_NE(run["invocations"][0].dump().find("more findings are left out"), std::string::npos);
}

// The reports do not come between a program and its SARIF.
TEST(GoldenSarifLimits, StdoutIsSarifAlone) {
  (void)run_of("--check ok-spread.yaml --estimate --list-unruled --coverage --explain lm_head" +
               kModel);
}

// The workflow of the documents uploads what the program writes, and nothing when that is
// nothing: an empty file would be a second error that hides the first.
TEST(GoldenSarifLimits, TheWorkflowUploadsOnlyWhatWasWritten) {
  const std::string text = read_file(source_dir() + "/docs/examples/check-rules.yml");
  const size_t begin = text.find("run: |\n", text.find("id: check")) + 7;
  ASSERT_GT(begin, 7u);
  std::string script = text.substr(begin, text.find("      - name: summary") - begin);
  const auto set = [&](const std::string& name, const std::string& value) {
    for (size_t at = 0; (at = script.find(name, at)) != script.npos;) {
      script.replace(at, name.size(), value);
    }
  };
  const auto step = [&](const std::string& rules, const std::string& config,
                        const std::string& programs = binary_dir()) {
    const Folder folder;
    script = text.substr(begin, text.find("      - name: summary") - begin);
    set("${{ matrix.rules }}", rules);
    set("${{ matrix.config }}", config);
    set("${{ matrix.target }}", "h200");
    (void)folder.write("step.sh", script);
    const int status =
        cost_of(fmt::format("cd '{0}' && PATH='{1}':$PATH bash -e step.sh >/dev/null 2>&1",
                            folder.path.string(), programs))
            .status;
    const bool written = fs::exists(folder.path / "rules.sarif");
    if (written) {
      EXPECT_EQ(refused_by_code_scanning(read_file(folder.path / "rules.sarif")), "");
    }
    return std::pair(status, written);
  };
  const std::string config = source_dir() + "/tests/configs/Qwen3-8B.json";
  EXPECT_EQ(step(source_dir() + "/rules/all-gpu.yaml", config), std::pair(0, true));
  EXPECT_EQ(step((kCases / "D004-gpu.yaml").string(), config), std::pair(1, true));
  EXPECT_EQ(step("missing.yaml", config), std::pair(1, true));
  EXPECT_EQ(step("missing.yaml", "\"\""), std::pair(2, true));
  const fs::path broken = fs::temp_directory_path() / fmt::format("ktx_broken_{}", ::getpid());
  fs::create_directories(broken);
  std::ofstream(broken / "ktx-compile") << "#!/bin/sh\nexit 9\n";
  fs::permissions(broken / "ktx-compile", fs::perms::owner_all);
  EXPECT_EQ(step("missing.yaml", config, broken.string()), std::pair(9, false));
  fs::remove_all(broken);
}

}  // namespace
}  // namespace ktx::golden
