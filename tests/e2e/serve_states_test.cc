// Conversations over HTTP on models with states of a fixed size: a turn computes what is new.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lib/runtime/sampling/random.h"
#include "tests/support/http_client.h"
#include "tests/support/state_models.h"

namespace ktx::testing {
namespace {

using nlohmann::json;

class ServeStates : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string gguf = state_model_gguf(GetParam(), dir_);
    if (gguf.empty()) GTEST_SKIP() << "no model " << GetParam();
    const Finished run = run_program({ktx_compile(), "-q", gguf, "-o", dir_.path("m.ktxplan")});
    ASSERT_EQ(run.status, 0) << run.err;
  }
  static int64_t metric(const ServerProcess& server, const std::string& name) {
    const std::string text = server.get("/metrics").body;
    const size_t at = text.find("\nktx_" + name + " ");
    if (at == std::string::npos) ADD_FAILURE() << "no metric " << name;
    return at == std::string::npos ? 0 : std::atoll(text.c_str() + at + name.size() + 6);
  }

  struct Turn {
    int64_t computed = 0;  // tokens, by the engine
    int64_t fresh = 0;     // tokens that no turn before had, the answer's included
    std::string answer;
  };
  class Conversation {
   public:
    explicit Conversation(uint64_t seed) : random_(seed) {}
    void say() {
      static const char* const kWords[] = {"the", "fox",   "went", "home",  "and", "told",
                                           "a",   "story", "of",   "seven", "red", "apples"};
      std::string text;
      for (int i = 0; i < 60; ++i) text += fmt::format("{} ", kWords[random_.next() % 12]);
      messages_.push_back({{"role", "user"}, {"content", text + "?"}});
    }
    Turn answer(const ServerProcess& server, bool keep) {
      const int64_t before = metric(server, "computed_tokens_total");
      const json body = {{"messages", messages_}, {"max_tokens", 12}, {"temperature", 0}};
      const HttpAnswer reply = server.post("/v1/chat/completions", body.dump());
      EXPECT_EQ(reply.status, 200) << reply.body;
      if (reply.status != 200) return {};
      const json parsed = reply.json();
      Turn turn;
      turn.computed = metric(server, "computed_tokens_total") - before;
      const int64_t total = parsed["usage"]["total_tokens"];
      turn.fresh = total - total_;
      turn.answer = parsed["choices"][0]["message"]["content"];
      if (!keep) return turn;
      total_ = total;
      messages_.push_back({{"role", "assistant"}, {"content", turn.answer}});
      return turn;
    }
    int64_t total() const { return total_; }

   private:
    runtime::Random random_;
    json messages_ = json::array();
    int64_t total_ = 0;
  };

  const TempDir dir_;
};

TEST_P(ServeStates, ATurnOfAConversationComputesWhatIsNew) {
  const ServerProcess server({dir_.path("m.ktxplan"), "--ctx", "8192", "-t", "2"});
  Conversation conversation(1);
  for (int turn = 0; turn < 40; ++turn) {
    conversation.say();
    const Turn done = conversation.answer(server, true);
    // (Templates may begin an answer otherwise when it is history, and tokens merge at its end.)
    EXPECT_LE(done.computed, done.fresh + 96) << "turn " << turn;
  }
  EXPECT_GT(conversation.total(), 4000);
  // The same prompt once more goes on from behind its last message, and answers alike.
  conversation.say();
  const Turn first = conversation.answer(server, false);
  const Turn again = conversation.answer(server, false);
  EXPECT_EQ(again.answer, first.answer);
  EXPECT_LE(again.computed, 32) << "the opening of an answer, and the answer";
}

TEST_P(ServeStates, SoDoEightInTurnWhereFourContextsFit) {
  const ServerProcess server(
      {dir_.path("m.ktxplan"), "--ctx", "6144", "--max-batch", "4", "-t", "2"});
  std::vector<Conversation> conversations;
  for (uint64_t c = 0; c < 8; ++c) conversations.emplace_back(100 + c);
  for (int turn = 0; turn < 20; ++turn) {
    for (size_t c = 0; c < conversations.size(); ++c) {
      conversations[c].say();
      const Turn done = conversations[c].answer(server, true);
      // Snapshots that save less had to go.
      EXPECT_LE(done.computed, done.fresh + 1024) << "turn " << turn << " of " << c;
    }
  }
  EXPECT_GT(conversations[0].total(), 2000);
  EXPECT_GE(metric(server, "state_snapshots"), 8);
}

INSTANTIATE_TEST_SUITE_P(Models, ServeStates, ::testing::ValuesIn(kStateModels),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ktx::testing
