#include "lib/server/request/constraint.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/tiny_tokenizer.h"

namespace ktx::server {
namespace {

TEST(Constraint, AFilterAllowsUntilItsGrammarEnds) {
  ServedModel model;
  model.tokenizer =
      text::Tokenizer::create(testing::tiny_bpe({{"ab"}, {"<|im_end|>"}}, {"a b"}).take()).take();
  model.grammars = std::make_unique<GrammarCache>(*model.tokenizer);
  Constraint constraint;
  constraint.kind = Constraint::Kind::Gbnf;
  constraint.text = R"(root ::= [a-c] "x" ("b" root)? "!")";
  std::unique_ptr<runtime::TokenFilter> filter;
  ASSERT_TRUE(make_filter(model, constraint, false, filter));
  std::string said;
  while (said.find('!') == std::string::npos) {
    const runtime::TokenBits allowed = filter->allowed().take();
    EXPECT_FALSE(runtime::has_token(allowed, -1));
    EXPECT_FALSE(runtime::has_token(allowed, static_cast<int32_t>(model.tokenizer->size())));
    int32_t next = -1;
    for (int32_t id = 0; id < model.tokenizer->size(); ++id) {
      if (!runtime::has_token(allowed, id)) continue;
      // Twice around, then the end.
      if (next < 0 || (said.size() > 6 && model.tokenizer->piece(id)[0] == '!')) next = id;
    }
    ASSERT_GE(next, 0);
    ASSERT_TRUE(filter->accept(next).ok());
    said += model.tokenizer->piece(next);
    ASSERT_LT(said.size(), 64u);
  }
  EXPECT_FALSE(filter->accept(0).ok()) << "behind the end";
}

// `ignore_eos`: the answer goes on as long as its grammar lets it, and ends with it.
TEST(Constraint, WithoutEndsAGrammarStillEnds) {
  ServedModel model;
  model.tokenizer =
      text::Tokenizer::create(testing::tiny_bpe({{"ab"}, {"<|im_end|>"}}, {"a b"}).take()).take();
  model.grammars = std::make_unique<GrammarCache>(*model.tokenizer);
  const auto may_end = [&](const runtime::TokenBits& allowed) {
    for (int32_t id = 0; id < model.tokenizer->size(); ++id) {
      if (model.tokenizer->is_eog(id) && runtime::has_token(allowed, id)) return true;
    }
    return false;
  };
  const int32_t a = model.tokenizer->encode("a")[0];
  Constraint constraint;
  constraint.kind = Constraint::Kind::Regex;
  constraint.text = "a{1,3}";
  for (const bool ignore_end : {false, true}) {
    std::unique_ptr<runtime::TokenFilter> filter;
    ASSERT_TRUE(make_filter(model, constraint, ignore_end, filter));
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(may_end(filter->allowed().take()), i > 0 && !ignore_end) << i;
      ASSERT_TRUE(filter->accept(a).ok());
    }
    EXPECT_TRUE(may_end(filter->allowed().take())) << "nothing else may come";
  }
}

TEST(Constraint, AnErrorNamesTheFieldThatWasSent) {
  ServedModel model;
  model.tokenizer =
      text::Tokenizer::create(testing::tiny_bpe({{"ab"}, {"<|im_end|>"}}, {"a b"}).take()).take();
  model.grammars = std::make_unique<GrammarCache>(*model.tokenizer);
  Constraint constraint;
  constraint.kind = Constraint::Kind::JsonSchema;
  constraint.schema = {{"$dynamicRef", "#a"}};
  constraint.field = "guided_json";
  std::unique_ptr<runtime::TokenFilter> filter;
  const auto made = make_filter(model, constraint, false, filter);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().param, "guided_json");
  EXPECT_EQ(made.error().message,
            "'guided_json': schema at #: keyword '$dynamicRef' is not supported");
  Constraint call;
  call.kind = Constraint::Kind::ToolCall;
  call.field = "tools";
  call.tools = {{"f", {{"$dynamicRef", "#a"}}, "'tools[0].input_schema'"}};
  EXPECT_EQ(make_filter(model, call, false, filter).error().message,
            "'tools[0].input_schema': schema at #: keyword '$dynamicRef' is not supported");
}

}  // namespace
}  // namespace ktx::server
