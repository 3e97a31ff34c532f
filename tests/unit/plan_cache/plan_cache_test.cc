#include "lib/plan_cache/plan_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <utime.h>

#include <atomic>
#include <filesystem>
#include <set>
#include <thread>

#include "lib/plan_cache/cache_folder.h"
#include "lib/plan_cache/model_files.h"
#include "tests/support/temp_dir.h"

namespace ktx::plan_cache {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::read_file;
using testing::TempDir;
namespace fs = std::filesystem;

class Plans : public ::testing::Test {
 protected:
  WantedPlan wanted(const std::string& name, const std::string& recipe = "") {
    const std::string model = dir.path(name + ".gguf");
    if (!fs::exists(model)) dir.write(name + ".gguf", "GGUF of " + name);
    return {{model}, name, "1.0", recipe, ""};
  }
  MakePlan writer(const std::string& text = "KTXPLAN") {
    return [this, text](const std::string& path, int) -> Status {
      ++made;
      const std::string work = path + ".work";
      std::ofstream(work) << text;
      fs::rename(work, path);
      return {};
    };
  }
  Result<KeptPlan> get(const WantedPlan& plan) { return cache.get(plan, writer(), tell); }
  void used_at(const std::string& name, time_t time) {
    for (const CachedPlan& plan : cache.list()) {
      const utimbuf times = {time, time};
      const std::string lock = cache.folder() + "/" + plan.id + "/lock";
      if (plan.name == name) {
        ASSERT_EQ(utime(lock.c_str(), &times), 0);
      }
    }
  }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const CachedPlan& plan : cache.list()) out.push_back(plan.name);
    return out;
  }

  TempDir dir;
  PlanCache cache{dir.path("plans")};
  std::atomic<int> made = 0;
  std::vector<std::string> told;
  std::function<void(const std::string&)> tell = [this](const std::string& text) {
    told.push_back(text);
  };
};

TEST_F(Plans, AreMadeOnce) {
  const auto first = get(wanted("a"));
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_EQ(read_file(first->path()), "KTXPLAN");
  EXPECT_EQ(fs::path(first->path()).filename(), "a.ktxplan");
  const auto second = get(wanted("a"));
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->path(), first->path());
  EXPECT_EQ(made, 1);
  EXPECT_THAT(told, IsEmpty());
}

TEST_F(Plans, OfAnotherModelRecipeOrCompilerAreOthers) {
  ASSERT_TRUE(get(wanted("a")).ok());
  ASSERT_TRUE(get(wanted("b")).ok());
  ASSERT_TRUE(get(wanted("a", "--vram 1")).ok());
  EXPECT_EQ(made, 3);
  dir.write("a.gguf", "GGUF of another a");
  ASSERT_TRUE(get(wanted("a")).ok());
  EXPECT_EQ(made, 4);
  EXPECT_EQ(cache.list().size(), 4u);
}

TEST_F(Plans, OfAnOlderCompilerGoWhenTheirNewOnesAreThere) {
  const auto used = get(wanted("b"));
  ASSERT_TRUE(used.ok());
  ASSERT_TRUE(get(wanted("a")).ok());
  for (const char* name : {"a", "b"}) {
    WantedPlan newer = wanted(name);
    newer.compiler = "2.0";
    ASSERT_TRUE(get(newer).ok());
  }
  EXPECT_EQ(made, 4);
  EXPECT_EQ(cache.list().size(), 3u);  // the old b is in use
  EXPECT_TRUE(fs::exists(used->path()));
}

TEST_F(Plans, FollowTheirModelToOtherPlaces) {
  ASSERT_TRUE(get(wanted("a")).ok());
  fs::create_directory(dir.path("there"));
  fs::rename(dir.path("a.gguf"), dir.path("there/renamed.gguf"));
  WantedPlan moved = wanted("a");
  moved.files = {dir.path("there/renamed.gguf")};
  moved.name = "renamed";
  ASSERT_TRUE(get(moved).ok());
  EXPECT_EQ(made, 1);
  EXPECT_EQ(cache.list()[0].seen.size(), 2u);
}

TEST_F(Plans, ThatCouldNotBeMadeLeaveNothing) {
  const auto failed = cache.get(
      wanted("a"), [](const std::string&, int) -> Status { return Error{"no such op"}; }, tell);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().message, "no such op");
  EXPECT_THAT(names(), IsEmpty());
  EXPECT_TRUE(fs::is_empty(cache.folder()));
  // What another start can continue from stays, and is no plan.
  const auto stopped = cache.get(
      wanted("a"),
      [](const std::string& path, int) -> Status {
        std::ofstream(path + ".work") << "half";
        return Error{"stopped"};
      },
      tell);
  ASSERT_FALSE(stopped.ok());
  ASSERT_THAT(names(), ElementsAre("a"));
  EXPECT_FALSE(cache.list()[0].complete);
  ASSERT_TRUE(get(wanted("a")).ok());
  EXPECT_TRUE(cache.list()[0].complete);
}

TEST_F(Plans, OfAModelThatChangesMeanwhileAreRefused) {
  const auto plan = cache.get(
      wanted("a"),
      [&](const std::string& path, int) -> Status {
        std::ofstream(path) << "KTXPLAN";
        dir.write("a.gguf", "another one by now");
        return {};
      },
      tell);
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(plan.error().message, HasSubstr("changed while it was compiled"));
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(Plans, AreMadeByOneOfManyAtOnce) {
  const WantedPlan plan = wanted("a");
  const MakePlan slow = [&](const std::string& path, int lock) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    return writer()(path, lock);
  };
  std::atomic<int> right = 0, waited = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const auto got = cache.get(plan, slow, [&](const std::string& text) {
        EXPECT_THAT(text, HasSubstr("another ktx-run compiles a"));
        ++waited;
      });
      if (got && read_file(got->path()) == "KTXPLAN") ++right;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 8);
  EXPECT_EQ(made, 1);
  EXPECT_EQ(waited, 7);
}

TEST_F(Plans, InUseAreNotRemoved) {
  {
    const auto used = get(wanted("a"));
    ASSERT_TRUE(used.ok());
    EXPECT_TRUE(cache.in_use(cache.list()[0]));
    EXPECT_FALSE(*cache.remove(cache.list()[0]));
    EXPECT_THAT(*cache.keep_below(0), IsEmpty());
    EXPECT_TRUE(fs::exists(used->path()));
  }
  EXPECT_FALSE(cache.in_use(cache.list()[0]));
  EXPECT_TRUE(*cache.remove(cache.list()[0]));
  EXPECT_TRUE(fs::is_empty(cache.folder()));
}

TEST_F(Plans, ThatWereNotUsedForLongestGoFirst) {
  for (const char* name : {"a", "b", "c", "d"}) {
    ASSERT_TRUE(cache.get(wanted(name), writer(std::string(100 << 10, 'x')), tell).ok());
  }
  used_at("a", 3000);
  used_at("b", 1000);
  used_at("c", 4000);
  used_at("d", 2000);
  EXPECT_THAT(names(), ElementsAre("c", "a", "d", "b"));
  uint64_t sum = 0;
  for (const CachedPlan& plan : cache.list()) sum += plan.bytes;
  EXPECT_THAT(*cache.keep_below(sum), IsEmpty());
  const auto removed = cache.keep_below(sum / 2 + 1);
  ASSERT_TRUE(removed.ok());
  ASSERT_EQ(removed->size(), 2u);
  EXPECT_EQ((*removed)[0].name, "b");
  EXPECT_EQ((*removed)[1].name, "d");
  EXPECT_THAT(names(), ElementsAre("c", "a"));
}

TEST_F(Plans, ModelsOfHubsGoWithThem) {
  ASSERT_TRUE(get(wanted("a")).ok());
  ASSERT_TRUE(get(wanted("b")).ok());
  used_at("a", 1000);
  used_at("b", 3000);
  const auto model = [&](const std::string& name, time_t time) {
    const std::string path = dir.write("models/o/n/" + name, std::string(64 << 10, 'x'));
    const utimbuf times = {time, time};
    EXPECT_EQ(utime(path.c_str(), &times), 0);
  };
  model("old.gguf", 500);
  model("shards-00001-of-00002.gguf", 2000);
  model("shards-00002-of-00002.gguf", 2000);
  model("broken.gguf.work", 4000);
  model("mine.bin", 1);
  const auto names_of = [&](uint64_t bytes) {
    const auto removed = cache.keep_below(bytes);
    EXPECT_TRUE(removed.ok());
    std::vector<std::string> out;
    for (const Removed& one : *removed) out.push_back(one.name);
    return out;
  };
  EXPECT_THAT(names_of(1 << 20), IsEmpty());
  EXPECT_THAT(names_of(1), ElementsAre("old", "a", "shards", "b", "broken"));
  EXPECT_TRUE(fs::exists(dir.path("models/o/n/mine.bin")));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path("models/o/n")), {}), 1);
}

TEST_F(Plans, ThatHaveTheirModelAreFoundByTheNameAtTheHub) {
  WantedPlan plan = wanted("a", "r");
  plan.hub = "hf:o/a";
  plan.whole = true;
  plan.sha256 = "1f";
  const auto recipe = [](const std::string&) { return std::string("r"); };
  const MakePlan moves = [&](const std::string& path, int lock) -> Status {
    fs::remove(plan.files[0]);
    return writer()(path, lock);
  };
  ASSERT_TRUE(cache.get(plan, moves, tell).ok());
  const auto found = cache.find_of_model({"hf:o/a", ""}, "1.0", recipe);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->moved);
  ASSERT_TRUE(cache.get(*found, writer(), tell).ok());
  EXPECT_EQ(made, 1);
  EXPECT_FALSE(cache.find_of_model({"hf:o/b", ""}, "1.0", recipe));
  EXPECT_FALSE(cache.find_of_model({"hf:o/a", ""}, "2.0", recipe));
  EXPECT_FALSE(cache.find_of_model({"hf:o/a", ""}, "1.0", [](auto&) { return std::string("q"); }));
  // The SHA-256 decides where it is known: the name may stand for other files by now, and the files
  // have other names.
  for (const char* name : {"hf:o/a", "hf:o/b"}) {
    EXPECT_TRUE(cache.find_of_model({name, "1f"}, "1.0", recipe));
    EXPECT_TRUE(cache.find_moved({name, "1f"}));
    EXPECT_FALSE(cache.find_of_model({name, "2f"}, "1.0", recipe));
    EXPECT_FALSE(cache.find_moved({name, "2f"}));
  }
  // A plan of another version is made from the plan that has the model.
  const auto old = cache.find_moved({"hf:o/a", ""});
  ASSERT_TRUE(old);
  // One that has a part of it stands for nothing, and removes no plan that does.
  ASSERT_TRUE(cache.get(renewed(*old, "1.0", "merged", "", false), writer(), tell).ok());
  ASSERT_TRUE(cache.get(renewed(*old, "1.1", "r", "", false), writer(), tell).ok());
  ASSERT_EQ(cache.list().size(), 3u);
  EXPECT_EQ(cache.find_moved({"hf:o/a", ""})->id, old->id);
  for (const CachedPlan& one : cache.list()) {
    if (one.id == old->id) continue;
    ASSERT_TRUE(*cache.remove(one));
  }
  made = 1;
  ASSERT_TRUE(cache.get(renewed(*old, "2.0", "r", "", true), writer(), tell).ok());
  EXPECT_EQ(made, 2);
  EXPECT_EQ(cache.list().size(), 1u) << "the older one goes";
  EXPECT_TRUE(cache.find_of_model({"hf:o/a", ""}, "2.0", recipe));
  // Where the file is there, it counts.
  dir.write("a.gguf", "GGUF of a");
  EXPECT_FALSE(cache.find_of_model({"hf:o/a", ""}, "2.0", recipe));
  EXPECT_FALSE(cache.find_moved({"hf:o/a", ""}));
}

// Sizes, times and sampled pages can be made those of another model.
TEST_F(Plans, OfEqualKeysAndOtherSha256AreOthers) {
  const auto of = [&](const std::string& name, const std::string& sha256) {
    WantedPlan plan = wanted(name, "r");
    dir.write(name + ".gguf", "GGUF of one content");
    const utimbuf times = {1000, 1000};
    EXPECT_EQ(utime(plan.files[0].c_str(), &times), 0);
    plan.hub = "hf:o/" + name;
    plan.whole = true;
    plan.sha256 = sha256;
    return plan;
  };
  const WantedPlan file = of("file", ""), other = of("other", "1f"), mine = of("mine", "2f");
  ASSERT_TRUE(get(file).ok());
  EXPECT_EQ(*content_key(file.files), *content_key(mine.files));
  std::set<std::string> paths;
  for (int i = 0; i < 2; ++i) {
    for (const WantedPlan& plan : {other, mine}) {
      const auto kept = get(plan);
      ASSERT_TRUE(kept.ok()) << kept.error().message;
      paths.insert(kept->path());
    }
  }
  EXPECT_EQ(made, 3);
  EXPECT_EQ(paths.size(), 2u);
  // Those of the next version are apart as well, and the older ones are the only copies by now.
  for (const WantedPlan& plan : {other, mine}) fs::remove(plan.files[0]);
  const auto old = cache.find_moved({"", "2f"});
  ASSERT_TRUE(old);
  ASSERT_TRUE(cache.get(renewed(*old, "2.0", "r", "", true), writer(), tell).ok());
  EXPECT_EQ(cache.find_moved({"", "2f"})->compiler, "2.0");
  const auto others = cache.find_moved({"", "1f"});
  ASSERT_TRUE(others);
  EXPECT_EQ(others->compiler, "1.0");
  ASSERT_TRUE(cache.get(renewed(*others, "2.0", "r", "", true), writer(), tell).ok());
  EXPECT_EQ(cache.find_moved({"", "1f"})->hub, "hf:o/other");
  EXPECT_EQ(cache.find_moved({"", "2f"})->hub, "hf:o/mine");
}

TEST_F(Plans, WhoseModelIsBeingMovedStay) {
  WantedPlan plan = wanted("a", "r");
  plan.hub = "hf:o/a";
  plan.whole = true;
  const auto recipe = [](const std::string&) { return std::string("r"); };
  const MakePlan breaks = [&](const std::string& path, int) -> Status {
    std::ofstream(path + ".moving") << "half";
    fs::rename(plan.files[0], plan.files[0] + ".moving");
    return Error{"no more"};
  };
  EXPECT_FALSE(cache.get(plan, breaks, tell).ok());
  const auto begun = cache.find_of_model({"hf:o/a", ""}, "1.0", recipe);
  ASSERT_TRUE(begun);
  EXPECT_TRUE(begun->moving);
  EXPECT_FALSE(begun->complete);
  EXPECT_FALSE(cache.find_moved({"hf:o/a", ""}));
  EXPECT_TRUE(cache.find_moving(plan.files[0]));
  EXPECT_FALSE(cache.find_moving(dir.path("b.gguf")));
  // Without the rest of the model, half a plan is nothing to go on with; a whole one is.
  fs::remove(plan.files[0] + ".moving");
  EXPECT_FALSE(cache.find_of_model({"hf:o/a", ""}, "1.0", recipe));
  dir.write("plans/" + begun->id + "/a.ktxplan.moving", "KTXPLAN");
  EXPECT_TRUE(cache.find_of_model({"hf:o/a", ""}, "1.0", recipe));
  ASSERT_TRUE(cache.get(*begun, writer(), tell).ok());
  EXPECT_TRUE(cache.list()[0].complete);
}

// The engine's note of hot experts (lib/runtime/experts/expert_note.h), what a killed write left,
// and the GGUF that a killed compiler has rebuilt.
TEST_F(Plans, GoWithWhatStandsBesideThem) {
  ASSERT_TRUE(get(wanted("a")).ok());
  const std::string folder = cache.folder() + "/" + cache.list()[0].id;
  const std::string plan = folder + "/a.ktxplan";
  fs::create_directory(plan + ".gguf.work");
  fs::create_directory(folder + "/empty.ktxplan.gguf.work");  // killed before its first file
  for (const char* end : {".experts", ".experts.work", ".gguf.work/model.gguf"}) {
    std::ofstream(plan + end) << "{}";
  }
  const uint64_t bytes = cache.list()[0].bytes;
  EXPECT_TRUE(cache.list()[0].complete);
  EXPECT_TRUE(*cache.remove(cache.list()[0]));
  EXPECT_FALSE(fs::exists(folder));
  EXPECT_GE(bytes, 4u * 512) << "all of it counts";
}

TEST_F(Plans, FilesOfOthersStay) {
  ASSERT_TRUE(get(wanted("a")).ok());
  const std::string folder = cache.folder() + "/" + cache.list()[0].id;
  dir.write("plans/notes.txt", "mine");
  dir.write("plans/models/x.ktxplan", "mine");
  dir.write(fs::relative(folder, dir.path()).string() + "/notes.txt", "mine");
  dir.write("outside.ktxplan", "mine");
  fs::create_symlink(dir.path("outside.ktxplan"), folder + "/link.ktxplan");
  fs::create_directory_symlink(dir.path("plans/models"),
                               cache.folder() + "/0123456789abcdef0123456789abcdef");
  EXPECT_TRUE(*cache.remove(cache.list()[0]));
  EXPECT_THAT(*cache.keep_below(0), IsEmpty());
  for (const std::string& path :
       {cache.folder() + "/notes.txt", cache.folder() + "/models/x.ktxplan", folder + "/notes.txt",
        folder + "/link.ktxplan", dir.path("outside.ktxplan")}) {
    EXPECT_TRUE(fs::exists(path)) << path;
  }
  EXPECT_FALSE(fs::exists(folder + "/a.ktxplan"));
}

TEST_F(Plans, WithADamagedEntryAreMadeAgain) {
  ASSERT_TRUE(get(wanted("a")).ok());
  const std::string id = cache.list()[0].id;
  for (const char* text :
       {"", "{", "[]", "{\"name\": 7}", "{\"name\": \"../a\"}", "{\"name\": \"a\", \"seen\": 3}"}) {
    dir.write("plans/" + id + "/entry.json", text);
    const auto again = get(wanted("a"));
    ASSERT_TRUE(again.ok()) << text << again.error().message;
    EXPECT_EQ(read_file(again->path()), "KTXPLAN");
    EXPECT_EQ(cache.list().size(), 1u);
  }
}

TEST(CacheFolder, IsPrivate) {
  const TempDir dir;
  const std::string folder = dir.path("a/b/ktx");
  ASSERT_TRUE(make_private_folder(folder).ok());
  struct stat info = {};
  ASSERT_EQ(stat(folder.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  EXPECT_TRUE(make_private_folder(folder).ok());
  ASSERT_EQ(chmod(folder.c_str(), 0770), 0);
  const Status open = make_private_folder(folder);
  ASSERT_FALSE(open.ok());
  EXPECT_THAT(open.error().message, HasSubstr("other users may write"));
  EXPECT_THAT(open.error().message, HasSubstr("chmod 700"));
  const Status file = make_private_folder(dir.write("file", "x"));
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(file.error().message,
              HasSubstr("a file stands where the folder of compiled plans belongs"));
  const Status nowhere = make_private_folder("/proc/ktx/cache");
  ASSERT_FALSE(nowhere.ok());
  EXPECT_THAT(nowhere.error().message, HasSubstr("KTX_CACHE=FOLDER"));
}

}  // namespace
}  // namespace ktx::plan_cache
