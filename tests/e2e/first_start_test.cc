// ktx-run MODEL.gguf: compiled once into the cache of plans, which stays whole whatever is killed.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "lib/input/gguf.h"
#include "tests/support/http_client.h"
#include "tests/support/run_program.h"
#include "tests/support/split_gguf.h"

namespace ktx::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
namespace fs = std::filesystem;

class FirstStart : public ::testing::Test {
 protected:
  FirstStart() { fs::copy_file(model_gguf("llama"), gguf); }

  // With a cache of its own.
  Finished run(std::vector<std::string> words, const std::string& input = "") const {
    words.insert(words.begin(), ktx_run());
    return run_program(words, input, {"KTX_CACHE=" + cache});
  }
  Finished generate(const std::string& model, std::vector<std::string> more = {}) const {
    std::vector<std::string> words = {"generate", model, "--prompt", "Tell me a story.",
                                      "--temp",   "0",   "-n",       "8"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
  json plans() const {
    const Finished list = run({"plans", "--json"});
    EXPECT_EQ(list.status, 0) << list.err;
    return json::parse(list.out)["plans"];
  }
  static int count(const std::string& text, const std::string& part) {
    int n = 0;
    for (size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++n;
    return n;
  }

  TempDir dir;
  std::string cache = dir.path("cache"), gguf = dir.path("small.gguf");
};

TEST_F(FirstStart, CompilesAndRunsAndTheSecondRunsAtOnce) {
  const std::string plan = dir.path("own.ktxplan");
  ASSERT_EQ(run_program({ktx_compile(), "-q", gguf, "-o", plan}).status, 0);
  const Finished expected = generate(plan);
  ASSERT_EQ(expected.status, 0) << expected.err;

  const Finished first = generate(gguf);
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(first.out, expected.out);
  EXPECT_THAT(first.err, HasSubstr("compiling " + gguf + " (2.07 MiB); the plan is kept"));
  EXPECT_THAT(first.err, HasSubstr("compiled in "));
  EXPECT_THAT(first.err, Not(HasSubstr("run it with")));
  const Finished second = generate(gguf);
  EXPECT_EQ(second.status, 0);
  EXPECT_EQ(second.out, expected.out);
  EXPECT_EQ(second.err, "");

  struct stat info = {};
  ASSERT_EQ(stat(cache.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  ASSERT_EQ(plans().size(), 1u);
  EXPECT_EQ(plans()[0]["name"], "small");
  EXPECT_EQ(plans()[0]["source"], gguf);
  EXPECT_EQ(plans()[0]["complete"], true);
}

// Bytes of a file that are in the page cache.
uint64_t in_memory(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY);
  struct stat info = {};
  fstat(fd, &info);
  const size_t size = static_cast<size_t>(info.st_size), pages = (size + 4095) / 4096;
  void* const data = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  std::vector<unsigned char> flags(pages);
  mincore(data, size, flags.data());
  munmap(data, size);
  close(fd);
  uint64_t bytes = 0;
  for (const unsigned char flag : flags) bytes += (flag & 1) * 4096;
  return bytes;
}

TEST_F(FirstStart, TheSecondReadsNoWeights) {
  ASSERT_EQ(generate(gguf).status, 0);
  const int fd = open(gguf.c_str(), O_RDONLY);
  ASSERT_EQ(fsync(fd), 0);
  posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  close(fd);
  if (in_memory(gguf) > 0) GTEST_SKIP() << "this file system keeps files in memory";
  ASSERT_EQ(generate(gguf).status, 0);
  // The first page, and what the system reads ahead of it.
  EXPECT_LE(in_memory(gguf), 256u << 10);
}

TEST_F(FirstStart, AMovedModelIsKnownAgainAndAChangedOneIsNot) {
  ASSERT_EQ(generate(gguf).status, 0);
  fs::create_directory(dir.path("there"));
  const std::string moved = dir.path("there/m.gguf");
  fs::rename(gguf, moved);
  EXPECT_EQ(generate(moved).err, "");
  fs::last_write_time(moved, fs::last_write_time(moved) + std::chrono::seconds(1));
  EXPECT_THAT(generate(moved).err, HasSubstr("compiling"));
  EXPECT_EQ(plans().size(), 2u);
  // A config beside it counts.
  fs::copy_file(model_dir("llama") + "/config.json", dir.path("there/config.json"));
  EXPECT_THAT(generate(moved).err, HasSubstr("compiling"));
  EXPECT_EQ(plans().size(), 3u);
}

TEST_F(FirstStart, OptionsThatChangeThePlanMakeAnother) {
  ASSERT_EQ(generate(gguf).status, 0);
  const std::string rules = source_dir() + "/rules/cpu-only.yaml";
  const std::vector<std::vector<std::string>> others = {
      {"--rules", rules}, {"--compile", "--inputs bf16"}, {"--compile", "--inputs=bf16 --ctx 64"}};
  for (const auto& words : others) {
    const Finished first = generate(gguf, words), second = generate(gguf, words);
    EXPECT_EQ(first.status, 0) << first.err;
    EXPECT_THAT(first.err, HasSubstr("compiling"));
    EXPECT_EQ(second.err, "");
    EXPECT_EQ(second.out, first.out);
  }
  EXPECT_EQ(plans().size(), 4u);
  // Threads and, where there is no GPU, contexts are no part of a plan.
  EXPECT_EQ(generate(gguf, {"-t", "1"}).err, "");
  // What is in a rule file counts, not its name.
  const std::string copy = dir.write("copy.yaml", read_file(rules));
  EXPECT_EQ(generate(gguf, {"--rules", copy}).err, "");
  std::ofstream(copy, std::ios::app) << "# changed\n";
  EXPECT_THAT(generate(gguf, {"--rules", copy}).err, HasSubstr("compiling"));
}

TEST_F(FirstStart, ShardsAreOneModel) {
  auto model = input::GgufFile::open(gguf);
  ASSERT_TRUE(model.ok());
  ASSERT_TRUE(split_gguf(*model, dir.path("s"), 3).ok());
  const Finished whole = generate(gguf), first = generate(shard_file(dir.path("s"), 1, 3));
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(first.out, whole.out);
  EXPECT_EQ(generate(shard_file(dir.path("s"), 1, 3)).err, "");
  fs::remove(shard_file(dir.path("s"), 3, 3));
  const Finished missing = generate(shard_file(dir.path("s"), 1, 3));
  EXPECT_EQ(missing.status, 1);
  EXPECT_THAT(missing.err, HasSubstr("s-00003-of-00003.gguf"));
}

TEST_F(FirstStart, EveryCommandTakesAGguf) {
  EXPECT_EQ(run({"chat", gguf, "-n", "2"}, "Hi\n").status, 0);
  EXPECT_EQ(run({"bench", gguf, "-p", "8", "-n", "2", "-r", "1"}).status, 0);
  EXPECT_EQ(run({"inspect", gguf, "--provenance"}).status, 0);
  EXPECT_EQ(run({"doctor", gguf}).status, 0);
  const std::string text = dir.write("t.txt", std::string(2000, 'a') + " story");
  EXPECT_EQ(run({"compare", gguf, gguf, "-f", text, "--ctx", "16", "--contexts", "1"}).status, 0);
  EXPECT_EQ(plans().size(), 1u);
  const Finished drafts = run({"generate", gguf, "--prompt", "Hi", "-n", "4", "--draft", gguf});
  EXPECT_EQ(drafts.status, 0) << drafts.err;
  EXPECT_EQ(plans().size(), 2u);
}

TEST_F(FirstStart, AServerHasTheNameOfTheFile) {
  ServerProcess server({gguf}, {"/usr/bin/env", "KTX_CACHE=" + cache});
  EXPECT_EQ(server.get("/v1/models").json()["data"][0]["id"], "small");
  EXPECT_EQ(plans()[0]["in_use"], true);
  const Finished refused = run({"plans", "rm", "small"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, HasSubstr("small is in use by another ktx-run"));
}

TEST_F(FirstStart, PlansAreListedAndRemoved) {
  EXPECT_THAT(run({"plans"}).err, HasSubstr("0 plans, 0 B in " + cache + "/plans"));
  EXPECT_FALSE(fs::exists(cache));  // a list makes nothing
  ASSERT_EQ(generate(gguf).status, 0);
  ASSERT_EQ(generate(gguf, {"--compile", "--inputs bf16"}).status, 0);
  const Finished list = run({"plans"});
  EXPECT_THAT(list.out, HasSubstr("just now"));
  EXPECT_THAT(list.out, HasSubstr(gguf + " (--inputs bf16)"));
  const Finished two = run({"plans", "rm", "small"});
  EXPECT_EQ(two.status, 1);
  EXPECT_THAT(two.err, HasSubstr("2 plans are called 'small'; name one: small@"));
  const std::string name = plans()[1]["name"];
  EXPECT_EQ(run({"plans", "rm", name}).status, 0);
  EXPECT_THAT(run({"plans", "rm", "smal"}).err, HasSubstr("did you mean 'small'?"));
  const Finished below = run({"plans", "--keep-below", "1k"});
  EXPECT_EQ(below.status, 0) << below.err;
  EXPECT_THAT(below.err, HasSubstr("removed small"));
  EXPECT_THAT(plans(), IsEmpty());
}

TEST_F(FirstStart, WhatCannotBeCompiledSaysWhy) {
  const Finished projector =
      generate(dir.write("mmproj.gguf", std::string("GGUF\3\0\0\0", 8) + std::string(64, '\0')));
  EXPECT_EQ(projector.status, 1);
  EXPECT_THAT(projector.err, HasSubstr("ktx-compile: error: "));
  EXPECT_THAT(projector.err, HasSubstr("mmproj.gguf: not compiled; the lines above say why"));
  const Finished rules = generate(gguf, {"--rules", dir.path("no.yaml")});
  EXPECT_EQ(rules.status, 1);
  EXPECT_THAT(rules.err, HasSubstr("no.yaml"));
  const Finished option = generate(gguf, {"--compile", "--inptus bf16"});
  EXPECT_EQ(option.status, 2);
  EXPECT_THAT(option.err, HasSubstr("did you mean '--inputs'?"));
  EXPECT_THAT(generate(gguf, {"--compile", "-o x"}).err, HasSubstr("--compile has -o"));
  EXPECT_THAT(generate(gguf, {"--compile", "'x"}).err, HasSubstr("a quote is left open"));
  EXPECT_THAT(run({"chat", dir.write("model.safetensors", "x")}).err,
              HasSubstr("is a safetensors file, and weights are read from a GGUF"));
  EXPECT_THAT(plans(), IsEmpty());
  const std::string plan = dir.path("own.ktxplan");
  ASSERT_EQ(run_program({ktx_compile(), "-q", gguf, "-o", plan}).status, 0);
  const Finished of_plan = generate(plan, {"--vram", "1GiB"});
  EXPECT_EQ(of_plan.status, 2);
  EXPECT_THAT(of_plan.err, HasSubstr("are for a GGUF"));
}

TEST_F(FirstStart, ACacheThatCannotBeUsedSaysWhatToDo) {
  const auto with = [&](const std::vector<std::string>& environment) {
    return run_program({ktx_run(), "generate", gguf, "--prompt", "Hi", "-n", "1"}, "", environment);
  };
  const Finished nowhere = with({"KTX_CACHE=/proc/nowhere/ktx"});
  EXPECT_EQ(nowhere.status, 1);
  EXPECT_THAT(nowhere.err, HasSubstr("name another folder (KTX_CACHE=FOLDER)"));
  fs::create_directory(cache);
  ASSERT_EQ(chmod(cache.c_str(), 0777), 0);
  EXPECT_THAT(with({"KTX_CACHE=" + cache}).err, HasSubstr("other users may write"));
  const Finished homeless = with({"KTX_CACHE=", "XDG_CACHE_HOME=relative", "HOME="});
  EXPECT_THAT(homeless.err, HasSubstr("HOME is not set"));
  const Finished xdg = with({"KTX_CACHE=", "XDG_CACHE_HOME=" + dir.path("xdg")});
  EXPECT_EQ(xdg.status, 0) << xdg.err;
  EXPECT_TRUE(fs::exists(dir.path("xdg/ktx/plans")));
}

TEST_F(FirstStart, AFullDiskSaysHowToMakeRoom) {
  const std::string mount = dir.path("disk");
  fs::create_directory(mount);
  const std::string script = fmt::format(
      "mount -t tmpfs -o size=1m none {0} && KTX_CACHE={0}/ktx {1} generate {2} --prompt Hi -n 1",
      mount, ktx_run(), gguf);
  const Finished run = run_program({"/bin/sh", "-c", "unshare -rm /bin/sh -c '" + script + "'"});
  if (run.err.find("unshare") != run.err.npos || run.err.find("mount:") != run.err.npos) {
    GTEST_SKIP() << "no file systems of one's own here: " << run.err;
  }
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("no space left on the device"));
  EXPECT_THAT(run.err, HasSubstr("`ktx-run plans --keep-below SIZE`"));
}

TEST_F(FirstStart, WithoutACompilerSaysWhereItWasLookedFor) {
  fs::create_directories(dir.path("bin"));
  fs::create_directories(dir.path("other"));
  const std::string alone = dir.path("bin/ktx-run");
  fs::copy_file(ktx_run(), alone);
  const auto start = [&](const std::string& path) {
    return run_program({alone, "generate", gguf, "--prompt", "Hi", "-n", "1"}, "",
                       {"KTX_CACHE=" + cache, "PATH=" + path});
  };
  const Finished none = start("/nowhere");
  EXPECT_EQ(none.status, 1);
  EXPECT_THAT(none.err, HasSubstr("ktx-compile is needed for this, and is neither in " +
                                  dir.path("bin") + " nor in a folder of PATH"));
  dir.write("other/ktx-compile", "#!/bin/sh\necho ktx-compile 0.0.7\n");
  fs::permissions(dir.path("other/ktx-compile"), fs::perms::owner_all);
  EXPECT_THAT(start(dir.path("other") + ":/bin").err, HasSubstr("is 'ktx-compile 0.0.7'"));
  fs::remove(dir.path("other/ktx-compile"));
  fs::create_symlink(ktx_compile(), dir.path("other/ktx-compile"));
  const Finished found = start("/nowhere:" + dir.path("other"));
  EXPECT_EQ(found.status, 0) << found.err;
}

TEST_F(FirstStart, TwoAtOnceCompileOnce) {
  std::string script = "export KTX_CACHE=" + cache + "\n";
  for (int i = 0; i < 4; ++i) {
    script += fmt::format("{} generate {} --prompt Hi -n 4 --temp 0 &\n", ktx_run(), gguf);
  }
  const Finished all = run_program({"/bin/sh", "-c", script + "wait\n"});
  EXPECT_EQ(count(all.err, "compiling " + gguf), 1) << all.err;
  EXPECT_EQ(count(all.err, "error"), 0) << all.err;
  EXPECT_EQ(plans().size(), 1u);
}

// A ktx-run in a process group of its own.
pid_t start(const std::vector<std::string>& words, const std::string& cache) {
  const pid_t child = fork();
  if (child != 0) return child;
  setpgid(0, 0);
  const int null = open("/dev/null", O_RDWR);
  for (const int fd : {0, 1, 2}) dup2(null, fd);
  setenv("KTX_CACHE", cache.c_str(), 1);
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(strdup(word.c_str()));
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  _exit(127);
}

TEST_F(FirstStart, AHundredKillsAndRemovalsLeaveTheCacheWhole) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const std::string other = dir.path("other.gguf");
  fs::copy_file(model_gguf("qwen2"), other);
  const std::vector<std::string> models = {gguf, other};
  const std::vector<std::vector<std::string>> options = {{}, {"--compile", "--inputs bf16"}};
  std::vector<std::string> expected;
  for (const std::string& model : models) {
    for (const auto& more : options) expected.push_back(generate(model, more).out);
  }
  for (const std::string& text : expected) ASSERT_NE(text, "");
  dir.write("cache/plans/mine.txt", "mine");

  for (int round = 0; round < 100; ++round) {
    const int which = below(4);
    const std::string& model = models[static_cast<size_t>(which / 2)];
    const auto& more = options[static_cast<size_t>(which % 2)];
    std::vector<std::string> words = {ktx_run(), "generate", model, "--prompt", "Hi", "-n", "1"};
    words.insert(words.end(), more.begin(), more.end());
    switch (below(4)) {
      case 0:
        words = {ktx_run(), "plans", "--keep-below", fmt::format("{}k", 1 + below(6000))};
        break;
      case 1:  // everything goes
        words = {ktx_run(), "plans", "--keep-below", "1"};
        break;
      default:
        break;
    }
    const pid_t child = start(words, cache);
    // The compiler goes with it, or is left behind.
    const pid_t killed = below(2) == 0 ? -child : child;
    std::this_thread::sleep_for(std::chrono::microseconds(below(150'000)));
    if (below(5) > 0) kill(killed, SIGKILL);
    waitpid(child, nullptr, 0);
    if (below(10) == 0) {  // whatever the last ones have left, an answer is right
      const Finished answer = generate(model, more);
      ASSERT_EQ(answer.status, 0) << answer.err;
      ASSERT_EQ(answer.out, expected[static_cast<size_t>(which)]);
    }
  }
  for (size_t which = 0; which < expected.size(); ++which) {
    const Finished answer = generate(models[which / 2], options[which % 2]);
    EXPECT_EQ(answer.status, 0) << answer.err;
    EXPECT_EQ(answer.out, expected[which]);
  }
  // Nothing half is left of any of them, and what is no plan is untouched.
  EXPECT_EQ(plans().size(), 4u);
  for (const auto& plan : plans()) EXPECT_EQ(plan["complete"], true) << plan;
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(cache)) {
    if (entry.is_regular_file()) ++files;
    EXPECT_FALSE(entry.path().string().ends_with(".work")) << entry.path();
  }
  EXPECT_EQ(files, 4 * 3 + 1);
  EXPECT_EQ(read_file(cache + "/plans/mine.txt"), "mine");
  EXPECT_EQ(run({"plans", "--keep-below", "1"}).status, 0);
  EXPECT_THAT(plans(), IsEmpty());
  EXPECT_EQ(read_file(cache + "/plans/mine.txt"), "mine");
}

}  // namespace
}  // namespace ktx::testing
