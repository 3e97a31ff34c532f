// The steps of docs/examples/check-rules.yml, run as GitHub's runner does: `bash -e` on each `run`,
// with the matrix filled in. The package is an installed tree of this build; the upload is not run.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <filesystem>
#include <sstream>

#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ktx::testing {
namespace {

namespace fs = std::filesystem;

// The script of the step with that name: the block behind "run: |".
std::string script_of(const std::string& workflow, const std::string& step) {
  std::istringstream lines(workflow.substr(workflow.find("- name: " + step + "\n")));
  std::string out;
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (inside && !line.starts_with("          ")) break;
    if (inside) out += line.substr(10) + "\n";
    inside = inside || line.ends_with("run: |");
  }
  EXPECT_FALSE(out.empty()) << step;
  return out;
}

std::string filled(std::string script) {
  for (const auto& [name, value] : std::vector<std::pair<std::string, std::string>>{
           {"${{ matrix.rules }}", "rules/mine.yaml"},
           {"${{ matrix.config }}", "configs/model.json"},
           {"${{ matrix.target }}", "rtx-4090"}}) {
    for (size_t at; (at = script.find(name)) != script.npos;) {
      script.replace(at, name.size(), value);
    }
  }
  EXPECT_EQ(script.find("${{"), script.npos);
  return script;
}

class Workflow : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(dir_.path("tree/ktx-0/bin"));
    fs::create_directories(dir_.path("tree/ktx-0/share/ktx"));
    fs::copy(ktx_compile(), dir_.path("tree/ktx-0/bin/ktx-compile"));
    fs::copy(source_dir() + "/targets", dir_.path("tree/ktx-0/share/ktx/targets"),
             fs::copy_options::recursive);
    ASSERT_EQ(bash("tar czf ktx.tar.gz -C tree ktx-0").status, 0);
    fs::create_directories(dir_.path("rules"));
    fs::create_directories(dir_.path("configs"));
    fs::copy(source_dir() + "/tests/configs/Qwen3-30B-A3B.json", dir_.path("configs/model.json"));
  }
  Finished bash(const std::string& script) {
    return run_program(
        {"/bin/bash", "-c",
         "cd '" + dir_.path() +
             "' && PATH=$(cat github_path "
             "2> /dev/null):/usr/bin:/bin bash -e -c '" +
             quoted(script) + "'"},
        "",
        {"RUNNER_TEMP=" + dir_.path("temp"), "GITHUB_PATH=" + dir_.path("github_path"),
         "GITHUB_STEP_SUMMARY=" + dir_.path("summary"),
         "KTX_PACKAGE=file://" + dir_.path("ktx.tar.gz")});
  }
  static std::string quoted(const std::string& text) {
    std::string out;
    for (const char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
    return out;
  }
  Finished step(const std::string& name) {
    return bash(
        filled(script_of(read_file(source_dir() + "/docs/examples/check-rules.yml"), name)));
  }

  TempDir dir_;
};

TEST_F(Workflow, InstallsChecksAndWritesWhatAnnotatesAPullRequest) {
  if (run_program({"/bin/sh", "-c", "command -v curl"}).status != 0) {
    GTEST_SKIP() << "no curl on this machine";
  }
  dir_.write("rules/mine.yaml", "- match: {kind: experts}\n  replace: {devise: cpu}\n");
  Finished run = step("install ktx-compile");
  ASSERT_EQ(run.status, 0) << run.err;
  run = step("check");
  EXPECT_EQ(run.status, 1) << run.out << run.err;  // the job fails
  const nlohmann::json sarif = nlohmann::json::parse(read_file(dir_.path("rules.sarif")));
  const nlohmann::json& result = sarif.at("runs").at(0).at("results").at(0);
  const nlohmann::json& place = result.at("locations").at(0).at("physicalLocation");
  EXPECT_EQ(place.at("artifactLocation").at("uri"), "rules/mine.yaml");
  EXPECT_EQ(place.at("region").at("startLine"), 2);
  run = step("summary");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_NE(read_file(dir_.path("summary")).find("devise"), std::string::npos);

  dir_.write("rules/mine.yaml", "- match: {kind: experts}\n  replace: {device: cpu}\n");
  run = step("check");
  EXPECT_EQ(run.status, 0) << run.out << run.err;
}

}  // namespace
}  // namespace ktx::testing
