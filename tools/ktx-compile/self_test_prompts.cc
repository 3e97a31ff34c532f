#include "tools/ktx-compile/self_test_prompts.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "lib/passes/make_self_test.h"
#include "lib/text/tokenizer/tokenizer.h"
#include "tools/progress.h"

namespace ktx::tools {
namespace {

// Prose, code, numbers and other scripts, so that tokens and experts differ.
constexpr const char* kTexts[] = {
    "A ship left the harbour before dawn, and by noon the hills behind it were a thin blue line.",
    "def mean(values):\n    total = sum(values)\n    return total / len(values)\n",
    "12 + 30 = 42, 7 * 8 = 56, 100 / 4 = 25, and 81 is the square of 9.",
    "Im Winter lag der See still unter dem Eis, und niemand ging über die Brücke.",
    "Question: Which planet is closest to the sun? Answer: Mercury, then Venus and the Earth.",
    "El tren llegó tarde a la estación porque había nieve en las vías de la montaña.",
    "SELECT name, COUNT(*) FROM orders WHERE total > 10 GROUP BY name ORDER BY 2 DESC;",
    "Le marché ouvre à six heures; on y trouve du pain, des pommes et du fromage."};
constexpr size_t kTokens = 16;  // of a prompt

std::vector<std::vector<int32_t>> prompts_of(const text::Tokenizer& tokenizer, size_t count) {
  std::vector<std::vector<int32_t>> prompts;
  for (size_t i = 0; i < std::min(count, std::size(kTexts)); ++i) {
    std::vector<int32_t> tokens = tokenizer.encode_prompt(kTexts[i]);
    tokens.resize(std::min(tokens.size(), kTokens));
    if (!tokens.empty()) prompts.push_back(std::move(tokens));
  }
  return prompts;
}

}  // namespace

Result<std::string> make_self_test(const Options& options, const input::ModelSource& source,
                                   const ir::ModuleGraph& graph, const plan::PlanFacts& facts) {
  const std::string why = plan::no_text_reason(facts);
  if (!why.empty()) return Error{fmt::format("{}: no --selftest: {}", options.model, why)};
  if (!facts.merged.empty()) {
    return Error{fmt::format(
        "{}: no --selftest: an adapter is merged, and the source's answers are without it",
        options.model)};
  }
  if (facts.lossy) {
    return Error{fmt::format(
        "{}: no --selftest: a rule had weights rounded, and the source's answers are those of its own weights",
        options.model)};
  }
  const text::Tokenizer tokenizer = KTX_TRY(text::Tokenizer::create(source.tokenizer));
  const auto prompts = prompts_of(tokenizer, static_cast<size_t>(options.self_tests));
  if (prompts.empty()) {
    return Error{fmt::format("{}: no --selftest: its tokenizer makes no tokens", options.model)};
  }
  Progress progress("computing the self-test", options.quiet, Progress::Unit::Tokens);
  const auto test =
      passes::make_self_test(graph, source.gguf, prompts, options.threads,
                             [&](uint64_t done, uint64_t total) { progress.update(done, total); });
  progress.finish();
  if (!test) return test.error();
  return plan::to_json(*test);
}

}  // namespace ktx::tools
