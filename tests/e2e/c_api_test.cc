// include/ktx/ktx.h: sessions, their files, errors; and the two examples of docs/examples.
#include "include/ktx/ktx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "lib/images/decode.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/seeing_model.h"

namespace ktx::testing {
namespace {

using ::testing::HasSubstr;

constexpr const char* kPrompt = "Once upon a time";

class CApi : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TempDir;
    path_ = dir_->path("m.ktxplan");
    const Finished made = run_program({ktx_compile(), "-q", model_gguf("qwen3moe"), "-o", path_});
    ASSERT_EQ(made.status, 0) << made.err;
  }
  static void TearDownTestSuite() { delete dir_; }

  static ktx_plan* open(ktx_options options = {}) {
    options.size = sizeof options;
    ktx_plan* plan = nullptr;
    EXPECT_EQ(ktx_plan_open(path_.c_str(), &options, &plan), KTX_OK) << ktx_error_message();
    return plan;
  }
  static ktx_session* session_of(ktx_plan* plan) {
    ktx_session* session = nullptr;
    EXPECT_EQ(ktx_session_new(plan, &session), KTX_OK) << ktx_error_message();
    return session;
  }
  static std::vector<int32_t> tokens_of(const ktx_plan* plan, const std::string& text) {
    size_t count = 0;
    EXPECT_EQ(ktx_tokenize(plan, text.data(), text.size(), nullptr, 0, &count), KTX_TOO_SMALL);
    std::vector<int32_t> ids(count);
    EXPECT_EQ(ktx_tokenize(plan, text.data(), text.size(), ids.data(), count, &count), KTX_OK);
    return ids;
  }
  static std::vector<float> logits_of(ktx_session* session) {
    const float* logits = nullptr;
    size_t count = 0;
    EXPECT_EQ(ktx_session_logits(session, &logits, &count), KTX_OK) << ktx_error_message();
    return {logits, logits + count};
  }
  static int32_t best(const std::vector<float>& logits) {
    return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
  }
  static void feed(ktx_session* session, const std::vector<int32_t>& ids) {
    EXPECT_EQ(ktx_session_feed(session, ids.data(), ids.size()), KTX_OK) << ktx_error_message();
  }

  static inline TempDir* dir_ = nullptr;
  static inline std::string path_;
};

TEST_F(CApi, TokenByTokenGivesTheLogitsOfTheWholeText) {
  ktx_plan* plan = open();
  EXPECT_STREQ(ktx_version(), KTX_VERSION);
  const std::vector<int32_t> ids = tokens_of(plan, kPrompt);
  ASSERT_GT(ids.size(), 2u);
  ktx_session* whole = session_of(plan);
  feed(whole, ids);
  ktx_session* single = session_of(plan);
  for (const int32_t id : ids) feed(single, {id});
  EXPECT_EQ(logits_of(whole).size(), static_cast<size_t>(ktx_plan_vocabulary(plan)));
  EXPECT_EQ(logits_of(whole), logits_of(single));
  EXPECT_EQ(ktx_session_length(whole), static_cast<int64_t>(ids.size()));
  ktx_session_free(single);
  ktx_session_free(whole);
  ktx_plan_close(plan);
}

TEST_F(CApi, ASavedSessionGoesOnWithTheSameBits) {
  const std::string file = dir_->path("text.ktxsession");
  ktx_plan* plan = open();
  ktx_session* first = session_of(plan);
  feed(first, tokens_of(plan, kPrompt));
  const std::vector<float> before = logits_of(first);
  ASSERT_EQ(ktx_session_save(first, file.c_str()), KTX_OK) << ktx_error_message();
  ktx_session_free(first);
  ktx_plan_close(plan);

  plan = open({.size = 0,
               .threads = 1,
               .exact = 0,
               .context = 0,
               .sessions = 0,
               .verify = 1,
               .reserved = 0});
  ktx_session* second = session_of(plan);
  ASSERT_EQ(ktx_session_restore(second, file.c_str()), KTX_OK) << ktx_error_message();
  EXPECT_EQ(logits_of(second), before);
  feed(second, {best(before)});
  EXPECT_NE(logits_of(second), before);
  // A session of another precision, and a file that is no session at all.
  ktx_session_free(second);
  ktx_plan_close(plan);
  plan = open({.size = 0,
               .threads = 0,
               .exact = 1,
               .context = 0,
               .sessions = 0,
               .verify = 0,
               .reserved = 0});
  second = session_of(plan);
  EXPECT_EQ(ktx_session_restore(second, file.c_str()), KTX_FAILED);
  EXPECT_THAT(ktx_error_message(), HasSubstr("text.ktxsession"));
  EXPECT_EQ(ktx_session_restore(second, path_.c_str()), KTX_FAILED);
  EXPECT_EQ(ktx_session_length(second), 0);
  ktx_session_free(second);
  ktx_plan_close(plan);
}

TEST_F(CApi, TruncatedTextGivesTheLogitsThatItHad) {
  ktx_plan* plan = open();
  const std::vector<int32_t> ids = tokens_of(plan, kPrompt);
  ktx_session* session = session_of(plan);
  feed(session, ids);
  const std::vector<float> before = logits_of(session);
  feed(session, {1, 2, 3});
  ktx_session_truncate(session, static_cast<int64_t>(ids.size()));
  EXPECT_EQ(logits_of(session), before);
  ktx_session_truncate(session, 100000);  // does nothing
  EXPECT_EQ(ktx_session_length(session), static_cast<int64_t>(ids.size()));
  ktx_session_truncate(session, 0);
  const float* logits = nullptr;
  size_t count = 1;
  EXPECT_EQ(ktx_session_logits(session, &logits, &count), KTX_FAILED);
  EXPECT_EQ(logits, nullptr);
  EXPECT_EQ(count, 0u);
  ktx_session_free(session);
  ktx_plan_close(plan);
}

TEST_F(CApi, SessionsOutliveThePlanAndRunOnManyThreads) {
  ktx_plan* plan = open({.size = 0,
                         .threads = 2,
                         .exact = 0,
                         .context = 0,
                         .sessions = 4,
                         .verify = 0,
                         .reserved = 0});
  const std::vector<int32_t> ids = tokens_of(plan, kPrompt);
  std::vector<ktx_session*> sessions;
  for (int i = 0; i < 4; ++i) sessions.push_back(session_of(plan));
  ktx_plan_close(plan);
  std::vector<std::vector<float>> logits(sessions.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < sessions.size(); ++i) {
    threads.emplace_back([&, i] {
      for (const int32_t id : ids) feed(sessions[i], {id});
      logits[i] = logits_of(sessions[i]);
      ktx_session_free(sessions[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<float>& one : logits) EXPECT_EQ(one, logits[0]);
}

TEST_F(CApi, WhatIsWrongIsSaid) {
  ktx_plan* plan = open({.size = 0,
                         .threads = 0,
                         .exact = 0,
                         .context = 16,
                         .sessions = 1,
                         .verify = 0,
                         .reserved = 0});
  EXPECT_EQ(ktx_plan_context(plan), 16);
  ktx_session* session = session_of(plan);
  EXPECT_EQ(ktx_session_feed(session, nullptr, 0), KTX_FAILED);
  const std::vector<int32_t> many(17, 1);
  EXPECT_EQ(ktx_session_feed(session, many.data(), many.size()), KTX_CONTEXT_FULL);
  EXPECT_THAT(ktx_error_message(), HasSubstr("16 tokens"));
  const int32_t wrong[] = {1, -5};
  EXPECT_EQ(ktx_session_feed(session, wrong, 2), KTX_FAILED);
  EXPECT_THAT(ktx_error_message(), HasSubstr("-5"));
  EXPECT_EQ(ktx_session_length(session), 0);
  feed(session, {1, 2});  // goes on
  EXPECT_EQ(ktx_session_save(session, "/nowhere/x"), KTX_FAILED);
  EXPECT_THAT(ktx_error_message(), HasSubstr("/nowhere/x"));
  ktx_session_free(session);
  ktx_session_free(nullptr);
  ktx_plan_close(plan);
  ktx_plan_close(nullptr);

  ktx_plan* none = nullptr;
  EXPECT_EQ(ktx_plan_open("/nowhere/m.ktxplan", nullptr, &none), KTX_FAILED);
  EXPECT_THAT(ktx_error_message(), HasSubstr("/nowhere/m.ktxplan"));
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(ktx_plan_open(nullptr, nullptr, &none), KTX_FAILED);
  const ktx_options options = {};  // size 0
  EXPECT_EQ(ktx_plan_open(path_.c_str(), &options, &none), KTX_FAILED);
  EXPECT_THAT(ktx_error_message(), HasSubstr("ktx_options.size"));
}

// What the examples print is what ktx-run generates.
class Embedded : public CApi {
 protected:
  static std::string expected() {
    return run_program(
               {ktx_run(), "generate", path_, "--prompt", kPrompt, "-n", "20", "--temp", "0"})
        .out;
  }
};

TEST_F(Embedded, TheExampleInC) {
  const Finished run = run_program({binary_dir() + "/tests/embed", path_, kPrompt, "20"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.out, expected());
  EXPECT_EQ(run_program({binary_dir() + "/tests/embed", "none.ktxplan", "x", "1"}).status, 1);
}

TEST_F(Embedded, TheExampleInPython) {
  const std::string library = binary_dir() + "/libktx.so";
  if (!std::filesystem::exists(library)) {
    GTEST_SKIP() << "no libktx.so in this build (-DKTX_LIBRARY=ON); tools/dev/try-distributions "
                    "runs the example with an installed one";
  }
  const Finished run = run_program(
      {"/usr/bin/env", "python3", source_dir() + "/docs/examples/embed.py", path_, kPrompt, "20"},
      "", {"KTX_LIBRARY=" + library});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.out, expected());
}

// The tokens and logits are those of ktx-run generate.
TEST(CApiImages, AreFedAsPixels) {
  const TempDir dir;
  const std::string path = compile_seeing(dir);
  const Finished run = run_program({ktx_run(), "generate", path, "--json", "--precision", "exact",
                                    "-n", "1", "--temp", "0", "--prompt",
                                    "Look<start_of_image>There", "--image", image_file(dir, 0)});
  ASSERT_EQ(run.status, 0) << run.err;
  const auto wanted = nlohmann::json::parse(run.out);
  ktx_options options = {};
  options.size = sizeof options;
  options.exact = 1;
  ktx_plan* plan = nullptr;
  ASSERT_EQ(ktx_plan_open(path.c_str(), &options, &plan), KTX_OK) << ktx_error_message();
  ktx_session* session = nullptr;
  ASSERT_EQ(ktx_session_new(plan, &session), KTX_OK);
  const std::string file = from_base64(kImageSamples[0].base64);
  const auto image = images::decode_image(std::as_bytes(std::span(file)));
  ASSERT_TRUE(image.ok());
  const auto feed_image = [&] {
    return ktx_session_feed_image(session, image->rgb.data(), image->width, image->height);
  };
  EXPECT_EQ(feed_image(), KTX_FAILED);
  EXPECT_THAT(ktx_error_message(), HasSubstr("needs a text before it"));
  const auto ids = wanted["prompt_ids"].get<std::vector<int32_t>>();
  const auto seen = std::ranges::find_if(ids, [](int32_t id) { return id < 0; }) - ids.begin();
  const auto best = [&] {
    const float* logits = nullptr;
    size_t count = 0;
    EXPECT_EQ(ktx_session_logits(session, &logits, &count), KTX_OK) << ktx_error_message();
    return std::max_element(logits, logits + count) - logits;
  };
  // The model's own texts around an image are fed with it. How many tokens stand before it shows
  // where a text ends that is cut within it.
  ASSERT_EQ(ktx_session_feed(session, ids.data(), 1), KTX_OK);
  ASSERT_EQ(feed_image(), KTX_OK) << ktx_error_message();
  const int64_t fed = ktx_session_length(session) - 1;
  int64_t cut = fed;
  do {
    ktx_session_truncate(session, --cut);
  } while (ktx_session_length(session) == cut);
  const int64_t before = ktx_session_length(session) - 1, behind = fed - before - kSeenTokens;
  EXPECT_EQ(cut, before + kSeenTokens) << "all of an image goes";
  ktx_session_truncate(session, 0);

  const int64_t rest = seen + kSeenTokens + behind;
  ASSERT_EQ(ktx_session_feed(session, ids.data(), static_cast<size_t>(seen - before)), KTX_OK);
  ASSERT_EQ(feed_image(), KTX_OK) << ktx_error_message();
  ASSERT_EQ(ktx_session_length(session), rest);
  ASSERT_EQ(ktx_session_feed(session, ids.data() + rest, ids.size() - static_cast<size_t>(rest)),
            KTX_OK)
      << ktx_error_message();
  EXPECT_EQ(ktx_session_length(session), std::ssize(ids));
  EXPECT_EQ(best(), wanted["ids"][0].get<int64_t>());
  EXPECT_EQ(ktx_session_save(session, dir.path("s").c_str()), KTX_FAILED);
  EXPECT_THAT(ktx_error_message(), HasSubstr("a text with images cannot be saved"));
  ktx_session_free(session);
  ktx_plan_close(plan);
}

}  // namespace
}  // namespace ktx::testing
