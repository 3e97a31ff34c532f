#include "lib/server/filters/call_filter.h"

#include <gtest/gtest.h>

#include "tests/support/tiny_tokenizer.h"

namespace ktx::server {
namespace {

using testing::tiny_bpe;

constexpr int32_t kEnd = 256, kFirst = 257;

// A grammar of this text behind any blanks.
class Text final : public runtime::TokenFilter {
 public:
  explicit Text(std::string_view text) : text_(text), bits_(16) {}
  Result<runtime::TokenBits> allowed() override {
    std::fill(bits_.begin(), bits_.end(), 0);
    if (at_ == text_.size()) set_token(bits_, kEnd, true);
    if (at_ < text_.size()) set_token(bits_, static_cast<uint8_t>(text_[at_]), true);
    if (at_ == 0) set_token(bits_, ' ', true);
    return runtime::TokenBits(bits_);
  }
  Status accept(int32_t id) override {
    if (!runtime::has_token(allowed().take(), id)) return Error{"not allowed"};
    if (id != ' ') ++at_;
    return {};
  }

 private:
  std::string text_;
  size_t at_ = 0;
  std::vector<uint32_t> bits_;
};

struct Caller {
  Caller(const std::vector<testing::TinyToken>& more, std::string_view answer,
         text::ToolCallFormat format = text::ToolCallFormat::Hermes,
         const std::optional<text::ReasoningTags>& tags = std::nullopt)
      : tokenizer(make(more)),
        tokens(tokenizer, format, tags),
        filter(tokens, std::make_unique<Text>(answer)) {}

  static text::Tokenizer make(const std::vector<testing::TinyToken>& more) {
    std::vector<testing::TinyToken> list = {{"<end>", text::TokenType::Control}};
    list.insert(list.end(), more.begin(), more.end());
    list.push_back({"qz"});
    text::TokenizerData data = tiny_bpe(list, {"q z"}).take();
    data.ids.eos = kEnd;
    data.eog = {kEnd};
    return text::Tokenizer::create(std::move(data)).take();
  }
  // The pieces that may come, or "any".
  std::string allowed() {
    const runtime::TokenBits bits = filter.allowed().take();
    std::string out;
    int count = 0;
    for (int32_t id = 0; id < tokenizer.size(); ++id) {
      if (!runtime::has_token(bits, id)) continue;
      out += "[" + std::string(tokenizer.piece(id)) + "]";
      ++count;
    }
    return count == tokenizer.size() ? "any" : out;
  }
  bool bytes(std::string_view text) {
    for (const char c : text) {
      if (!filter.accept(static_cast<uint8_t>(c)).ok()) return false;
    }
    return true;
  }

  text::Tokenizer tokenizer;
  CallTokens tokens;
  CallFilter filter;
};

const std::vector<testing::TinyToken> kMarker = {{"<tool_call>", text::TokenType::Control}};

TEST(CallFilter, TheMarkerOfACallStandsInsteadOfAnAnswer) {
  Caller call(kMarker, "5");
  EXPECT_EQ(call.allowed(), "[ ][5][<tool_call>]");
  EXPECT_TRUE(call.bytes("  "));
  EXPECT_EQ(call.allowed(), "[ ][5][<tool_call>]") << "behind blanks";
  EXPECT_TRUE(call.filter.accept(kFirst).ok());
  EXPECT_EQ(call.allowed(), "any") << "the end, too";
  EXPECT_TRUE(call.bytes("{x"));

  Caller answer(kMarker, "55");
  EXPECT_TRUE(answer.bytes(" 5"));
  EXPECT_EQ(answer.allowed(), "[5]") << "an answer stays one";
  EXPECT_FALSE(answer.filter.accept(kFirst).ok());
  Caller neither(kMarker, "5");
  EXPECT_FALSE(neither.bytes("x"));
}

// In a vocabulary without it the marker is text.
TEST(CallFilter, TheMarkerMayBeSeveralTokens) {
  Caller call({{"<tool_"}, {"call>{"}}, "5");
  EXPECT_EQ(call.allowed(), "[ ][5][<][<tool_]");
  EXPECT_TRUE(call.filter.accept(kFirst).ok());
  EXPECT_EQ(call.allowed(), "[c][call>{]");
  EXPECT_FALSE(Caller({}, "5").bytes("<5"));
  EXPECT_TRUE(call.filter.accept(kFirst + 1).ok());
  EXPECT_EQ(call.allowed(), "any");
}

// Kimi-K3.
TEST(CallFilter, AnEmptyResponseMayBeClosedInFrontOfACall) {
  Caller call({{"<|open|>"}, {"<|close|>"}}, "5", text::ToolCallFormat::KimiK3,
              text::detect_reasoning("<|open|>"));
  EXPECT_EQ(call.allowed(), "[ ][5][<][<|open|>][<|close|>]");
  EXPECT_TRUE(call.filter.accept(kFirst + 1).ok());
  EXPECT_EQ(call.allowed(), "[r]") << "of the response alone";
  EXPECT_TRUE(call.bytes("response<|sep|>"));
  EXPECT_EQ(call.allowed(), "[<][<|open|>]");
  EXPECT_TRUE(call.filter.accept(kFirst).ok());
  EXPECT_TRUE(call.bytes("tools<|sep|>"));
  EXPECT_EQ(call.allowed(), "any");
}

TEST(CallFilter, ABeginThatMayBeEitherStaysOpen) {
  const std::string list = "[TRUE";
  Caller call({}, list, text::ToolCallFormat::Mistral);
  EXPECT_EQ(call.allowed(), "[ ][[]");
  EXPECT_TRUE(call.bytes("[T"));
  EXPECT_EQ(call.allowed(), "[O][R]");
  EXPECT_TRUE(call.bytes("OOL_CALLS]"));
  EXPECT_EQ(call.allowed(), "any");
  Caller answer({}, list, text::ToolCallFormat::Mistral);
  EXPECT_TRUE(answer.bytes(list));
  EXPECT_EQ(answer.allowed(), "[<end>]");
}

}  // namespace
}  // namespace ktx::server
