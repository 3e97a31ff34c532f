// Plans for several hosts under mpirun, all of them processes of this machine: the answers are
// those of one process, and a process that is ended or stands still is named, and ends the run
// soon.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <random>
#include <thread>

#include "tests/support/http_client.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"

namespace ktx::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using ::testing::HasSubstr;

// More processes than cores, by root, not bound to a core each; as Open MPI 4 and 5 name it.
const std::vector<std::string> kHere = {"OMPI_ALLOW_RUN_AS_ROOT=1",
                                        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                                        "OMPI_MCA_rmaps_base_oversubscribe=1",
                                        "OMPI_MCA_hwloc_base_binding_policy=none",
                                        "OMPI_MCA_btl_vader_single_copy_mechanism=none",
                                        "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe",
                                        "PRTE_MCA_hwloc_default_binding_policy=none"};

Finished mpirun(int ranks, std::vector<std::string> arguments) {
  std::vector<std::string> command = {"/usr/bin/mpirun", "-n", fmt::format("{}", ranks), ktx_run()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run_program(command, "", kHere);
}

class Mpirun : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(binary_dir() + "/ktx-mpi.so") || !fs::exists("/usr/bin/mpirun")) {
      GTEST_SKIP() << "no MPI (libopenmpi-dev, openmpi-bin)";
    }
  }
  std::string compile(const std::string& gguf, int hosts, const std::string& rules = "") {
    const std::string plan = dir_.path(fmt::format("{}.ktxplan", hosts));
    std::vector<std::string> command = {ktx_compile(), gguf, "-o", plan};
    if (!rules.empty()) command.push_back(dir_.write("rules.yaml", "version: 1\nrules:\n" + rules));
    if (hosts > 1) {
      command.push_back("--target=" +
                        dir_.write("hosts.yaml",
                                   "hosts: [{name: a, cpu: {cores: 2}}, {name: b, cpu: "
                                   "{cores: 2}, count: " +
                                       fmt::format("{}", hosts - 1) + "}]\n"));
    }
    const Finished run = run_program(command);
    EXPECT_EQ(run.status, 0) << run.err;
    const std::string launcher =
        hosts > 1 ? fmt::format("mpirun -n {} --bind-to none ", hosts) : "";
    EXPECT_THAT(run.out + run.err, HasSubstr("run it with: " + launcher + "ktx-run chat"));
    return plan;
  }
  TempDir dir_;
};

TEST_F(Mpirun, GivesTheAnswersOfOneProcess) {
  for (const char* model : {"llama", "qwen3moe", "deepseek3"}) {
    SCOPED_TRACE(model);
    const std::string gguf = test_model_gguf(model);
    const auto arguments = [](const std::string& plan) {
      return std::vector<std::string>{
          "generate", plan, "--prompt", "Once upon a time", "-n", "24", "--temp", "0", "-t", "1"};
    };
    std::vector<std::string> alone = arguments(compile(gguf, 1));
    alone.insert(alone.begin(), ktx_run());
    const Finished expected = run_program(alone);
    ASSERT_EQ(expected.status, 0) << expected.err;
    for (const int hosts : {2, 4}) {
      const Finished run = mpirun(hosts, arguments(compile(gguf, hosts)));
      EXPECT_EQ(run.status, 0) << run.err;
      EXPECT_EQ(run.out, expected.out);
    }
  }
}

// The experts of each layer on all hosts, prompts in several chunks.
TEST_F(Mpirun, GivesThemWithExpertsOverAllHosts) {
  for (const char* model : {"qwen3moe", "deepseek3"}) {
    SCOPED_TRACE(model);
    const std::string gguf = test_model_gguf(model);
    const auto arguments = [](const std::string& plan) {
      return std::vector<std::string>{"generate", plan, "--prompt", "Once upon a time, long ago",
                                      "-n",       "24", "--temp",   "0",
                                      "-t",       "1",  "--chunk",  "4"};
    };
    std::vector<std::string> alone = arguments(compile(gguf, 1));
    alone.insert(alone.begin(), ktx_run());
    const Finished expected = run_program(alone);
    ASSERT_EQ(expected.status, 0) << expected.err;
    const Finished run =
        mpirun(4, arguments(compile(gguf, 4,
                                    "  - match: {kind: experts}\n"
                                    "    replace: {device: a/cpu, experts: {b1/cpu: 2, b2/cpu: 1, "
                                    "b3/cpu: 1}}\n"
                                    "    recursive: false\n")));
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(run.out, expected.out);
  }
}

TEST_F(Mpirun, RunsBench) {
  const Finished run = mpirun(2, {"bench", compile(test_model_gguf("llama"), 2), "-p", "32", "-n",
                                  "4", "-r", "1", "-t", "1"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("pp32"));
}

TEST_F(Mpirun, AnotherNumberOfProcessesIsAMistake) {
  const std::string plan = compile(test_model_gguf("llama"), 2);
  const Finished alone = run_program({ktx_run(), "generate", plan, "--prompt", "x"}, "", kHere);
  EXPECT_EQ(alone.status, 1);
  EXPECT_THAT(alone.err, HasSubstr("write mpirun -n 2 --bind-to none ktx-run"));
  const Finished three = mpirun(3, {"generate", plan, "--prompt", "x"});
  EXPECT_NE(three.status, 0);
  EXPECT_THAT(three.err, HasSubstr("3 processes were started"));
}

// The process of a rank that has this plan; 0: none yet.
pid_t process_of(const std::string& plan, int rank) {
  const std::string wanted = fmt::format("OMPI_COMM_WORLD_RANK={}", rank);
  std::error_code none;
  for (const auto& entry : fs::directory_iterator("/proc", none)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != name.npos) continue;
    const std::string command = read_file(entry.path().string() + "/cmdline");
    const std::string environment = read_file(entry.path().string() + "/environ");
    const bool runs =
        command.find("ktx-run") != command.npos && command.find("mpirun") == command.npos;
    if (!runs || command.find(plan) == command.npos) continue;
    for (size_t at = 0; at < environment.size(); at = environment.find('\0', at) + 1) {
      if (environment.compare(at, wanted.size() + 1, wanted + '\0') == 0) return std::stoi(name);
      if (environment.find('\0', at) == environment.npos) break;
    }
  }
  return 0;
}

// As soon as it is there; 0 if the run has ended without it.
pid_t await_process_of(const std::string& plan, int rank, const std::future<Finished>& run) {
  pid_t process = 0;
  while (process == 0 && run.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    process = process_of(plan, rank);
  }
  return process;
}

class MpirunLosesARank : public Mpirun, public ::testing::WithParamInterface<int> {};

TEST_P(MpirunLosesARank, AtARandomMoment) {
  const std::string plan = compile(test_model_gguf("llama"), 2);
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 3; ++i) {
    auto run = std::async(std::launch::async, [&] {
      return mpirun(2, {"bench", plan, "-p", "16", "-n", "2000", "-r", "1000", "-t", "1"});
    });
    const pid_t process = await_process_of(plan, 1, run);
    ASSERT_NE(process, 0) << run.get().err;
    // One that stands still before its first sign of life is given two more seconds.
    const int earliest = GetParam() == SIGSTOP ? 500 : 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(earliest + random() % 4000));
    kill(process, GetParam());
    const Finished finished = run.get();
    EXPECT_NE(finished.status, 0);
    EXPECT_THAT(finished.err, HasSubstr("rank 1"));
    if (GetParam() == SIGSTOP) {
      EXPECT_THAT(finished.err, AnyOf(HasSubstr("host b (rank 1) has given no sign of life"),
                                      HasSubstr("host b (rank 1) did not start")));
    }
  }
}

// MPI_Init of the others would wait without end: with --enable-recovery mpirun goes on without a
// process that is gone.
TEST_P(MpirunLosesARank, WhileMpiStarts) {
  const std::string plan = compile(test_model_gguf("llama"), 2);
  auto run = std::async(std::launch::async, [&] {
    return run_program({"/usr/bin/mpirun", "--enable-recovery", "-n", "2", ktx_run(), "generate",
                        plan, "--prompt", "x", "-n", "2000", "--ctx", "4k"},
                       "", kHere);
  });
  const pid_t process = await_process_of(plan, 1, run);
  ASSERT_NE(process, 0) << run.get().err;
  kill(process, GetParam());
  const Finished finished = run.get();
  // mpirun's own status says nothing here: with --enable-recovery it is 0 before MPI has started.
  EXPECT_THAT(finished.err, HasSubstr("rank 1"));
}

// A conversation that was saved over two hosts goes on, bit for bit, on a run that comes after the
// one that lost a host.
TEST_P(MpirunLosesARank, AndWhatWasSavedBeforeGoesOn) {
  using nlohmann::json;
  const auto complete = [](const ServerProcess& server, const std::string& prompt) {
    const json body = {{"prompt", prompt},     {"n_predict", 40}, {"temperature", 0.8}, {"seed", 3},
                       {"cache_prompt", true}, {"id_slot", 0},    {"ignore_eos", true}};
    return server.post("/completion", body.dump());
  };
  const auto serve = [&](const std::string& plan) {
    return std::vector<std::string>{plan, "--slot-dir", dir_.path(), "--max-batch", "2", "-t", "1"};
  };
  const std::string first = "Once upon a time";
  std::string told, expected;
  {
    const ServerProcess alone(serve(compile(test_model_gguf("llama"), 1)));
    told = complete(alone, first).json().value("content", "");
    expected = complete(alone, first + told + " And then").json().value("content", "");
  }
  ASSERT_FALSE(expected.empty());

  for (const std::string& name : kHere) putenv(strdup(name.c_str()));
  const std::string plan = compile(test_model_gguf("llama"), 2);
  const std::vector<std::string> launcher = {"/usr/bin/mpirun", "--enable-recovery", "-n", "2"};
  {
    ServerProcess server(serve(plan), launcher);
    EXPECT_EQ(complete(server, first).json().value("content", ""), told);
    const HttpAnswer saved = server.post("/slots/0?action=save", R"({"filename": "x.slot"})");
    ASSERT_EQ(saved.status, 200) << saved.body;
    kill(process_of(plan, 1), GetParam());
    const HttpAnswer lost = complete(server, first + told);
    EXPECT_GE(lost.status, 500) << lost.body;
    EXPECT_THAT(lost.body, HasSubstr("host b (rank 1)"));
    server.stop(SIGTERM);
  }
  ServerProcess server(serve(plan), launcher);
  const HttpAnswer restored = server.post("/slots/0?action=restore", R"({"filename": "x.slot"})");
  ASSERT_EQ(restored.status, 200) << restored.body;
  const json answer = complete(server, first + told + " And then").json();
  EXPECT_EQ(answer.value("content", ""), expected);
  EXPECT_GT(answer["timings"].value("cache_n", 0), 40) << answer;
  server.stop(SIGTERM);
}

INSTANTIATE_TEST_SUITE_P(Signals, MpirunLosesARank, ::testing::Values(SIGKILL, SIGSTOP),
                         [](const auto& info) {
                           return info.param == SIGKILL ? "Killed" : "Stopped";
                         });

}  // namespace
}  // namespace ktx::testing
