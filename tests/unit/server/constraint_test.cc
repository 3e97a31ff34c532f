#include "lib/server/constraint.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/tiny_tokenizer.h"

namespace ktx::server {
namespace {

TEST(Constraint, WhatAFilterAllowsIsWhatItsMaskLeaves) {
  ServedModel model;
  model.tokenizer = text::Tokenizer::create(testing::tiny_bpe({{"ab"}}, {"a b"}).take()).take();
  model.grammars = std::make_unique<GrammarCache>(*model.tokenizer);
  Constraint constraint;
  constraint.kind = Constraint::Kind::Gbnf;
  constraint.gbnf = R"(root ::= [a-c] "x" ("b" root)? "!")";
  std::unique_ptr<runtime::TokenFilter> filter;
  ASSERT_FALSE(make_filter(model, constraint, filter).has_value());
  // Some logits more than tokens, as models have them.
  std::vector<float> logits(static_cast<size_t>(model.tokenizer->size()) + 37);
  for (int step = 0; step < 9; ++step) {
    std::fill(logits.begin(), logits.end(), 0.0f);
    if (!filter->mask(logits).ok()) {  // behind the end
      EXPECT_GE(step, 3);
      EXPECT_FALSE(filter->allows(0).ok());
      break;
    }
    int32_t next = -1;
    for (size_t id = 0; id < logits.size(); ++id) {
      const auto token = static_cast<int32_t>(id);
      ASSERT_EQ(filter->allows(token).take(), !std::isinf(logits[id])) << step << " " << id;
      if (!std::isinf(logits[id]) && (next < 0 || step % 2 == 1)) next = token;
    }
    EXPECT_FALSE(filter->allows(-1).take());
    ASSERT_GE(next, 0);
    ASSERT_TRUE(filter->accept(next).ok());
  }
}

}  // namespace
}  // namespace ktx::server
