#include "lib/server/filters/reasoning_budget.h"

#include <gtest/gtest.h>

#include <random>

#include "lib/server/filters/reasoning_filter.h"
#include "lib/text/tokenizer/hf_tokenizer.h"
#include "tests/support/paths.h"
#include "tests/support/tiny_tokenizer.h"

namespace ktx::server {
namespace {

using testing::tiny_bpe;

class Budget : public ::testing::Test {
 protected:
  void SetUp() override {
    auto data = tiny_bpe({{"<think>", text::TokenType::Control},
                          {"</think>", text::TokenType::Control},
                          {"<end>", text::TokenType::Control},
                          {"qz"}},
                         {"q z"});
    ASSERT_TRUE(data.ok()) << data.error().message;
    tokenizer_.emplace(text::Tokenizer::create(data.take()).take());
    open_ = *tokenizer_->find("<think>");
    close_ = *tokenizer_->find("</think>");
  }
  ReasoningBudget budget(int64_t tokens, const std::string& message = "", bool open = false,
                         std::unique_ptr<runtime::TokenFilter> answer = nullptr) const {
    const ReasoningForm form = {false, text::ReasoningTags{}};
    auto watch = ReasoningWatch::create(*tokenizer_, form, {}, open);
    return {*tokenizer_, std::move(*watch), {tokens, message}, std::move(answer)};
  }
  // The tokens that may come; "any" for all of them.
  std::string allowed(ReasoningBudget& budget) const {
    const runtime::TokenBits bits = budget.allowed().take();
    std::string out;
    int count = 0;
    for (int32_t id = 0; id < tokenizer_->size(); ++id) {
      if (!runtime::has_token(bits, id)) continue;
      out += tokenizer_->piece(id);
      ++count;
    }
    return count == tokenizer_->size() ? "any" : out;
  }

  std::optional<text::Tokenizer> tokenizer_;
  int32_t open_ = -1, close_ = -1;
};

TEST_F(Budget, TheEndIsDecidedBehindSoManyTokens) {
  ReasoningBudget limited = budget(2, "so");
  EXPECT_TRUE(limited.accept('a').ok()) << "no reasoning yet";
  EXPECT_EQ(allowed(limited), "any");
  for (const int32_t id : {open_, int32_t{'x'}, int32_t{'y'}}) {
    EXPECT_EQ(allowed(limited), "any");
    EXPECT_TRUE(limited.accept(id).ok());
  }
  for (const int32_t id : {int32_t{'s'}, int32_t{'o'}, close_}) {
    EXPECT_EQ(limited.decided(), id);
    EXPECT_EQ(allowed(limited), tokenizer_->piece(id));
    EXPECT_TRUE(limited.accept(id).ok());
  }
  EXPECT_EQ(limited.decided(), std::nullopt);
  EXPECT_EQ(allowed(limited), "any");
  // Reasoning that begins again has nothing left.
  EXPECT_TRUE(limited.accept(open_).ok());
  EXPECT_EQ(limited.decided(), 's');
}

TEST_F(Budget, AReasoningThatEndsByItselfIsLeftAlone) {
  ReasoningBudget limited = budget(2);
  for (const int32_t id : {open_, int32_t{'x'}, close_, int32_t{'a'}, int32_t{'b'}, int32_t{'c'}}) {
    EXPECT_TRUE(limited.accept(id).ok());
    EXPECT_EQ(limited.decided(), std::nullopt);
  }
}

TEST_F(Budget, ZeroEndsItWhereItBegins) {
  EXPECT_EQ(budget(0, "", true).decided(), close_) << "the prompt has opened it";
  ReasoningBudget limited = budget(0);
  EXPECT_EQ(limited.decided(), std::nullopt);
  EXPECT_TRUE(limited.accept(open_).ok());
  EXPECT_EQ(limited.decided(), close_);
}

TEST_F(Budget, ACharacterIsEndedFirst) {
  ReasoningBudget limited = budget(1, "", true);
  EXPECT_TRUE(limited.accept(0xC3).ok());  // of "é"
  EXPECT_EQ(limited.decided(), std::nullopt);
  EXPECT_TRUE(limited.accept(0xA9).ok());
  EXPECT_EQ(limited.decided(), close_);
}

// Counts what it receives, and allows nothing but <end>.
class OnlyEnd final : public runtime::TokenFilter {
 public:
  OnlyEnd(int32_t id, int& accepted) : id_(id), accepted_(accepted), bits_(9) {
    bits_[static_cast<size_t>(id / 32)] = 1u << (id % 32);
  }
  Result<runtime::TokenBits> allowed() override { return runtime::TokenBits(bits_); }
  Status accept(int32_t) override {
    ++accepted_;
    return {};
  }

 private:
  int32_t id_;
  int& accepted_;
  std::vector<uint32_t> bits_;
};

TEST_F(Budget, AGrammarBehindItReceivesEveryToken) {
  int accepted = 0;
  const ReasoningTokens tokens(*tokenizer_, text::ReasoningTags{});
  auto grammar = std::make_unique<OnlyEnd>(close_ + 1, accepted);
  ReasoningBudget limited =
      budget(1, "", true, std::make_unique<ReasoningFilter>(tokens, true, std::move(grammar)));
  EXPECT_NE(allowed(limited), "<end>");
  EXPECT_TRUE(limited.accept('x').ok());
  EXPECT_EQ(allowed(limited), "</think>");
  EXPECT_TRUE(limited.accept(close_).ok());
  EXPECT_EQ(allowed(limited), "<end>");
  EXPECT_EQ(accepted, 0) << "the grammar is that of the answer";
  EXPECT_TRUE(limited.accept(close_ + 1).ok());
  EXPECT_EQ(accepted, 1);
}

// Magistral's tags in a vocabulary without them.
TEST_F(Budget, TagsThatAreNoTokensAreFoundInTheText) {
  const ReasoningForm form = {false, text::ReasoningTags{"[THINK]", "[/THINK]"}};
  const auto budget = [&](int64_t tokens, bool open) {
    auto watch = ReasoningWatch::create(*tokenizer_, form, {}, open);
    EXPECT_TRUE(watch.has_value());
    return ReasoningBudget(*tokenizer_, std::move(*watch), {tokens, "so"}, nullptr);
  };
  const auto say = [](ReasoningBudget& limited, std::string_view text) {
    for (const char c : text) {
      EXPECT_EQ(limited.decided(), std::nullopt) << c;
      EXPECT_TRUE(limited.accept(c).ok());
    }
  };
  const auto hear = [](ReasoningBudget& limited, std::string_view text) {
    for (const char c : text) {
      EXPECT_EQ(limited.decided(), static_cast<int32_t>(c));
      EXPECT_TRUE(limited.accept(c).ok());
    }
  };
  ReasoningBudget limited = budget(2, false);
  say(limited, "[THINK]xy");
  hear(limited, "so[/THINK]");
  say(limited, "answer [THINK] of any length");  // tags count where an answer begins
  // By the prompt; a closing tag that has begun may end.
  ReasoningBudget open = budget(3, true);
  say(open, "abc"), hear(open, "so[/THINK]"), say(open, "answer");
  ReasoningBudget ended = budget(3, true);
  say(ended, "ab[/THINK] and more");
  ReasoningBudget nearly = budget(3, true);
  say(nearly, "ab[/x");
  hear(nearly, "so[/THINK]");
  EXPECT_EQ(budget(0, true).decided(), 's');
  EXPECT_EQ(budget(0, false).decided(), std::nullopt);
}

TEST_F(Budget, WithoutTagsThereIsNothingToWatch) {
  EXPECT_FALSE(ReasoningWatch::create(*tokenizer_, {}, {}, false)) << "it does not reason";
}

class HarmonyBudget : public ::testing::Test {
 protected:
  void SetUp() override {
    auto loaded = text::load_hf_tokenizer(source_dir() + "/tests/models/gpt_oss/tokenizer.json");
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    tokenizer_.emplace(text::Tokenizer::create(std::move(loaded->data)).take());
  }
  ReasoningWatch watch(const std::string& prompt) const {
    const ReasoningForm form = {true, {}};
    return *ReasoningWatch::create(*tokenizer_, form, tokenizer_->encode_prompt(prompt), false);
  }
  std::vector<int32_t> tokens(const std::string& text) const {
    return tokenizer_->encode(text, {.parse_special = true});
  }
  std::optional<text::Tokenizer> tokenizer_;
};

const std::string kAsked = "<|start|>user<|message|>Hi<|end|><|start|>assistant";

TEST_F(HarmonyBudget, TheContentIsOpenedBehindIt) {
  ReasoningBudget limited(*tokenizer_, watch(kAsked), {2, ""}, nullptr);
  for (const int32_t id : tokens("<|channel|>analysis<|message|>")) {
    EXPECT_EQ(limited.decided(), std::nullopt);
    EXPECT_TRUE(limited.accept(id).ok());
  }
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(limited.decided(), std::nullopt);
    EXPECT_TRUE(limited.accept(tokens("a")[0]).ok());
  }
  std::vector<int32_t> said;
  while (const auto id = limited.decided()) {
    ASSERT_LT(said.size(), 100u);
    said.push_back(*id);
    EXPECT_TRUE(limited.accept(*id).ok());
  }
  EXPECT_EQ(tokenizer_->decode(said, true), "<|end|><|start|>assistant<|channel|>final<|message|>");
  for (const int32_t id : tokens("Hello there<|end|>")) {
    EXPECT_TRUE(limited.accept(id).ok());
    EXPECT_EQ(limited.decided(), std::nullopt);
  }
}

// Markers and texts in any order: the reasoning never has more than its budget and the rest of a
// character, and what is decided comes to an end.
TEST_F(HarmonyBudget, HoldsForAnyOrderOfMarkers) {
  const std::vector<std::string> pieces = {
      "<|start|>",     "assistant", "<|channel|>",          "analysis", "final",    "<|message|>",
      "<|constrain|>", "<|end|>",   " to=functions.f json", "é",        "<|call|>", "commentary"};
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    ReasoningWatch seen = watch(kAsked);
    ReasoningBudget limited(*tokenizer_, watch(kAsked), {2, round % 2 == 0 ? "So." : ""}, nullptr);
    int64_t reasoned = 0, decided = 0;
    for (int n = 0; n < 40; ++n) {
      for (const int32_t id : tokens(pieces[random() % pieces.size()])) {
        for (decided = 0; limited.decided(); ++decided) {
          ASSERT_LT(decided, 40);
          const int32_t next = *limited.decided();
          seen.accept(next);
          ASSERT_TRUE(limited.accept(next).ok());
        }
        const bool was_inside = seen.inside();
        seen.accept(id);
        ASSERT_TRUE(limited.accept(id).ok());
        if (was_inside && seen.inside()) ++reasoned;
      }
    }
    ASSERT_LE(reasoned, 2 + 3) << round;
  }
}

// A grammar begins with the content, whatever was said before it.
TEST_F(HarmonyBudget, AGrammarBeginsInTheFinalMessage) {
  int accepted = 0;
  const int32_t end = *tokenizer_->find("<|return|>");
  class Counts final : public runtime::TokenFilter {
   public:
    explicit Counts(int& accepted) : accepted_(accepted) {}
    Result<runtime::TokenBits> allowed() override { return runtime::TokenBits(); }
    Status accept(int32_t) override {
      ++accepted_;
      return {};
    }

   private:
    int& accepted_;
  };
  HarmonyFilter filter(*tokenizer_, watch(kAsked), std::make_unique<Counts>(accepted));
  for (const int32_t id : tokens("<|channel|>analysis<|message|>Well.<|end|><|start|>assistant"
                                 "<|channel|>final <|constrain|>json<|message|>")) {
    const runtime::TokenBits bits = filter.allowed().take();
    EXPECT_TRUE(runtime::has_token(bits, id));
    EXPECT_FALSE(runtime::has_token(bits, end)) << "the answer is still to come";
    EXPECT_TRUE(filter.accept(id).ok());
  }
  EXPECT_EQ(accepted, 0);
  EXPECT_TRUE(filter.allowed().take().empty()) << "the grammar's word";
  EXPECT_TRUE(filter.accept('{').ok());
  EXPECT_EQ(accepted, 1);
}

}  // namespace
}  // namespace ktx::server
