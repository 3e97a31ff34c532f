#include "lib/runtime/quality/replay_answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "lib/runtime/engine/text_chunks.h"
#include "lib/runtime/sampling/log_softmax.h"

namespace ktx::runtime {

double divergence_of(const plan::SelfTestAnswer& source, std::span<const float> logits) {
  const Result<LogSoftmax> softmax = log_softmax(logits);
  if (!softmax) return INFINITY;
  std::vector<double> log_p, log_q;
  double sum_p = 0, sum_q = 0;
  for (size_t i = 0; i < source.ids.size(); ++i) {
    log_p.push_back(source.logits[i] - source.log_sum);
    log_q.push_back(softmax->logprob(logits[static_cast<size_t>(source.ids[i])]));
    sum_p += std::exp(log_p[i]);
    sum_q += std::exp(log_q[i]);
  }
  // What is left for all other tokens. Eight digits of a logit leave 1e-7 of it in its e^: where
  // less than ten times that is left, these tokens count as all, and their shares are free of it.
  const double least = 1e-6 * std::max(1.0, std::abs(source.log_sum));
  const double rest = 1 - sum_p, own_rest = 1 - sum_q;
  const double all_p = rest > least ? 0 : std::log(sum_p);
  const double all_q = own_rest > least ? 0 : std::log(sum_q);
  double divergence = rest > least ? rest * std::log(rest / std::max(own_rest, least)) : 0;
  for (size_t i = 0; i < log_p.size(); ++i) {
    const double log_share = log_p[i] - all_p;
    divergence += std::exp(log_share) * (log_share - (log_q[i] - all_q));
  }
  return std::isnan(divergence) ? INFINITY : std::max(divergence, 0.0);
}

SelfTestBound self_test_bound(const Engine& engine) {
  if (engine.precision() == Precision::Exact && engine.gpus().empty()) return {1e-7, 1e-5};
  return {0.02, 5};
}

Status append_tokens(Engine& engine, Sequence& sequence, std::span<const int32_t> tokens) {
  const BatchItem item{&sequence, tokens, Want::Last};
  if (KTX_TRY(forward_in_chunks(engine, item, {})) != Forward::Done) {
    return Error{fmt::format("the self-test needs a context of more than {} tokens; --ctx 4096",
                             engine.ctx())};
  }
  return engine.fetch_logits(0);
}

Result<SelfTestRun> replay(Engine& engine, const plan::SelfTest& test,
                           const std::atomic<bool>* stop) {
  SelfTestRun run;
  std::vector<double> all;
  run.bound = self_test_bound(engine);
  const auto compare = [&](size_t prompt, size_t token, bool as_a_whole) {
    const double found = divergence_of(test.prompts[prompt].answers[token], engine.logits(0));
    ++run.answers;
    all.push_back(found);
    if (found < run.worst || (found == run.worst && run.answers > 1)) return;
    run.worst = found;
    run.prompt = prompt;
    run.token = static_cast<int64_t>(token);
    run.as_a_whole = as_a_whole;
  };
  for (size_t p = 0; p < test.prompts.size(); ++p) {
    const std::span<const int32_t> tokens = test.prompts[p].tokens;
    Sequence whole = engine.new_sequence(), one_by_one = engine.new_sequence();
    KTX_TRY(append_tokens(engine, whole, tokens));
    compare(p, tokens.size() - 1, true);
    whole.truncate(0);
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (stop != nullptr && *stop) return Error{"stopped"};
      KTX_TRY(append_tokens(engine, one_by_one, tokens.subspan(i, 1)));
      compare(p, i, false);
    }
  }
  std::ranges::nth_element(all, all.begin() + std::ssize(all) / 2);
  run.median = all[all.size() / 2];
  return run;
}

}  // namespace ktx::runtime
