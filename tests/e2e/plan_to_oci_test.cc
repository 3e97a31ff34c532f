// docs/examples/plan_to_oci.py: a plan as a ModelPack artifact, there and back; over a registry
// where skopeo and docker-registry (packages of the distribution) are installed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/run_program.h"

namespace ktx::testing {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

class PlanToOci : public ::testing::Test {
 protected:
  void SetUp() override {
    const Finished run = run_program({ktx_compile(), "-q", model_gguf("llama"), "-o", plan_});
    ASSERT_EQ(run.status, 0) << run.err;
    dir_.write("m.ktxplan.root.minisig", "a signature\n");
  }
  Finished tool(const std::vector<std::string>& args) {
    // As docs/deploying.md types it: the script itself.
    std::vector<std::string> command = {source_dir() + "/docs/examples/plan_to_oci.py"};
    command.insert(command.end(), args.begin(), args.end());
    return run_program(command);
  }
  Json blob(const std::string& digest) {
    return Json::parse(read_file(dir_.path("layout/blobs/sha256/" + digest.substr(7))));
  }

  TempDir dir_;
  const std::string plan_ = dir_.path("m.ktxplan");
};

TEST_F(PlanToOci, NamesWhatModelPackNames) {
  const Finished run =
      tool({plan_, plan_ + ".root.minisig", "-o", dir_.path("layout"), "-t", "q4"});
  ASSERT_EQ(run.status, 0) << run.err;
  const Json index = Json::parse(read_file(dir_.path("layout/index.json")));
  const Json manifest = blob(index["manifests"][0]["digest"]);
  EXPECT_EQ(manifest["artifactType"], "application/vnd.cncf.model.manifest.v1+json");
  EXPECT_EQ(manifest["config"]["mediaType"], "application/vnd.cncf.model.config.v1+json");
  ASSERT_EQ(manifest["layers"].size(), 2u);
  EXPECT_EQ(manifest["layers"][0]["mediaType"], "application/vnd.cncf.model.weight.v1.raw");
  EXPECT_EQ(manifest["layers"][0]["annotations"]["org.cncf.model.filepath"], "m.ktxplan");
  EXPECT_EQ(manifest["layers"][1]["mediaType"], "application/vnd.cncf.model.doc.v1.raw");
  const Json config = blob(manifest["config"]["digest"]);
  const Json inspected =
      Json::parse(run_program({ktx_run(), "inspect", plan_, "--json"}).out, nullptr, false);
  EXPECT_EQ(config["descriptor"]["revision"], inspected["root"]);
  EXPECT_EQ(config["descriptor"]["family"], "llama");
  EXPECT_EQ(config["modelfs"]["diffIds"][0], manifest["layers"][0]["digest"]);
  // The same plan gives the same manifest.
  EXPECT_EQ(tool({plan_, plan_ + ".root.minisig", "-o", dir_.path("again"), "-t", "q4"}).out,
            run.out.substr(0, 71) + "  " + dir_.path("again") + ":q4\n");

  // Into a folder that is made, then over what is there, which may be older.
  for (int i = 0; i < 2; ++i) {
    const Finished unpacked = tool({"--unpack", dir_.path("layout"), "-o", dir_.path("out")});
    ASSERT_EQ(unpacked.status, 0) << unpacked.err;
    EXPECT_EQ(read_file(dir_.path("out/m.ktxplan")), read_file(plan_));
    std::filesystem::remove(dir_.path("out/m.ktxplan"));
    dir_.write("out/m.ktxplan", "an older plan");
  }
  ASSERT_EQ(tool({"--unpack", dir_.path("layout"), "-o", dir_.path("out")}).status, 0);
  EXPECT_EQ(read_file(dir_.path("out/m.ktxplan")), read_file(plan_));
  EXPECT_EQ(read_file(dir_.path("out/m.ktxplan.root.minisig")), "a signature\n");
}

TEST_F(PlanToOci, RefusesWhatIsDamaged) {
  ASSERT_EQ(tool({plan_, "-o", dir_.path("layout")}).status, 0);
  const Json index = Json::parse(read_file(dir_.path("layout/index.json")));
  const std::string digest = blob(index["manifests"][0]["digest"])["layers"][0]["digest"];
  const std::string path = "layout/blobs/sha256/" + digest.substr(7);
  dir_.write(path, read_file(dir_.path(path)) + "x");
  const Finished run = tool({"--unpack", dir_.path("layout"), "-o", dir_.path("out")});
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("is not what the manifest names"));
  EXPECT_FALSE(std::filesystem::exists(dir_.path("out/m.ktxplan")));
  EXPECT_EQ(tool({dir_.write("x.ktxplan", "x"), "-o", dir_.path("l2")}).status, 1);
}

TEST_F(PlanToOci, PushesAndPullsByStockTools) {
  for (const char* program : {"skopeo", "docker-registry"}) {
    if (run_program({"/bin/sh", "-c", std::string("command -v ") + program}).status != 0) {
      GTEST_SKIP() << program << " is not installed";
    }
  }
  ASSERT_EQ(tool({plan_, "-o", dir_.path("layout"), "-t", "q4"}).status, 0);
  // The registry takes a free port, which its log names.
  dir_.write("registry.yml", "version: 0.1\nstorage: {filesystem: {rootdirectory: " +
                                 dir_.path("store") + "}}\nhttp: {addr: '127.0.0.1:0'}\n");
  const std::string script =
      "docker-registry serve registry.yml > log 2>&1 & echo $! > pid; "
      "until port=$(sed -n 's/.*listening on 127.0.0.1:\\([0-9]*\\).*/\\1/p' log) && [ \"$port\" ]; do "
      "kill -0 $(cat pid) || exit 9; sleep 0.1; done; "
      "copy() { skopeo copy --insecure-policy --preserve-digests --quiet \"$@\"; }; "
      "copy --dest-tls-verify=false oci:layout:q4 docker://127.0.0.1:$port/models/m:q4 && "
      "copy --src-tls-verify=false docker://127.0.0.1:$port/models/m:q4 oci:pulled:q4; "
      "status=$?; kill $(cat pid); exit $status";
  const Finished run = run_program({"/bin/sh", "-c", "cd " + dir_.path() + " || exit; " + script});
  ASSERT_EQ(run.status, 0) << run.err << read_file(dir_.path("log"));
  ASSERT_EQ(tool({"--unpack", dir_.path("pulled"), "-o", dir_.path("out")}).status, 0);
  EXPECT_EQ(read_file(dir_.path("out/m.ktxplan")), read_file(plan_));
  const Finished verified =
      run_program({ktx_run(), "inspect", dir_.path("out/m.ktxplan"), "--verify"});
  EXPECT_EQ(verified.status, 0) << verified.err;
}

}  // namespace
}  // namespace ktx::testing
