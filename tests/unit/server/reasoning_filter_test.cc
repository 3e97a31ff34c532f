#include "lib/server/filters/reasoning_filter.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/tiny_tokenizer.h"

namespace ktx::server {
namespace {

using testing::tiny_bpe;

constexpr int32_t kAnswer = '5', kEnd = 256, kFirst = 257;

// A grammar of one token, again and again.
class Only final : public runtime::TokenFilter {
 public:
  explicit Only(int32_t id) : id_(id), bits_(static_cast<size_t>(id / 32 + 1)) {
    bits_.back() = 1u << (id % 32);
  }
  Result<runtime::TokenBits> allowed() override { return runtime::TokenBits(bits_); }
  Status accept(int32_t id) override { return id == id_ ? Status{} : Error{"not allowed"}; }

 private:
  int32_t id_;
  std::vector<uint32_t> bits_;
};

// A vocabulary of bytes, "<end>" and `more`, and a filter of its tags.
struct Reasoner {
  Reasoner(const std::vector<testing::TinyToken>& more, bool open, int32_t answer = kAnswer,
           const text::ReasoningTags& tags = {})
      : tokenizer(make(more)),
        tokens(tokenizer, tags),
        filter(tokens, open, std::make_unique<Only>(answer)) {}

  static text::Tokenizer make(const std::vector<testing::TinyToken>& more) {
    std::vector<testing::TinyToken> list = {{"<end>", text::TokenType::Control}};
    list.insert(list.end(), more.begin(), more.end());
    list.push_back({"qz"});
    text::TokenizerData data = tiny_bpe(list, {"q z"}).take();
    data.ids.eos = kEnd;
    data.eog = {kEnd};
    return text::Tokenizer::create(std::move(data)).take();
  }
  // The pieces that may come; "any" for all but the end, with those that may not behind it.
  std::string allowed() {
    const runtime::TokenBits bits = filter.allowed().take();
    std::string yes, no;
    int count = 0;
    for (int32_t id = 0; id < tokenizer.size(); ++id) {
      const bool may = runtime::has_token(bits, id);
      count += may ? 1 : 0;
      if (id != kEnd) (may ? yes : no) += "[" + std::string(tokenizer.piece(id)) + "]";
    }
    if (count < 10) return yes;
    return runtime::has_token(bits, kEnd) ? "the end, too"
                                          : "any" + (no.empty() ? "" : " but " + no);
  }
  bool bytes(std::string_view text) {
    for (const char c : text) {
      if (!filter.accept(static_cast<uint8_t>(c)).ok()) return false;
    }
    return true;
  }

  text::Tokenizer tokenizer;
  ReasoningTokens tokens;
  ReasoningFilter filter;
};

const std::vector<testing::TinyToken> kTags = {{"<think>", text::TokenType::Control},
                                               {"</think>", text::TokenType::Control}};

TEST(ReasoningFilter, TheGrammarBeginsBehindTheReasoning) {
  Reasoner r(kTags, false);
  EXPECT_EQ(r.allowed(), "[5][<think>]");
  EXPECT_TRUE(r.filter.accept(kFirst).ok());
  EXPECT_EQ(r.allowed(), "any");
  EXPECT_TRUE(r.bytes("hm 5"));
  EXPECT_TRUE(r.filter.accept(kFirst + 1).ok());
  EXPECT_EQ(r.allowed(), "[5]");
  EXPECT_TRUE(r.bytes("5"));
  EXPECT_FALSE(r.filter.accept(kFirst).ok()) << "once is enough";
}

TEST(ReasoningFilter, ItNeedNotReason) {
  Reasoner r(kTags, false);
  EXPECT_TRUE(r.bytes("5"));
  EXPECT_EQ(r.allowed(), "[5]");
}

TEST(ReasoningFilter, AnOpenPromptIsWithinIt) {
  Reasoner r(kTags, true);
  EXPECT_EQ(r.allowed(), "any");
  EXPECT_TRUE(r.filter.accept(kFirst + 1).ok());
  EXPECT_EQ(r.allowed(), "[5]");
}

// In a vocabulary without them the tags are text.
TEST(ReasoningFilter, TagsMayBeSeveralTokens) {
  Reasoner r({{"<thi"}, {"nk>"}, {"nk>\n"}, {"nk>5"}, {"</th"}, {"ink>"}}, false);
  EXPECT_EQ(r.allowed(), "[5][<][<thi]");
  EXPECT_TRUE(r.filter.accept(kFirst).ok());
  EXPECT_EQ(r.allowed(), "[n][nk>][nk>\n][nk>5]") << "what begins goes on";
  EXPECT_FALSE(Reasoner({}, false).bytes("<a"));
  EXPECT_TRUE(r.filter.accept(kFirst + 2).ok());
  EXPECT_EQ(r.allowed(), "any");
  EXPECT_TRUE(r.bytes("a</thinks </think"));
  EXPECT_EQ(r.allowed(), "any");
  EXPECT_TRUE(r.bytes(">"));
  EXPECT_EQ(r.allowed(), "[5]");
}

// The begin of an answer in the token that ends the reasoning would be lost to its grammar.
TEST(ReasoningFilter, NoTokenSaysTheTagsEndAndMore) {
  Reasoner r({{"k>{"}, {"k>\n\n"}, {"x</think>y"}}, true);
  EXPECT_EQ(r.allowed(), "any but [x</think>y]");
  EXPECT_TRUE(r.bytes("a</thin"));
  EXPECT_EQ(r.allowed(), "any but [k>{][x</think>y]");
  EXPECT_TRUE(r.filter.accept(kFirst + 1).ok());
  EXPECT_EQ(r.allowed(), "[5]");
}

// Kimi-K3: a tag opens the answer, and ends reasoning that no tag closes.
TEST(ReasoningFilter, ATagOpensTheAnswer) {
  const text::ReasoningTags tags = *text::detect_reasoning("<|open|>");
  for (const char* end : {"<|close|>think<|sep|>", "<|open|>response<|sep|>"}) {
    Reasoner r({{"<|open|>", text::TokenType::Control}, {"resp"}, {"onse<|sep|>"}, {">5"}}, true,
               kAnswer, tags);
    EXPECT_TRUE(r.bytes("hm " + std::string(end, std::strlen(end) - 1)));
    EXPECT_EQ(r.allowed(), "any but [>5]");
    EXPECT_TRUE(r.bytes(">"));
    if (end[2] == 'c') {
      EXPECT_EQ(r.allowed(), "[<][<|open|>]");
      EXPECT_FALSE(r.bytes("5"));
      for (const int32_t id : {kFirst, kFirst + 1}) EXPECT_TRUE(r.filter.accept(id).ok());
      EXPECT_EQ(r.allowed(), "[o][onse<|sep|>]");
      EXPECT_TRUE(r.bytes("onse<|sep|"));
      EXPECT_EQ(r.allowed(), "[>]");
      EXPECT_TRUE(r.bytes(">"));
    }
    EXPECT_EQ(r.allowed(), "[5]");
  }
}

TEST(ReasoningFilter, AnAnswerMayBeginLikeATag) {
  Reasoner r({{"<t"}}, false, '<');
  EXPECT_TRUE(r.bytes("<<"));
  EXPECT_EQ(r.allowed(), "[<]");
}

}  // namespace
}  // namespace ktx::server
