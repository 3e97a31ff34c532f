#include "lib/text/grammar/plain_texts.h"

#include <fmt/format.h>

#include "lib/text/grammar/string_pattern.h"

namespace ktx::text::grammar {

Result<GrammarRules> choice_rules(std::span<const std::string> texts) {
  if (texts.empty()) return Error{"there is no text to choose"};
  if (texts.size() > kMaxTexts) {
    return Error{
        fmt::format("{} texts to choose from; at most {} are possible", texts.size(), kMaxTexts)};
  }
  GrammarRules g;
  std::vector<int> ways;
  ways.reserve(texts.size());
  for (const std::string& text : texts) ways.push_back(g.text(text));
  g.root = g.add_rule("root");
  g.set_rule(g.root, g.alternatives(std::move(ways)));
  return g;
}

Result<GrammarRules> regex_rules(std::string_view pattern) {
  GrammarRules g;
  g.root = g.add_rule("root");
  g.set_rule(g.root, KTX_TRY(pattern_text(g, pattern)));
  return g;
}

}  // namespace ktx::text::grammar
