// ktx-compile --consume: the model is moved into its plan, whenever it is killed.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <thread>

#include "lib/input/gguf.h"
#include "lib/input/hf_config.h"
#include "lib/support/sha256.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/split_gguf.h"
#include "tests/support/temp_dir.h"
#include "tests/support/traced_program.h"
#include "tools/dev/synth/synth_model.h"

namespace ktx::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

uint64_t disk_bytes(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 ? static_cast<uint64_t>(info.st_blocks) * 512 : 0;
}

// In memory, where the system has files there: hundreds of syncs take no time.
class Consume : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (fs::exists("/dev/shm")) setenv("TMPDIR", "/dev/shm", 1);
  }
  static void TearDownTestSuite() { unsetenv("TMPDIR"); }
  std::string rule(const std::string& name) const { return source_dir() + "/rules/" + name; }
  std::string target(const std::string& name) const {
    return "--target=" + source_dir() + "/targets/" + name + ".yaml";
  }
  std::vector<std::string> command(const std::string& gguf, const std::string& plan,
                                   const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {ktx_compile(), gguf, "-q", "-o", plan};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Finished compile(const std::string& gguf, const std::string& plan,
                   const std::vector<std::string>& more = {}) const {
    return run_program(command(gguf, plan, more));
  }
  Finished consume(const std::string& gguf, const std::string& plan,
                   std::vector<std::string> more = {}) const {
    more.emplace_back("--consume");
    return compile(gguf, plan, more);
  }
  // The model's bytes under a name of the test's own, and the plan that they give.
  std::string copy_model(const std::string& name) {
    bytes = read_file(model_gguf(name));
    return dir.write("m.gguf", bytes);
  }
  std::string expected_plan(const std::string& gguf, const std::vector<std::string>& more = {}) {
    const std::string path = dir.path("expected.ktxplan");
    const Finished run = compile(gguf, path, more);
    EXPECT_EQ(run.status, 0) << run.err;
    const std::string plan = read_file(path);
    fs::remove(path);
    return plan;
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(dir.path(""))) {
      names.push_back(entry.path().filename().string());
    }
    std::ranges::sort(names);
    return names;
  }
  // Kills the command before a call that changes a file.
  void kill_at(const std::vector<std::string>& words, int call) const {
    run_traced(words, [&](int at) { return at < call; });
  }

  TempDir dir;
  std::string bytes;
};

TEST_F(Consume, LeavesThePlanAlone) {
  const struct {
    const char* model;
    std::vector<std::string> more;
  } cases[] = {
      {"llama", {}},
      {"gemma3", {rule("cpu-only.yaml"), target("zen4")}},
      {"qwen3moe", {rule("moe-experts-on-cpu.yaml"), target("h200")}},
      {"llama", {rule("all-gpu.yaml"), target("rtx-4090"), "--ctx", "2k"}},
      {"qwen3moe", {target("rtx-4090-x2")}},
      {"deepseek2", {rule("all-gpu.yaml"), target("h100")}},
  };
  for (const auto& [model, more] : cases) {
    SCOPED_TRACE(model);
    const std::string gguf = copy_model(model), plan = dir.path("m.ktxplan");
    const std::string expected = expected_plan(gguf, more);
    const Finished run = consume(gguf, plan, more);
    ASSERT_EQ(run.status, 0) << run.err;
    EXPECT_THAT(files(), ElementsAre("m.ktxplan"));
    EXPECT_TRUE(read_file(plan) == expected);
    const Finished hash = run_program({ktx_run(), "inspect", plan, "--source-sha256"});
    EXPECT_THAT(hash.out, HasSubstr(to_hex(*sha256(std::as_bytes(std::span(bytes))))));
    ASSERT_EQ(run_program({ktx_run(), "inspect", plan, "--export-gguf", gguf}).status, 0);
    EXPECT_TRUE(read_file(gguf) == bytes);
  }
}

class ConsumeOnDisk : public Consume {
 protected:
  static void SetUpTestSuite() {}  // in the usual place of temporary files
};

TEST_F(ConsumeOnDisk, MovesAllShards) {
  for (const int call : {-1, 60}) {
    const auto gguf = input::GgufFile::open(model_gguf("qwen3moe"));
    fs::remove(dir.path("m.ktxplan"));
    ASSERT_TRUE(split_gguf(*gguf, dir.path("m"), 3));
    const std::string first = shard_file(dir.path("m"), 1, 3), plan = dir.path("m.ktxplan");
    std::vector<std::string> before;
    for (int i = 1; i <= 3; ++i) before.push_back(read_file(shard_file(dir.path("m"), i, 3)));
    const std::string expected = expected_plan(first);
    if (call > 0) {
      kill_at(command(first, plan, {"--consume"}), call);
      EXPECT_FALSE(fs::exists(plan));
    }
    const Finished run = consume(first, plan);
    ASSERT_EQ(run.status, 0) << run.err;
    EXPECT_THAT(files(), ElementsAre("m.ktxplan"));
    EXPECT_TRUE(read_file(plan) == expected);
    ASSERT_EQ(run_program({ktx_run(), "inspect", plan, "--export-gguf", dir.path("m.gguf")}).status,
              0);
    for (int i = 1; i <= 3; ++i) {
      EXPECT_TRUE(read_file(shard_file(dir.path("m"), i, 3)) == before[static_cast<size_t>(i - 1)]);
    }
  }
}

// All of the first calls and of the last ones, and some of those between, which are alike.
TEST_F(Consume, ContinuesAfterAKillAtEachKindOfCall) {
  const std::string plan = dir.path("m.ktxplan");
  const std::string expected = expected_plan(copy_model("llama"));
  const auto words = command(dir.path("m.gguf"), plan, {"--consume"});
  const int calls = run_traced(words, [](int) { return true; }).calls;
  ASSERT_GT(calls, 100);
  for (int call = 0; call < calls; call += call < 15 || call >= calls - 20 ? 1 : 9) {
    SCOPED_TRACE(call);
    fs::remove(plan);
    const std::string gguf = copy_model("llama");
    const Traced killed = run_traced(words, [&](int at) { return at < call; });
    ASSERT_FALSE(killed.ended);
    if (fs::exists(plan)) {  // all was done but the end of the process
      EXPECT_THAT(files(), ElementsAre("m.ktxplan"));
    } else {
      const Finished run = run_program(words);
      ASSERT_EQ(run.status, 0) << run.err;
    }
    ASSERT_THAT(files(), ElementsAre("m.ktxplan"));
    ASSERT_TRUE(read_file(plan) == expected);
  }
}

TEST_F(Consume, ContinuesAfterKillsAtAnyTime) {
  const std::string plan = dir.path("m.ktxplan");
  const std::string expected = expected_plan(copy_model("qwen3moe"));
  const auto words = command(dir.path("m.gguf"), plan, {"--consume"});
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  for (int kills = 0; kills < 50;) {
    fs::remove(plan);
    copy_model("qwen3moe");
    for (int starts = 0; !fs::exists(plan); ++starts) {
      ASSERT_LT(starts, 1000);
      const pid_t child = fork();
      if (child == 0) {
        std::vector<char*> argv;
        for (const std::string& word : words) argv.push_back(strdup(word.c_str()));
        argv.push_back(nullptr);
        execv(argv[0], argv.data());
        _exit(127);
      }
      // Longer and longer, so that a busy machine comes to an end as well.
      const auto longest = static_cast<uint64_t>(120'000 * (1 + starts / 20));
      std::this_thread::sleep_for(std::chrono::microseconds(random() % longest));
      kill(child, SIGKILL);
      int status = 0;
      waitpid(child, &status, 0);
      kills += WIFSIGNALED(status) ? 1 : 0;
      ASSERT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    }
    ASSERT_THAT(files(), ElementsAre("m.ktxplan"));
    ASSERT_TRUE(read_file(plan) == expected);
  }
}

// A model of some 50 MB, whose blocks and the plan's are counted before each call.
TEST_F(Consume, HasNeverMuchMoreThanOneCopyOnTheDisk) {
  const auto config = input::HfConfig::parse(R"({
    "model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 6, "num_attention_heads": 8,
    "num_key_value_heads": 4, "intermediate_size": 2816, "vocab_size": 4096,
    "max_position_embeddings": 2048})",
                                             "config.json");
  ASSERT_TRUE(config.ok()) << config.error().message;
  const auto writer = synth::synthesise(*config, {});
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  const std::string gguf = dir.path("m.gguf"), plan = dir.path("m.ktxplan");
  ASSERT_TRUE(writer->write(gguf));
  const uint64_t model = disk_bytes(gguf);
  ASSERT_GT(model, 40u << 20);
  uint64_t most = 0;
  const Traced run = run_traced(command(gguf, plan, {"--consume"}), [&](int) {
    uint64_t all = 0;
    for (const auto& entry : fs::directory_iterator(dir.path(""))) all += disk_bytes(entry.path());
    most = std::max(most, all);
    return true;
  });
  EXPECT_TRUE(run.ended);
  EXPECT_EQ(run.status, 0);
  RecordProperty("most_to_model", std::to_string(static_cast<double>(most) / model));
  EXPECT_LE(most, model * 102 / 100) << "of " << model;
  EXPECT_LE(disk_bytes(plan), model * 102 / 100);
}

class ConsumeRefused : public Consume {
 protected:
  void expect_refused(const Finished& run, const std::string& reason, int status = 1) {
    EXPECT_EQ(run.status, status);
    EXPECT_THAT(run.err, HasSubstr(reason));
    EXPECT_TRUE(read_file(dir.path("m.gguf")) == bytes);
    for (const std::string& name : files()) {
      EXPECT_FALSE(name.ends_with(".moving") || name.ends_with(".ktxplan")) << name;
    }
  }
};

TEST_F(ConsumeRefused, WhereOthersNeedTheFile) {
  const std::string gguf = copy_model("llama"), plan = dir.path("m.ktxplan");
  fs::create_hard_link(gguf, dir.path("other.gguf"));
  expect_refused(consume(gguf, plan), "m.gguf: the file has 2 names (hard links)");
  fs::remove(dir.path("other.gguf"));
  fs::create_symlink("m.gguf", dir.path("link.gguf"));
  expect_refused(consume(dir.path("link.gguf"), plan), "link.gguf: it is a link to m.gguf");
  const int open_file = open(gguf.c_str(), O_RDONLY | O_CLOEXEC);
  expect_refused(consume(gguf, plan), "m.gguf: another program has this file open");
  ASSERT_EQ(flock(open_file, LOCK_EX), 0);
  expect_refused(consume(gguf, plan), "m.gguf: another process is moving this file");
  // Nor is it read meanwhile: what was moved reads as zeros.
  const Finished reads = compile(gguf, plan);
  EXPECT_THAT(reads.err, HasSubstr("m.gguf: another program moves this file into a plan now"));
  expect_refused(reads, "wait for it");
  close(open_file);
  {
    const auto reader = input::GgufFile::open(gguf);
    ASSERT_TRUE(reader.ok());
    ASSERT_TRUE(input::GgufFile::open(gguf).ok()) << "readers share it";
    expect_refused(consume(gguf, plan), "m.gguf: another program has this file open");
  }
  if (getuid() != 0) {  // who may write everywhere
    fs::permissions(gguf, fs::perms(0444));
    expect_refused(consume(gguf, plan), "m.gguf: cannot open it for writing");
    fs::permissions(gguf, fs::perms(0644));
    fs::permissions(dir.path(""), fs::perms(0555));
    expect_refused(consume(gguf, "/tmp/ktx-consume.ktxplan"), "its folder cannot be written to");
    fs::permissions(dir.path(""), fs::perms(0755));
  }
}

TEST_F(ConsumeRefused, WhereTheFileSystemPunchesNoHoles) {
  const std::string gguf = copy_model("llama");
  // As such a file system answers.
  const pid_t child = fork();
  if (child == 0) {
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fallocate, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EOPNOTSUPP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program = {std::size(filter), filter};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
    const Finished run = consume(gguf, dir.path("m.ktxplan"));
    const bool said =
        run.err.find(
            "m.gguf: its file system cannot give back parts of a file "
            "(Operation not supported); compile without --consume") != std::string::npos;
    _exit(run.status == 1 && said ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(read_file(gguf) == bytes);
  EXPECT_THAT(files(), ElementsAre("m.gguf"));
}

TEST_F(ConsumeRefused, WhereThePlanWouldNotHoldAllOfTheModel) {
  const std::string gguf = copy_model("qwen3moe"), plan = dir.path("m.ktxplan");
  const std::string rounded =
      dir.write("rounded.yaml",
                "- {match: {name: \".\"}, replace: {device: cpu, layout: Q8_0, lossy: allow}}\n");
  expect_refused(consume(gguf, plan, {rounded}),
                 "' is rounded to Q8_0, and its values would be lost");
  const std::string whole = bytes;
  bytes = whole + "more of it";
  dir.write("m.gguf", bytes);
  expect_refused(consume(gguf, plan), "m.gguf: has 10 bytes behind its last tensor");
  bytes = whole;
  dir.write("m.gguf", bytes);
  const std::vector<std::string> with[] = {{"--selftest", "1"},        {"--draft", "mtp"},
                                           {"--reuse", "old.ktxplan"}, {"--split-by-host"},
                                           {"--drop-unused"},          {"--emit=step-ir"}};
  for (const auto& more : with) {
    expect_refused(consume(gguf, plan, more), "--consume does not go with --", 2);
  }
  expect_refused(run_program({ktx_compile(), gguf, "--consume", "--check"}), "goes with -o", 2);
}

class ConsumeStopped : public Consume {
 protected:
  // In the middle of it.
  void stop() {
    plan = dir.path("m.ktxplan");
    gguf = copy_model("llama");
    expected = expected_plan(gguf);
    kill_at(command(gguf, plan, {"--consume"}), 100);
    ASSERT_THAT(files(), ElementsAre("m.gguf.moving", "m.ktxplan.moving"));
  }
  // Nothing that was tried meanwhile has lost anything.
  void expect_continued() {
    const Finished run = consume(gguf, plan);
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_TRUE(read_file(plan) == expected);
  }
  std::string plan, gguf, expected;
};

TEST_F(ConsumeStopped, IsNotTakenForAModel) {
  stop();
  for (const std::string& name : {gguf, gguf + ".moving"}) {
    const Finished run = compile(name, dir.path("other.ktxplan"));
    EXPECT_EQ(run.status, 1);
    EXPECT_THAT(run.err, HasSubstr("m.gguf: ktx-compile --consume was stopped while it moved"));
    EXPECT_EQ(run_program({ktx_compile(), "--check", name}).status, 1);
  }
  expect_continued();
}

TEST_F(ConsumeStopped, IsLeftAloneByOtherCommands) {
  stop();
  const Finished other_options = consume(gguf, plan, {"--ctx", "1k"});
  EXPECT_EQ(other_options.status, 1);
  EXPECT_THAT(other_options.err, HasSubstr("m.ktxplan.moving: an earlier --consume was stopped"));
  const Finished other_plan = consume(gguf, dir.path("other.ktxplan"));
  EXPECT_EQ(other_plan.status, 1);
  EXPECT_THAT(other_plan.err, HasSubstr("m.gguf.moving: an earlier --consume was stopped here"));
  EXPECT_THAT(files(), ElementsAre("m.gguf.moving", "m.ktxplan.moving"));

  // Another model of the same tensors, and the same one whole.
  const std::string another = dir.write("another.gguf", read_file(model_gguf("qwen3moe")));
  EXPECT_EQ(compile(another, plan).status, 0);  // in its place, and the move goes on beside it
  EXPECT_EQ(consume(another, plan).status, 1);
  EXPECT_TRUE(fs::exists(another));
  const std::string again = dir.write("again.gguf", bytes);
  const Finished whole = consume(again, plan);
  EXPECT_EQ(whole.status, 1);
  EXPECT_THAT(whole.err, HasSubstr("m.ktxplan.moving: has weights of an earlier --consume"));
  EXPECT_TRUE(read_file(again) == bytes);
  dir.write("m.gguf", bytes);
  const Finished both = consume(gguf, plan);
  EXPECT_EQ(both.status, 1);
  EXPECT_THAT(both.err, HasSubstr("m.gguf is there as well"));
  fs::remove(gguf);
  expect_continued();
}

// Before anything was moved, a command with other options takes nothing away.
TEST_F(ConsumeStopped, GoesOnFromTheStartAfterAWrongCommand) {
  plan = dir.path("m.ktxplan");
  expected = expected_plan(copy_model("llama"));
  gguf = dir.path("m.gguf");
  const auto words = command(gguf, plan, {"--consume"});
  const Traced all = run_traced(words, [](int) { return true; });
  ASSERT_TRUE(all.ended);
  const auto renamed = std::ranges::find(all.log, uint64_t{SYS_renameat2}, &TracedCall::number);
  ASSERT_NE(renamed, all.log.end());
  for (const bool work_file_stays : {true, false}) {
    fs::remove(plan);
    copy_model("llama");
    kill_at(words, static_cast<int>(renamed - all.log.begin()) + 3);
    ASSERT_THAT(files(), ElementsAre("m.gguf.moving", "m.ktxplan.moving"));
    EXPECT_TRUE(read_file(gguf + ".moving") == bytes);
    const Finished wrong = consume(gguf, plan, {"--ctx", "1k"});
    EXPECT_EQ(wrong.status, 1);
    EXPECT_THAT(wrong.err, HasSubstr("m.ktxplan.moving: an earlier --consume was stopped here"));
    ASSERT_THAT(files(), ElementsAre("m.gguf.moving", "m.ktxplan.moving"));
    if (!work_file_stays) fs::remove(plan + ".moving");
    expect_continued();
    EXPECT_THAT(files(), ElementsAre("m.ktxplan"));
  }
}

// What a killed run wrote last may be in memory only.
TEST_F(ConsumeStopped, SyncsThePlanBeforeEachLossOfTheSource) {
  stop();
  const auto words = command(gguf, plan, {"--consume"});
  const auto expect_synced = [&](const Traced& run, size_t losses) {
    EXPECT_EQ(run.status, 0);
    bool mark_written = false, synced = false;
    size_t lost = 0;
    for (const TracedCall& call : run.log) {
      if (call.file == "m.ktxplan.moving") {
        if (call.number == SYS_pwrite64) synced = false;
        mark_written |= call.number == SYS_pwrite64 && call.args[3] == 0;
        if (call.number == SYS_fsync) synced = mark_written;
      }
      const bool punch = call.number == SYS_fallocate && call.file == "m.gguf.moving" &&
                         call.args[2] < bytes.size();
      if (!punch && call.number != SYS_unlink) continue;
      EXPECT_TRUE(synced) << call.number << " at " << call.args[2];
      ++lost;
    }
    EXPECT_GE(lost, losses);
    EXPECT_TRUE(read_file(plan) == expected);
  };
  const Traced continued = run_traced(words, [](int) { return true; });
  expect_synced(continued, 10);

  // Killed before the sync of the whole plan.
  fs::remove(plan);
  copy_model("llama");
  const Traced all = run_traced(words, [](int) { return true; });
  const auto removed = std::ranges::find(all.log, uint64_t{SYS_unlink}, &TracedCall::number);
  ASSERT_NE(removed, all.log.end());
  fs::remove(plan);
  copy_model("llama");
  kill_at(words, static_cast<int>(removed - all.log.begin()) - 1);
  ASSERT_THAT(files(), ElementsAre("m.gguf.moving", "m.ktxplan.moving"));
  EXPECT_TRUE(read_file(plan + ".moving") == expected);
  expect_synced(run_traced(words, [](int) { return true; }), 1);
}

// The rest of a model with the same tensors and other values.
TEST_F(ConsumeStopped, TakesNoOtherModelsRest) {
  stop();
  const std::string rest = read_file(gguf + ".moving");
  std::string other = rest;
  for (size_t i = other.size() / 2; i < other.size(); ++i) other[i] ^= 1;
  fs::rename(gguf + ".moving", dir.path("kept"));
  dir.write("m.gguf.moving", other);
  const Finished run = consume(gguf, plan);
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("is not the rest of the model"));
  EXPECT_TRUE(read_file(gguf + ".moving") == other);
  fs::rename(dir.path("kept"), gguf + ".moving");
  expect_continued();
}

}  // namespace
}  // namespace ktx::testing
