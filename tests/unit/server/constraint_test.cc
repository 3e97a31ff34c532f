#include "lib/server/constraint.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/tiny_tokenizer.h"

namespace ktx::server {
namespace {

TEST(Constraint, AFilterAllowsUntilItsGrammarEnds) {
  ServedModel model;
  model.tokenizer = text::Tokenizer::create(testing::tiny_bpe({{"ab"}}, {"a b"}).take()).take();
  model.grammars = std::make_unique<GrammarCache>(*model.tokenizer);
  Constraint constraint;
  constraint.kind = Constraint::Kind::Gbnf;
  constraint.gbnf = R"(root ::= [a-c] "x" ("b" root)? "!")";
  std::unique_ptr<runtime::TokenFilter> filter;
  ASSERT_FALSE(make_filter(model, constraint, filter).has_value());
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

}  // namespace
}  // namespace ktx::server
