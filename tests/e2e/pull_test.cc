// ktx-pull and hf:OWNER/NAME, against a hub on this machine (hub/fake_hub.py): what is fetched is
// what the hub has listed, whatever happens on the way, and no other host sees the token.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "lib/input/gguf.h"
#include "tests/support/fake_hub.h"
#include "tests/support/golden.h"
#include "tests/support/run_program.h"
#include "tests/support/split_gguf.h"
#include "tools/hub_model.h"
#include "tools/pulled_models.h"

namespace ktx::testing {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
namespace fs = std::filesystem;

// A hub's answer with files of these names.
std::string listed(const std::vector<std::string>& names) {
  json answer = {{"sha", "0123456789abcdef0123456789abcdef01234567"}, {"siblings", json::array()}};
  for (const std::string& name : names) {
    answer["siblings"].push_back(
        {{"rfilename", name}, {"lfs", {{"size", 1 << 20}, {"sha256", std::string(64, 'a')}}}});
  }
  return answer.dump();
}

class Pull : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(program)) GTEST_SKIP() << "there is no ktx-pull in this build (libcurl)";
    if (run_program({"/bin/sh", "-c", "command -v python3"}).status != 0) {
      GTEST_SKIP() << "no python3";
    }
    fs::create_directories(hub + "/o/small-GGUF");
    fs::copy_file(model_gguf("llama"), hub + "/o/small-GGUF/small-Q4_K_M.gguf");
    fs::copy_file(model_gguf("qwen2"), hub + "/o/small-GGUF/small-Q8_0.gguf");
    dir.write("hub/o/small-GGUF/README.md", "a model");
    dir.write("hub/o/small-GGUF/mmproj-small-Q4_K_M.gguf", "GGUF");
    std::string weights("GGUF");
    std::mt19937 random(7);
    while (weights.size() < (6u << 20)) weights += static_cast<char>(random());
    dir.write("hub/o/large-GGUF/large-Q4_K_M.gguf", weights);
  }
  std::vector<std::string> environment(const FakeHub& from, const std::string& token) const {
    return {"KTX_CACHE=" + cache, "HF_ENDPOINT=" + from.url() + "/", "HF_TOKEN=" + token,
            "no_proxy=127.0.0.1", "http_proxy="};
  }
  Finished pull(const FakeHub& from, std::vector<std::string> words,
                const std::string& token = "") const {
    words.insert(words.begin(), program);
    return run_program(words, "", environment(from, token));
  }
  static std::string place(const Finished& run) { return run.out.substr(0, run.out.find('\n')); }
  // The bytes that were pulled.
  void expect_pulled(const Finished& run, const std::string& path) const {
    ASSERT_EQ(run.status, 0) << run.err;
    EXPECT_TRUE(read_file(place(run)) == read_file(hub + "/" + path)) << place(run);
    EXPECT_FALSE(fs::exists(place(run) + ".work"));
  }
  static constexpr const char* kLarge = "o/large-GGUF/large-Q4_K_M.gguf";

  TempDir dir;
  std::string program = binary_dir() + "/ktx-pull", cache = dir.path("cache"),
              hub = dir.path("hub");
};

TEST_F(Pull, FetchesWhatTheHubHasAndAsksNoMoreThen) {
  const FakeHub from(hub);
  const Finished first = pull(from, {"hf:o/small-GGUF"});
  expect_pulled(first, "o/small-GGUF/small-Q4_K_M.gguf");
  EXPECT_EQ(place(first), cache + "/models/o/small-GGUF/small-Q4_K_M.gguf");
  EXPECT_THAT(first.err, HasSubstr("hf:o/small-GGUF at 0123456789: 1 file, 2.07 MiB"));
  EXPECT_THAT(first.err, HasSubstr("small-Q4_K_M.gguf"));
  const size_t asked = from.requests().size();
  expect_pulled(pull(from, {"hf:o/small-GGUF"}), "o/small-GGUF/small-Q4_K_M.gguf");
  EXPECT_EQ(from.requests().size(), asked);
  // Asked, and nothing has changed.
  const Finished update = pull(from, {"hf:o/small-GGUF", "--update"});
  expect_pulled(update, "o/small-GGUF/small-Q4_K_M.gguf");
  EXPECT_EQ(from.requests().size(), asked + 1);
  fs::copy_file(hub + "/o/small-GGUF/small-Q8_0.gguf", hub + "/o/small-GGUF/small-Q4_K_M.gguf",
                fs::copy_options::overwrite_existing);
  expect_pulled(pull(from, {"hf:o/small-GGUF", "--update"}), "o/small-GGUF/small-Q4_K_M.gguf");
  struct stat info = {};
  ASSERT_EQ(stat(cache.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(Pull, HelpReadsAsItStandsInTheGoldenFile) {
  const Finished run = run_program({program, "--help"});
  EXPECT_EQ(run.status, 0);
  expect_golden("help/ktx-pull.txt", run.out);
}

TEST_F(Pull, NoOtherProgramHasANetworkLibrary) {
  for (const std::string& other : {ktx_run(), ktx_compile()}) {
    const Finished libraries = run_program({"/usr/bin/ldd", other});
    EXPECT_EQ(libraries.status, 0) << libraries.err;
    EXPECT_THAT(libraries.out, Not(HasSubstr("libcurl")));
  }
}

TEST_F(Pull, ListsWithoutFetching) {
  const FakeHub from(hub);
  const Finished list = pull(from, {"hf:o/small-GGUF", "--list"});
  EXPECT_EQ(list.status, 0);
  EXPECT_THAT(list.out, HasSubstr("small-Q4_K_M.gguf"));
  EXPECT_THAT(list.out, HasSubstr("small-Q8_0.gguf"));
  EXPECT_THAT(list.out, Not(HasSubstr("mmproj")));
  EXPECT_EQ(from.requests().size(), 1u);
}

TEST_F(Pull, ChoosesByTheEndOfTheName) {
  const FakeHub from(hub);
  expect_pulled(pull(from, {"hf:o/small-GGUF:q8_0"}), "o/small-GGUF/small-Q8_0.gguf");
  const Finished none = pull(from, {"hf:o/small-GGUF:Q5_K_M"});
  EXPECT_EQ(none.status, 1);
  EXPECT_THAT(none.err,
              HasSubstr("has no GGUF of Q5_K_M; it has small-Q4_K_M (2.07 MiB), small-Q8"));
  EXPECT_THAT(pull(from, {"hf:o/small-GGUF:4_K_M"}).err, HasSubstr("has no GGUF of 4_K_M"));
  // An address of one file is that of no other one.
  fs::copy_file(model_gguf("llama"), hub + "/o/small-GGUF/small-UD-Q8_0.gguf");
  const std::string page = "https://huggingface.co/o/small-GGUF/blob/main/small-";
  expect_pulled(pull(from, {page + "Q8_0.gguf", "--update"}), "o/small-GGUF/small-Q8_0.gguf");
  expect_pulled(pull(from, {page + "UD-Q8_0.gguf"}), "o/small-GGUF/small-UD-Q8_0.gguf");
  fs::rename(hub + "/o/small-GGUF/small-Q8_0.gguf", hub + "/o/small-GGUF/small-XL-Q8_0.gguf");
  EXPECT_THAT(pull(from, {"hf:o/small-GGUF:q8_0", "--update"}).err,
              HasSubstr("has several GGUFs of Q8_0; name one"));
  dir.write("hub/o/safe/model.safetensors", "x");
  EXPECT_THAT(pull(from, {"hf:o/safe"}).err, HasSubstr("has no GGUF, and weights are read from"));
  EXPECT_THAT(pull(from, {"hf:o/none"}).err, HasSubstr("no such model"));
  for (const char* wrong :
       {"hf:o", "hf:o/../x", "hf:o/n:../q", "hf:/n", "o/n", "hf:o/n/m", "hf:-o/n", "hf:o/n@a/b"}) {
    const Finished run = pull(from, {wrong});
    EXPECT_EQ(run.status, 2) << wrong << run.err;
    EXPECT_THAT(run.err, HasSubstr("is no model of a hub; write hf:OWNER/NAME"));
  }
}

TEST(HubModels, AreOneHoweverTheyAreWritten) {
  const std::pair<const char*, const char*> cases[] = {
      {"hf:o/n", "hf:o/n"},
      {"hf:o/n@main", "hf:o/n"},
      {"hf:o/n:q4_k_m", "hf:o/n:Q4_K_M"},
      {"hf:o/n@v1:Q8_0", "hf:o/n@v1:Q8_0"},
      {"hf.co/o/n:Q8_0", "hf:o/n:Q8_0"},
      {"https://huggingface.co/o/n", "hf:o/n"},
      {"https://huggingface.co/o/n/", "hf:o/n"},
      {"https://huggingface.co/o/n/tree/main", "hf:o/n"},
      {"https://huggingface.co/o/n-GGUF/blob/main/n-Q8_0.gguf", "hf:o/n-GGUF:Q8_0"},
      {"https://huggingface.co/o/n-GGUF/resolve/v1/Q8_0/n-Q8_0-00001-of-00002.gguf?download=true",
       "hf:o/n-GGUF@v1:Q8_0"},
      {"https://hf.co/o/n/blob/main/other-q8_0.gguf", "hf:o/n:OTHER-Q8_0"},
  };
  for (const auto& [word, text] : cases) {
    EXPECT_TRUE(tools::is_hub_model(word)) << word;
    const auto model = tools::parse_hub_model(word);
    ASSERT_TRUE(model.ok()) << model.error().message;
    EXPECT_EQ(model->text(), text) << word;
  }
  for (const char* wrong :
       {"https://huggingface.co/o", "https://huggingface.co/o/n/blob/main", "https://hf.co/",
        "https://huggingface.co/o/n/blob/main/README.md", "https://huggingface.co/o/../x",
        "https://huggingface.co/o/n/settings", "https://huggingface.co@other/o/n",
        "https://other.co/o/n", "http://huggingface.co/o/n"}) {
    EXPECT_FALSE(tools::parse_hub_model(wrong).ok()) << wrong;
  }
}

TEST_F(Pull, ShardsComeTogether) {
  auto model = input::GgufFile::open(model_gguf("llama"));
  fs::create_directories(hub + "/o/split/Q4_K_M");
  ASSERT_TRUE(split_gguf(*model, hub + "/o/split/Q4_K_M/m-Q4_K_M", 3).ok());
  const FakeHub from(hub);
  const Finished run = pull(from, {"hf:o/split:Q4_K_M"});
  EXPECT_THAT(run.err, HasSubstr("3 files"));
  expect_pulled(run, "o/split/Q4_K_M/m-Q4_K_M-00001-of-00003.gguf");
  EXPECT_TRUE(input::GgufFile::open(place(run)).ok());
  fs::remove(hub + "/o/split/Q4_K_M/m-Q4_K_M-00002-of-00003.gguf");
  const Finished part = pull(from, {"hf:o/split:Q4_K_M", "--update"});
  EXPECT_EQ(part.status, 1);
  EXPECT_THAT(part.err, HasSubstr("has 2 of its 3 shards"));
}

TEST_F(Pull, ShardsThatHaveComeAreNotFetchedAgain) {
  auto model = input::GgufFile::open(model_gguf("llama"));
  fs::create_directories(hub + "/o/split");
  ASSERT_TRUE(split_gguf(*model, hub + "/o/split/m-Q4_K_M", 3).ok());
  const FakeHub slow(hub, {"--slow", "0.2"}), from(hub);
  const pid_t child = fork();
  if (child == 0) {
    for (const std::string& item : environment(slow, "")) putenv(strdup(item.c_str()));
    dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
    execl(program.c_str(), program.c_str(), "-q", "hf:o/split:Q4_K_M", nullptr);
    _exit(127);
  }
  const std::string notes = cache + "/models/o/split/pulled.json";
  await([&] {
    std::error_code missing;
    return fs::exists(notes, missing);
  });
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  ASSERT_THAT(read_file(notes), HasSubstr("\"arrived :Q4_K_M\""));
  const Finished run = pull(from, {"hf:o/split:Q4_K_M"});
  expect_pulled(run, "o/split/m-Q4_K_M-00001-of-00003.gguf");
  EXPECT_TRUE(input::GgufFile::open(place(run)).ok());
  for (const json& request : from.requests()) {
    EXPECT_THAT(request["path"].get<std::string>(), Not(HasSubstr("-00001-of-")));
  }
  EXPECT_THAT(read_file(notes), Not(HasSubstr("arrived")));
}

// Two revisions of one name at once: their shards have the same places, and often the same sizes.
TEST_F(Pull, ShardsOfTwoRevisionsAreNotTakenForOneModel) {
  setenv("KTX_CACHE", cache.c_str(), 1);
  const auto models = tools::PulledModels::open(*tools::parse_hub_model("hf:o/n:Q8_0"));
  unsetenv("KTX_CACHE");
  ASSERT_TRUE(models.ok()) << models.error().message;
  const auto revision = [&](char digit, const std::string& name) {
    auto model = *tools::parse_hub_model("hf:o/n:Q8_0");
    model.revision = name;
    std::vector<tools::HubFile> files;
    for (int i = 1; i <= 2; ++i) {
      files.push_back({fmt::format("m-0000{}-of-00002.gguf", i), 4, std::string(64, digit)});
      dir.write("cache/models/o/n/" + files.back().path, "GGUF");
    }
    return std::pair(model, files);
  };
  const auto [one, old] = revision('a', "");
  const auto [other, next] = revision('b', "next");
  ASSERT_TRUE(models->note_arrival(one, old[0], false));
  ASSERT_TRUE(models->note_arrival(other, next[0], false));  // in its place
  ASSERT_TRUE(models->note_arrival(one, old[1], false));
  ASSERT_TRUE(models->remember(one, "c", old, false));
  EXPECT_FALSE(models->has(old[0]));
  EXPECT_TRUE(models->has(next[0]));
  const Status mixed = models->check_places(old);
  ASSERT_FALSE(mixed);
  EXPECT_THAT(mixed.error().message,
              HasSubstr("m-00001-of-00002.gguf: another pull has replaced it"));
  // Fetched again.
  ASSERT_TRUE(models->note_arrival(one, old[0], false));
  EXPECT_TRUE(models->check_places(old));
  EXPECT_TRUE(models->has(old[0]));
  EXPECT_FALSE(models->has(next[0]));
}

TEST_F(Pull, PullsAtOnceLoseNoNote) {
  std::vector<std::string> names;
  for (int i = 0; i < 12; ++i) {
    names.push_back(fmt::format("hf:o/many:Q{}", i));
    dir.write(fmt::format("hub/o/many/m-Q{}.gguf", i), fmt::format("GGUF {}", i));
  }
  const FakeHub from(hub);
  std::vector<std::thread> pulls;
  for (const std::string& name : names) {
    pulls.emplace_back([&] { EXPECT_EQ(pull(from, {name}).status, 0) << name; });
  }
  for (std::thread& one : pulls) one.join();
  const size_t asked = from.requests().size();
  for (const std::string& name : names) EXPECT_EQ(pull(from, {name}).status, 0) << name;
  EXPECT_EQ(from.requests().size(), asked);
}

TEST_F(Pull, RangesComeAtTheSameTime) {
  const FakeHub from(hub, {"--slow", "0.02"});
  expect_pulled(pull(from, {"hf:o/large-GGUF", "--part", "512k", "--connections", "6"}), kLarge);
  std::set<std::string> ranges;
  for (const json& request : from.requests()) {
    if (request["host"] == "cdn") ranges.insert(request["range"].get<std::string>());
  }
  EXPECT_EQ(ranges.size(), 12u);
}

TEST_F(Pull, TheTokenGoesToTheHubAlone) {
  const FakeHub from(hub, {"--token", "hf_secret"});
  const Finished refused = pull(from, {"hf:o/large-GGUF"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, HasSubstr("refuses access (HTTP 401, HF_TOKEN is not set)"));
  const Finished run = pull(from, {"hf:o/large-GGUF", "--part", "1m"}, "hf_secret");
  expect_pulled(run, kLarge);
  EXPECT_THAT(run.err, Not(HasSubstr("hf_secret")));
  int of_cdn = 0;
  for (const json& request : from.requests()) {
    if (request["host"] != "cdn") continue;
    ++of_cdn;
    EXPECT_TRUE(request["token"].is_null()) << request;
  }
  EXPECT_GE(of_cdn, 6);
  EXPECT_THAT(pull(from, {"hf:o/small-GGUF"}, "two\nlines").err, HasSubstr("HF_TOKEN has"));
}

TEST_F(Pull, CutConnectionsGoOnWhereTheyWere) {
  const FakeHub from(hub, {"--cut", "200000"});
  expect_pulled(pull(from, {"hf:o/large-GGUF", "--part", "1m"}), kLarge);
  EXPECT_GT(from.requests().size(), 30u);
}

TEST_F(Pull, ABusyOrBrokenHubIsAskedAgain) {
  const FakeHub busy(hub, {"--busy", "3"});
  expect_pulled(pull(busy, {"hf:o/large-GGUF", "--part", "1m"}), kLarge);
  fs::remove_all(cache);
  const FakeHub broken(hub, {"--broken", "2"});
  expect_pulled(pull(broken, {"hf:o/large-GGUF"}), kLarge);
  const FakeHub away(hub, {"--busy", "100", "--retry-after", "86400"});
  const Finished later = pull(away, {"hf:o/small-GGUF"});
  EXPECT_EQ(later.status, 1);
  EXPECT_THAT(later.err, HasSubstr("gives no more for now (HTTP 429"));
  EXPECT_EQ(away.requests().size(), 1u);
}

TEST_F(Pull, ExpiredAddressesAreAskedForAgain) {
  const FakeHub from(hub, {"--expire", "2"});
  expect_pulled(pull(from, {"hf:o/large-GGUF", "--part", "512k", "--connections", "2"}), kLarge);
}

TEST_F(Pull, WrongBytesAreNotKept) {
  const FakeHub from(hub, {"--wrong"});
  const Finished run = pull(from, {"hf:o/large-GGUF"});
  EXPECT_EQ(run.status, 1);
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err, HasSubstr("are not those of the hub's list (SHA-256"));
  for (const auto& entry : fs::recursive_directory_iterator(cache)) {
    EXPECT_FALSE(entry.is_regular_file()) << entry.path();
  }
}

TEST_F(Pull, HostileHubsGetAnError) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"--name", "../../../evil.gguf"}, "may not be written"},
      {{"--name", "/etc/evil.gguf"}, "may not be written"},
      {{"--name", "a/.ssh/evil.gguf"}, "may not be written"},
      {{"--name", "a\nb.gguf"}, "may not be written"},
      {{"--answer", "<html>"}, "is not a list of files"},
      {{"--answer", "[]"}, "is not a list of files"},
      {{"--answer", std::string(10000, '[')}, "is not a list of files"},
      {{"--answer", R"({"sha": "../..", "siblings": []})"}, "is not a list of files"},
      {{"--answer", R"({"sha": "0123456789abcdef0123456789abcdef01234567", "siblings": [3]})"},
       "is not a list of files"},
      {{"--answer", R"({"sha": "0123456789abcdef0123456789abcdef01234567", "siblings": [
          {"rfilename": "a-Q4_K_M.gguf", "lfs": {"size": 18446744073709551615, "sha256": "x"}}]})"},
       "gives no size and SHA-256"},
      {{"--answer", listed({"m-Q4_K_M.gguf", "m-Q4_K_M.gguf"})}, "lists m-Q4_K_M.gguf twice"},
      {{"--answer", listed({"m-Q4_K_M-00001-of-00002.gguf", "m-Q4_K_M-00002-of-00003.gguf"})},
       "files of this name that are not the shards of one model"},
      {{"--answer", listed({"m-Q4_K_M-00001-of-00002.gguf", "m-Q4_K_M.gguf"})},
       "files of this name that are not the shards of one model"},
      {{"--answer", listed({"m-Q4_K_M-00002-of-00001.gguf"})},
       "files of this name that are not the shards of one model"},
      {{"--loop"}, "redirected too often"},
      {{"--refer", "file:///etc/passwd"}, "is not followed"},
      {{"--size", "7"}, "it may have been changed"},
      {{"--endless", "headers"}, "cannot reach"},
      {{"--endless", "page"}, "has no such model, revision or file (HTTP 404)"},
      {{"--endless", "list"}, "the hub's answer has more than 64"},
      // A little, again and again, is no progress.
      {{"--cut", "1000"}, "the connection was cut"},
      {{"--no-ranges"}, "gives no ranges of files"},
  };
  for (const auto& [options, says] : cases) {
    const FakeHub from(hub, options);
    const Finished run = pull(from, {"hf:o/large-GGUF", "--part", "1m"});
    EXPECT_EQ(run.status, 1) << options[0] << run.err;
    EXPECT_EQ(run.out, "");
    EXPECT_THAT(run.err, HasSubstr(says));
    EXPECT_EQ(run.err.find('\x1b'), run.err.npos);
    EXPECT_FALSE(fs::exists(dir.path("evil.gguf")));
  }
  const Finished endpoint =
      run_program({program, "hf:o/small-GGUF"}, "", {"KTX_CACHE=" + cache, "HF_ENDPOINT=ftp://x"});
  EXPECT_THAT(endpoint.err, HasSubstr("HF_ENDPOINT is 'ftp://x'"));
  const Finished nowhere =
      run_program({program, "hf:o/small-GGUF"}, "",
                  {"KTX_CACHE=" + cache, "HF_ENDPOINT=https://hub.invalid", "https_proxy="});
  EXPECT_EQ(nowhere.status, 1);
  EXPECT_THAT(nowhere.err, HasSubstr("cannot reach https://hub.invalid"));
}

TEST_F(Pull, GoesOnAfterKills) {
  const FakeHub from(hub, {"--slow", "0.01"});
  const std::vector<std::string> words = {
      program, "-q", "hf:o/large-GGUF", "--part", "256k", "--connections", "3"};
  const auto seed = std::random_device()();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  int kills = 0;
  for (; kills < 20; ++kills) {
    const pid_t child = fork();
    if (child == 0) {
      for (const std::string& item : environment(from, "")) putenv(strdup(item.c_str()));
      std::vector<char*> argv;
      for (const std::string& word : words) argv.push_back(strdup(word.c_str()));
      argv.push_back(nullptr);
      dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50'000 + random() % 150'000));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status)) break;
  }
  EXPECT_GT(kills, 1);
  expect_pulled(pull(from, {"hf:o/large-GGUF", "--part", "256k"}), kLarge);
  // Nothing but what was under way came twice.
  uint64_t bytes = 0;
  std::string ranges;
  for (const json& request : from.requests()) {
    if (request["host"] != "cdn") continue;
    const std::string range = request["range"].get<std::string>().substr(6);
    ranges += range + " ";
    const size_t dash = range.find('-');
    bytes += std::stoull(range.substr(dash + 1)) - std::stoull(range.substr(0, dash)) + 1;
  }
  EXPECT_LE(bytes,
            fs::file_size(hub + "/" + kLarge) + static_cast<uint64_t>(kills + 1) * 3 * (256u << 10))
      << kills << " kills; requests: " << ranges;
}

// Killed between the last check and the rename, which a large file's way to the disk divides.
TEST_F(Pull, AWholeFileThatWasNotRenamedIsNotFetchedAgain) {
  const FakeHub from(hub);
  const Finished first = pull(from, {"hf:o/large-GGUF"});
  expect_pulled(first, kLarge);
  const size_t requests = from.requests().size();
  fs::rename(place(first), place(first) + ".work");
  expect_pulled(pull(from, {"hf:o/large-GGUF"}), kLarge);
  const std::vector<json> all = from.requests();
  for (size_t i = requests; i < all.size(); ++i) EXPECT_EQ(all[i]["host"], "hub");
  // Bytes that are not the listed ones are fetched.
  std::ofstream(place(first) + ".work") << std::string(fs::file_size(place(first)), 'x');
  fs::remove(place(first));
  expect_pulled(pull(from, {"hf:o/large-GGUF"}), kLarge);
}

// Bytes of all files on the disk.
uint64_t disk_bytes(const std::string& folder) {
  uint64_t sum = 0;
  std::error_code error;
  fs::recursive_directory_iterator at(folder, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    struct stat info = {};
    if (lstat(at->path().c_str(), &info) == 0 && S_ISREG(info.st_mode)) {
      sum += static_cast<uint64_t>(info.st_blocks) * 512;
    }
  }
  return sum;
}

std::vector<std::string> files_below(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  return names;
}

// From a name to an answer, and then the plan is all there is.
class HubStart : public Pull {
 protected:
  std::vector<std::string> words(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {ktx_run(), "generate", "hf:o/small-GGUF", "--prompt", "Hi", "-n",
                               "8", "--temp", "0"});
    return more;
  }
  Finished start(const FakeHub& from, std::vector<std::string> more = {}) const {
    return run_program(words(std::move(more)), "", environment(from, ""));
  }
  const std::string model = cache + "/models/o/small-GGUF/small-Q4_K_M.gguf";
};

TEST_F(HubStart, MovesTheModelIntoItsPlan) {
  const FakeHub from(hub, {"--slow", "0.01"});
  std::atomic<bool> done = false;
  uint64_t most = 0;
  std::thread watch([&] {
    while (!done) {
      most = std::max(most, disk_bytes(cache));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  const Finished first = start(from);
  done = true;
  watch.join();
  ASSERT_EQ(first.status, 0) << first.err;
  const uint64_t size = fs::file_size(hub + "/o/small-GGUF/small-Q4_K_M.gguf");
  EXPECT_GT(most, size);
  EXPECT_LT(most, size + size / 4);  // tables and blocks count in one as small
  EXPECT_THAT(files_below(cache),
              ElementsAre("entry.json", "lock", "lock", "pulled.json", "small-Q4_K_M.ktxplan"));
  const size_t asked = from.requests().size();
  const Finished second = start(from);
  EXPECT_EQ(second.out, first.out);
  EXPECT_EQ(second.err, "");
  // Other options are another plan, made of this one.
  const Finished other = start(from, {"--target", source_dir() + "/targets/zen4.yaml"});
  EXPECT_EQ(other.out, first.out) << other.err;
  EXPECT_THAT(other.err, HasSubstr(".ktxplan"));
  EXPECT_EQ(start(from, {"--target", source_dir() + "/targets/zen4.yaml"}).err, "");
  EXPECT_EQ(from.requests().size(), asked);
  EXPECT_THAT(run_program({ktx_run(), "plans"}, "", environment(from, "")).out,
              HasSubstr("hf:o/small-GGUF"));
  const std::string plan = json::parse(
      run_program({ktx_run(), "plans", "--json"}, "", environment(from, "")).out)["plans"][0]["id"];
  const std::string back = dir.path("back.gguf");
  ASSERT_EQ(run_program({ktx_run(), "inspect", cache + "/plans/" + plan + "/small-Q4_K_M.ktxplan",
                         "--export-gguf", back})
                .status,
            0);
  EXPECT_TRUE(read_file(back) == read_file(hub + "/o/small-GGUF/small-Q4_K_M.gguf"));
}

TEST_F(HubStart, KnowsTheModelUnderEveryName) {
  const FakeHub from(hub);
  const auto start_as = [&](const std::string& name) {
    return run_program({ktx_run(), "generate", name, "--prompt", "Hi", "-n", "8", "--temp", "0"},
                       "", environment(from, ""));
  };
  const Finished first = start(from);
  ASSERT_EQ(first.status, 0) << first.err;
  const auto from_cdn = [&] {
    const std::vector<json> all = from.requests();
    return std::ranges::count_if(all, [](const json& one) { return one["host"] == "cdn"; });
  };
  const auto fetched = from_cdn();
  for (const std::string name :
       {"hf:o/small-GGUF:Q4_K_M", "hf:o/small-GGUF:q4_k_m", "hf:o/small-GGUF@main",
        "hf.co/o/small-GGUF", "hf:O/Small-gguf", "hf:o/small-GGUF:small-Q4_K_M",
        "https://huggingface.co/o/small-GGUF/blob/main/small-Q4_K_M.gguf"}) {
    const Finished run = start_as(name);
    EXPECT_EQ(run.status, 0) << name << run.err;
    EXPECT_EQ(run.out, first.out) << name;
    EXPECT_EQ(from_cdn(), fetched) << name;
    // The hub may be asked once what the name stands for.
    const size_t asked = from.requests().size();
    EXPECT_EQ(start_as(name).err, "") << name;
    EXPECT_EQ(from.requests().size(), asked) << name;
  }
  EXPECT_THAT(files_below(cache),
              ElementsAre("entry.json", "lock", "lock", "pulled.json", "small-Q4_K_M.ktxplan"));
  // Another file of the model is another one, and a file that is wanted itself comes again.
  EXPECT_EQ(start_as("hf:o/small-GGUF:Q8_0").status, 0);
  EXPECT_GT(from_cdn(), fetched);
  expect_pulled(pull(from, {"hf:O/small-gguf:q4_k_m"}), "o/small-GGUF/small-Q4_K_M.gguf");
  // Pulled for itself under one name, it stays under all.
  const Finished kept = start(from);
  EXPECT_EQ(kept.out, first.out);
  EXPECT_EQ(kept.err, "") << "the plan is that of the same bytes";
  EXPECT_TRUE(fs::exists(model));
}

// Revisions of a file have one place in the cache.
TEST_F(HubStart, RunsNoPlanOfAnotherRevision) {
  const FakeHub from(hub);
  const Finished first = start(from);
  ASSERT_EQ(first.status, 0) << first.err;
  fs::copy_file(hub + "/o/small-GGUF/small-Q8_0.gguf", hub + "/o/small-GGUF/small-Q4_K_M.gguf",
                fs::copy_options::overwrite_existing);
  const auto start_second = [&] {
    return run_program(
        {ktx_run(), "generate", "hf:o/small-GGUF@v2", "--prompt", "Hi", "-n", "8", "--temp", "0"},
        "", environment(from, ""));
  };
  const Finished second = start_second();
  ASSERT_EQ(second.status, 0) << second.err;
  ASSERT_NE(second.out, first.out);
  EXPECT_EQ(start(from).out, first.out);
  const json plans =
      json::parse(run_program({ktx_run(), "plans", "--json"}, "", environment(from, "")).out);
  for (const json& plan : plans["plans"]) {
    if (plan["hub"] != "hf:o/small-GGUF@v2") continue;
    const std::string id = plan["id"];
    run_program({ktx_run(), "plans", "rm", id}, "", environment(from, ""));
  }
  const Finished again = start_second();
  EXPECT_EQ(again.out, second.out) << again.err;
  EXPECT_THAT(again.err, HasSubstr("compiling "));
}

TEST_F(HubStart, RunsNoPlanOfWhatTheNameStoodForBefore) {
  const FakeHub from(hub);
  const Finished first = start(from);
  ASSERT_EQ(first.status, 0) << first.err;
  fs::copy_file(hub + "/o/small-GGUF/small-Q8_0.gguf", hub + "/o/small-GGUF/small-Q4_K_M.gguf",
                fs::copy_options::overwrite_existing);
  EXPECT_EQ(start(from).out, first.out) << "what was fetched is run until it is pulled anew";
  const Finished pulled =
      run_program({ktx_run(), "pull", "hf:o/small-GGUF"}, "", environment(from, ""));
  expect_pulled(pulled, "o/small-GGUF/small-Q4_K_M.gguf");
  fs::remove(model);
  const Finished second = start(from);
  ASSERT_EQ(second.status, 0) << second.err;
  EXPECT_NE(second.out, first.out);
  EXPECT_THAT(second.err, HasSubstr("compiling "));
  EXPECT_EQ(start(from).err, "");
}

TEST_F(HubStart, LeavesAModelThatWasPulledForItself) {
  const FakeHub from(hub);
  expect_pulled(pull(from, {"hf:o/small-GGUF"}), "o/small-GGUF/small-Q4_K_M.gguf");
  const Finished first = start(from);
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_TRUE(fs::exists(model));
  EXPECT_EQ(start(from).err, "");
  // Without the GGUF the plan is found by the name.
  const size_t asked = from.requests().size();
  fs::remove(model);
  const Finished second = start(from);
  EXPECT_EQ(second.out, first.out);
  EXPECT_EQ(second.err, "");
  EXPECT_EQ(from.requests().size(), asked);
}

TEST_F(HubStart, CopiesWhatCannotBeMoved) {
  // Bytes between tensors, which no plan holds.
  std::string bytes = read_file(hub + "/o/small-GGUF/small-Q4_K_M.gguf");
  const auto gguf = input::GgufFile::open(hub + "/o/small-GGUF/small-Q4_K_M.gguf");
  ASSERT_TRUE(gguf.ok());
  bytes += "more";
  dir.write("hub/o/small-GGUF/small-Q4_K_M.gguf", bytes);
  const FakeHub from(hub);
  const Finished first = start(from);
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_TRUE(fs::exists(model));
  EXPECT_EQ(start(from).out, first.out);
}

// Starts under two names with two sets of options, pulls and removals; most of them are killed:
// with ktx-pull and ktx-compile, or those are left behind.
class HubKills : public HubStart {
 protected:
  struct Start {
    std::string name;
    std::vector<std::string> more;
  };
  const std::vector<std::string> names = {"hf:o/small-GGUF", "hf:o/small-GGUF:Q8_0"};
  const std::vector<std::vector<std::string>> options = {
      {}, {"--target", source_dir() + "/targets/zen4.yaml"}};

  std::vector<Start> starts() const {
    std::vector<Start> all;
    for (const std::string& name : names) {
      for (const auto& more : options) all.push_back({name, more});
    }
    return all;
  }
  static std::vector<std::string> line(const std::string& model,
                                       const std::vector<std::string>& more) {
    std::vector<std::string> out = {ktx_run(), "generate", model,    "--prompt", "Hi",
                                    "-n",      "8",        "--temp", "0"};
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  pid_t run_free(const FakeHub& from, const std::vector<std::string>& words) const {
    const pid_t child = fork();
    if (child != 0) return child;
    setpgid(0, 0);
    const int null = open("/dev/null", O_RDWR);
    for (const int fd : {0, 1, 2}) dup2(null, fd);
    for (const std::string& value : environment(from, "")) putenv(strdup(value.c_str()));
    std::vector<char*> argv;
    for (const std::string& word : words) argv.push_back(strdup(word.c_str()));
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  // An answer, whatever was left: programs that still run are waited for, and a move that was begun
  // with other options is finished with them, as the message says.
  Finished answer(const FakeHub& from, const Start& wanted) const {
    Finished run;
    for (int tries = 0; tries < 100; ++tries) {
      run = run_program(line(wanted.name, wanted.more), "", environment(from, ""));
      if (run.status == 0) break;
      if (run.err.find("is not finished; finish it: ktx-run chat") != run.err.npos) {
        for (const auto& more : options) {
          run_program(line(wanted.name, more), "", environment(from, ""));
        }
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      }
    }
    return run;
  }
  json list(const FakeHub& from) const {
    return json::parse(run_program({ktx_run(), "plans", "--json"}, "", environment(from, "")).out);
  }
  // What is listed as a plan is whole.
  void expect_whole_plans(const FakeHub& from) const {
    for (const json& plan : list(from)["plans"]) {
      if (plan["complete"] != true) continue;
      const std::string folder = cache + "/plans/" + plan["id"].get<std::string>();
      for (const auto& file : fs::directory_iterator(folder)) {
        if (file.path().extension() != ".ktxplan") continue;
        const Finished verified = run_program({ktx_run(), "inspect", file.path(), "--verify"});
        EXPECT_EQ(verified.status, 0) << verified.err;
      }
    }
  }
};

TEST_F(HubKills, AHundredStartsPullsAndRemovalsLeaveTheCacheWhole) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  const auto below = [&](int n) {
    return static_cast<size_t>(random() % static_cast<unsigned>(n));
  };
  const std::vector<std::string> files = {hub + "/o/small-GGUF/small-Q4_K_M.gguf",
                                          hub + "/o/small-GGUF/small-Q8_0.gguf"};
  std::vector<std::string> expected;
  for (const std::string& file : files) {
    expected.push_back(run_program(line(file, {}), "", {"KTX_CACHE=" + dir.path("other")}).out);
    ASSERT_NE(expected.back(), "");
  }
  const FakeHub from(hub);
  for (int round = 0; round < 100; ++round) {
    const size_t which = below(4);
    const Start wanted = starts()[which];
    const std::string size = below(2) == 0 ? "1" : "3m";
    std::vector<std::string> words = line(wanted.name, wanted.more);
    switch (below(8)) {
      case 0:
        words = {ktx_run(), "plans", "--keep-below", size};
        break;
      case 1:
        words = {ktx_run(), "plans", "rm", below(2) == 0 ? "small-Q4_K_M" : "small-Q8_0"};
        break;
      case 2:
        words = {ktx_run(), "pull", wanted.name};
        break;
      default:
        break;
    }
    const pid_t child = run_free(from, words);
    std::this_thread::sleep_for(std::chrono::microseconds(below(300'000)));
    if (below(5) > 0) kill(below(2) == 0 ? -child : child, SIGKILL);
    waitpid(child, nullptr, 0);
    if (below(10) == 0) {
      const Finished run = answer(from, wanted);
      ASSERT_EQ(run.status, 0) << round << run.err;
      ASSERT_EQ(run.out, expected[which / 2]) << round;
      expect_whole_plans(from);
    }
  }
  const std::vector<Start> all = starts();
  for (size_t which = 0; which < all.size(); ++which) {
    const Finished run = answer(from, all[which]);
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(run.out, expected[which / 2]);
  }
  expect_whole_plans(from);
  // Nothing half is left, and the list has all that is on the disk.
  for (const std::string& name : files_below(cache + "/plans")) {
    EXPECT_FALSE(name.ends_with(".work") || name.ends_with(".moving")) << name;
  }
  const json listed = list(from);
  EXPECT_EQ(listed["plans"].size(), 4u) << listed;
  EXPECT_EQ(listed["bytes"], disk_bytes(cache + "/plans"));
  EXPECT_EQ(
      run_program({ktx_run(), "plans", "--keep-below", "1"}, "", environment(from, "")).status, 0);
  std::vector<std::string> left = files_below(cache);
  std::erase(left, "pulled.json.work");  // a killed write of it
  EXPECT_THAT(left, ElementsAre("lock", "pulled.json"));
}

TEST_F(HubStart, ModelsCountForTheLimit) {
  const FakeHub from(hub);
  expect_pulled(pull(from, {"hf:o/small-GGUF"}), "o/small-GGUF/small-Q4_K_M.gguf");
  ASSERT_EQ(start(from).status, 0);
  const auto plans = [&](const std::vector<std::string>& more) {
    std::vector<std::string> line = {ktx_run(), "plans"};
    line.insert(line.end(), more.begin(), more.end());
    return run_program(line, "", environment(from, ""));
  };
  const json before = json::parse(plans({"--json"}).out);
  EXPECT_GE(before["pulled_bytes"], fs::file_size(model));
  const uint64_t limit = before["bytes"].get<uint64_t>() + before["pulled_bytes"].get<uint64_t>();
  EXPECT_THAT(plans({"--keep-below", fmt::format("{}", limit)}).err, Not(HasSubstr("removed")));
  EXPECT_TRUE(fs::exists(model));
  const Finished less = plans({"--keep-below", fmt::format("{}", limit - 1)});
  EXPECT_EQ(less.status, 0) << less.err;
  EXPECT_THAT(less.err, HasSubstr("removed small-Q4_K_M ("));
  EXPECT_FALSE(fs::exists(model));
  EXPECT_EQ(json::parse(plans({"--json"}).out)["plans"].size(), 1u);
  EXPECT_EQ(plans({"--keep-below", "1"}).status, 0);
  std::vector<std::string> left = files_below(cache);
  std::erase(left, "pulled.json.work");  // a killed write of it
  EXPECT_THAT(left, ElementsAre("lock", "pulled.json"));
}

TEST_F(Pull, ANameIsCompiledAndRunAsAFile) {
  const FakeHub from(hub, {"--token", "t"});
  const auto with = [&](const std::vector<std::string>& words) {
    return run_program(words, "", environment(from, "t"));
  };
  const Finished estimate = with({ktx_compile(), "--estimate", "hf:o/small-GGUF"});
  EXPECT_EQ(estimate.status, 0) << estimate.err;
  EXPECT_EQ(estimate.out, run_program({ktx_compile(), "--estimate", model_gguf("llama")}).out);
  for (const json& request : from.requests()) {
    if (request["host"] == "hub") continue;
    EXPECT_EQ(request["range"], "bytes=0-1048575");
  }
  const std::string plan = dir.path("m.ktxplan");
  const Finished compiled = with({ktx_compile(), "hf:o/small-GGUF:Q8_0", "-o", plan});
  EXPECT_EQ(compiled.status, 0) << compiled.err;
  EXPECT_EQ(run_program({ktx_run(), "inspect", plan, "--verify"}).status, 0);
  EXPECT_THAT(with({ktx_compile(), "hf:o/small-GGUF:Q8_0"}).err,
              HasSubstr("no -o given; try: ktx-compile hf:o/small-GGUF:Q8_0 -o "
                        "small-Q8_0.ktxplan"));

  const std::vector<std::string> words = {
      ktx_run(), "generate", "hf:o/small-GGUF", "--prompt", "Hi", "-n", "4", "--temp", "0"};
  const Finished first = with(words);
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_THAT(first.err, HasSubstr("compiling "));
  const size_t asked = from.requests().size();
  const Finished second = with(words);
  EXPECT_EQ(second.out, first.out);
  EXPECT_EQ(second.err, "");
  EXPECT_EQ(from.requests().size(), asked);

  const Finished pulled = with({ktx_run(), "pull", "hf:o/large-GGUF"});
  expect_pulled(pulled, kLarge);
  EXPECT_THAT(with({ktx_run(), "plans"}).err, HasSubstr("; pulled models: "));
  EXPECT_THAT(with({ktx_run(), "pull", "hf:o/small-GGUF", "--list"}).out, HasSubstr("Q8_0"));
  const Finished bare = with({ktx_run(), "chat", "o/small-GGUF:Q8_0"});
  EXPECT_EQ(bare.status, 1);
  EXPECT_THAT(bare.err,
              HasSubstr("no such file; a model of a hub is written hf:o/small-GGUF:Q8_0"));
  const Finished wrong = with({ktx_run(), "chat", "hf:o/none"});
  EXPECT_EQ(wrong.status, 1);
  EXPECT_THAT(wrong.err, HasSubstr("ktx-pull: error: hf:o/none: "));
  EXPECT_THAT(wrong.err, HasSubstr("not pulled; the lines above say why"));
}

}  // namespace
}  // namespace ktx::testing
