// ModelStore: loads once for all who wait, never unloads a model in use, makes room for others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "lib/server/models/model_store.h"
#include "lib/server/models/requested_model.h"
#include "tests/support/run_program.h"

namespace ktx::testing {
namespace {

using namespace std::chrono_literals;
using server::ModelLease;
using server::ModelState;
using server::ModelStore;
using server::OfferedPlan;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Models without engines: what is tested is who is loaded when.
class ModelStores : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string plan = dir_.path("first.ktxplan");
    ASSERT_EQ(run_program({ktx_compile(), "-q", model_gguf("qwen2"), "-o", plan}).status, 0);
    std::filesystem::copy_file(plan, dir_.path("second.ktxplan"));
    std::filesystem::create_directories(dir_.path("org"));
    std::filesystem::copy_file(plan, dir_.path("org/third:q4.ktxplan"));
  }

  ModelStore make(server::ModelStoreOptions options) {
    options.sources = {dir_.path()};
    return ModelStore(options, [this](const OfferedPlan& plan) { return load(plan); });
  }
  Result<std::shared_ptr<server::ServedModel>> load(const OfferedPlan& plan) {
    ++loads_;
    while (hold_) std::this_thread::sleep_for(1ms);
    if (plan.name == fails_) return Error{plan.path + ": it fails"};
    auto model = std::make_shared<server::ServedModel>();
    model->id = plan.name;
    return model;
  }
  // Waits for the model; null: an error.
  static ModelLease get(ModelStore& models, const std::string& name) {
    std::promise<ModelLease> got;
    models.wait_for(name, [&](ModelStore::Found found) { got.set_value(std::move(found.model)); });
    return got.get_future().get();
  }
  static ModelState state(ModelStore& models, const std::string& name) {
    return models.status(name)->state;
  }
  static void await(const std::function<bool()>& done) {
    while (!done()) std::this_thread::sleep_for(10ms);
  }

  TempDir dir_;
  std::atomic<int> loads_ = 0;
  std::atomic<bool> hold_ = false;
  std::string fails_;
};

TEST_F(ModelStores, NamesAreThoseOfFiles) {
  std::filesystem::create_directories(dir_.path("a/b/c/d"));
  for (const char* file : {".hidden.ktxplan", "a/b/deep.ktxplan", "a/b/c/d/deeper.ktxplan",
                           "notes.txt", "new\nline.ktxplan", "\xff.ktxplan"}) {
    std::ofstream(dir_.path(file)) << "x";
  }
  std::filesystem::create_directories(dir_.path("folder.ktxplan"));
  mkfifo(dir_.path("pipe.ktxplan").c_str(), 0600);
  const std::string sources[] = {dir_.path(), dir_.path("first.ktxplan")};
  std::vector<std::string> names;
  for (const OfferedPlan& plan : server::find_plans(sources)) names.push_back(plan.name);
  EXPECT_THAT(names, ElementsAre("a/b/deep", "first", "org/third:q4", "second"));
}

TEST_F(ModelStores, OneLoadServesAllWhoWait) {
  ModelStore models = make({});
  hold_ = true;
  std::atomic<int> served = 0;
  for (int i = 0; i < 8; ++i) {
    models.wait_for("first", [&](const ModelStore::Found& found) {
      served += found.model != nullptr && found.model->id == "first";
    });
  }
  await([&] { return state(models, "first") == ModelState::Loading; });
  hold_ = false;
  await([&] { return served == 8; });
  EXPECT_EQ(loads_, 1);
  EXPECT_EQ(models.use("first:latest").model->id, "first");
  EXPECT_EQ(models.use("").model->id, "first") << "the one that was used last";
  EXPECT_EQ(models.use("../first").error->status, 404);
  EXPECT_EQ(models.use(dir_.path("first")).error->status, 404);
  EXPECT_EQ(models.use("org/third").error->status, 404);
}

TEST_F(ModelStores, NothingIsLoadedForThoseWhoHaveLeft) {
  ModelStore models = make({});
  hold_ = true;
  models.wait_for("first", [](const ModelStore::Found&) {});
  await([&] { return loads_ == 1; });
  const auto gone = std::make_shared<std::atomic<bool>>(false);
  models.wait_for(
      "second", [](const ModelStore::Found&) { ADD_FAILURE() << "nobody waits"; }, gone);
  *gone = true;
  models.wait_for("org/third:q4", [](const ModelStore::Found&) {});
  hold_ = false;
  await([&] { return state(models, "org/third:q4") == ModelState::Loaded; });
  EXPECT_EQ(state(models, "second"), ModelState::Unloaded);
  EXPECT_EQ(loads_, 2);
}

TEST_F(ModelStores, AModelInUseStaysUntilItsAnswersHaveEnded) {
  server::ModelStoreOptions options;
  options.most_loaded = 1;
  ModelStore models = make(options);
  ModelLease first = get(models, "first");
  std::promise<std::string> second, third;
  models.wait_for("second",
                  [&](const ModelStore::Found& found) { second.set_value(found.model->id); });
  await([&] { return state(models, "first") == ModelState::Unloading; });
  // Its turn is behind that of the one it makes room for.
  models.wait_for("first",
                  [&](const ModelStore::Found& found) { third.set_value(found.model->id); });
  std::future<std::string> answered = second.get_future();
  EXPECT_EQ(answered.wait_for(50ms), std::future_status::timeout);
  EXPECT_EQ(first->id, "first");
  first.reset();
  EXPECT_EQ(answered.get(), "second");
  EXPECT_EQ(third.get_future().get(), "first");
  EXPECT_EQ(loads_, 3);
}

TEST_F(ModelStores, TheModelIdleForTheLongestTimeGoesFirst) {
  server::ModelStoreOptions options;
  options.most_loaded = 2;
  ModelStore models = make(options);
  for (const char* name : {"first", "second", "first"}) EXPECT_NE(get(models, name), nullptr);
  EXPECT_NE(get(models, "org/third:q4"), nullptr);
  EXPECT_EQ(state(models, "first"), ModelState::Loaded);
  EXPECT_EQ(state(models, "second"), ModelState::Unloaded);
}

TEST_F(ModelStores, AFailureIsToldAtOnceForAWhileAndCostsNoOtherModel) {
  server::ModelStoreOptions options;
  options.most_loaded = 1;
  fails_ = "second";
  std::filesystem::resize_file(dir_.path("org/third:q4.ktxplan"), 1000);
  ModelStore models = make(options);
  ASSERT_NE(get(models, "first"), nullptr);
  EXPECT_EQ(get(models, "org/third:q4"), nullptr);
  EXPECT_EQ(state(models, "first"), ModelState::Loaded) << "a damaged plan needs no room";
  EXPECT_EQ(get(models, "second"), nullptr);
  const int before = loads_;
  const ModelStore::Found again = models.use("second");
  ASSERT_TRUE(again.error);
  EXPECT_EQ(again.error->status, 500);
  EXPECT_EQ(again.error->message, "second: it fails") << "without the server's folder";
  EXPECT_EQ(loads_, before);
  fails_ = "";
  EXPECT_TRUE(models.load("second")) << "asked for itself it is tried again";
  await([&] { return state(models, "second") == ModelState::Loaded; });
}

TEST_F(ModelStores, UnloadWaitsAndARequestTakesItBack) {
  ModelStore models = make({});
  ModelLease first = get(models, "first");
  EXPECT_TRUE(models.unload("first"));
  EXPECT_EQ(state(models, "first"), ModelState::Unloading);
  ModelLease again = models.use("first").model;
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(state(models, "first"), ModelState::Loaded);
  again.reset();
  EXPECT_TRUE(models.unload("first"));
  first.reset();
  await([&] { return state(models, "first") == ModelState::Unloaded; });
  EXPECT_EQ(loads_, 1);
  EXPECT_EQ(models.unload("none").error().status, 404);
}

TEST_F(ModelStores, WhatNobodyUsesSleepsUntilItIsNeeded) {
  server::ModelStoreOptions options;
  options.idle_limit = 1s;
  options.load_on_demand = false;
  ModelStore models = make(options);
  EXPECT_EQ(models.use("first").error->status, 400) << "not loaded on demand";
  EXPECT_TRUE(models.load("first"));
  await([&] { return state(models, "first") == ModelState::Loaded; });
  for (int i = 0; i < 3; ++i) EXPECT_NE(models.peek("first").model, nullptr);
  await([&] { return state(models, "first") == ModelState::Sleeping; });
  EXPECT_EQ(models.peek("first").model, nullptr) << "a look does not wake it";
  EXPECT_EQ(get(models, "first")->id, "first");
}

TEST_F(ModelStores, CopiesAndDeletesPlansOfItsFolderAlone) {
  ModelStore models = make({});
  const ModelLease first = get(models, "first");
  EXPECT_EQ(models.copy("none", "x").error().status, 404);
  for (const char* name :
       {"", "../x", "/x", ".x", "x/.y", "a//b", "x/", "x y", "x\n", "no/where"}) {
    const auto copied = models.copy("first", name);
    ASSERT_FALSE(copied) << name;
    EXPECT_THAT(copied.error().message, Not(HasSubstr(dir_.path()))) << name;
  }
  EXPECT_EQ(models.copy("first", "second").error().status, 409);
  EXPECT_TRUE(models.copy("first", "org/copy:q8"));
  EXPECT_TRUE(models.knows("org/copy:q8"));
  EXPECT_EQ(models.remove("../second").error().status, 404);
  EXPECT_TRUE(models.remove("first"));
  EXPECT_FALSE(models.knows("first"));
  EXPECT_FALSE(std::filesystem::exists(dir_.path("first.ktxplan")));
  EXPECT_EQ(first->id, "first") << "an answer goes on";
  EXPECT_NE(get(models, "org/copy:q8"), nullptr);

  server::ModelStoreOptions named;
  named.sources = {dir_.path("second.ktxplan"), dir_.path("org/third:q4.ktxplan")};
  ModelStore others(named, [this](const OfferedPlan& plan) { return load(plan); });
  EXPECT_EQ(others.remove("second").error().status, 403);
  EXPECT_EQ(others.copy("second", "x").error().status, 403);
}

TEST_F(ModelStores, AChangedFileIsAnotherModel) {
  ModelStore models = make({});
  ModelLease old = get(models, "first");
  std::filesystem::resize_file(dir_.path("first.ktxplan"), 5000000);
  EXPECT_EQ(models.list(true).size(), 3u);
  EXPECT_EQ(state(models, "first"), ModelState::Unloaded);
  EXPECT_EQ(old->id, "first");
  old.reset();
  EXPECT_NE(get(models, "first"), nullptr);
  EXPECT_EQ(loads_, 2);
}

TEST_F(ModelStores, TheEndAnswersThoseWhoWait) {
  std::optional<int> status;
  {
    ModelStore models = make({});
    hold_ = true;
    models.wait_for("first", [](const ModelStore::Found&) {});
    await([&] { return loads_ == 1; });
    models.wait_for("second", [&](const ModelStore::Found& found) {
      status = found.error ? found.error->status : 200;
    });
    models.drain();
    EXPECT_EQ(models.use("second").error->status, 503);
    hold_ = false;
  }
  EXPECT_EQ(status, 503);
}

TEST(RequestedModel, IsReadFromTheQueryOrTheTopOfTheBody) {
  const auto of = [](const std::string& body, const std::string& query = "") {
    server::HttpRequest request;
    request.body = body;
    request.query = query;
    return server::requested_model(request);
  };
  EXPECT_EQ(of(R"({"messages": [{"model": "x"}], "model": "y", "n": })"), "y");
  EXPECT_EQ(of(R"({"options": {"model": "x"}})"), "");
  EXPECT_EQ(of(R"({"model": ["x"], "a": "z"})"), "");
  EXPECT_EQ(of(R"({"model": null, "a": "z"})"), "");
  EXPECT_EQ(of(R"({"model": "x"})", "model=a%2Fb"), "a/b");
  EXPECT_EQ(of("[[[[[["), "");
  EXPECT_EQ(of(std::string(1000000, '[')), "");
  EXPECT_EQ(of("\"model\""), "");
}

}  // namespace
}  // namespace ktx::testing
