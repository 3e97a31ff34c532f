// The 51 cases of the test models' references, run in this process: greedy tokens and
// the listed log-probabilities.
//
//   Comparison all;
//   compare_model(*engine, "qwen3moe", all);
//   EXPECT_GE(all.equal, 49);
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lib/runtime/engine/engine.h"
#include "tests/support/comparison.h"
#include "tests/support/temp_dir.h"

namespace ktx::testing {

// Compares the logits that follow a token with a step of the reference; the token to go
// on with, or -1 when it is not the reference's.
inline int32_t compare_step(std::span<const float> logits, const nlohmann::json& step,
                            int32_t expected, Comparison& out) {
  double top = -INFINITY, sum = 0;
  int32_t best = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > top) top = logits[i], best = static_cast<int32_t>(i);
  }
  for (float logit : logits) sum += std::exp(logit - top);
  const nlohmann::json& ids = step["top_ids"];
  const nlohmann::json& logprobs = step["top_logprobs"];
  for (size_t k = 0; k < ids.size(); ++k) {
    const double found = logits[ids[k].get<size_t>()] - top - std::log(sum);
    out.add(found, logprobs[k].get<double>());
  }
  if (best == expected) return best;
  return logprobs[0].get<double>() - logprobs[1].get<double>() < kReferenceTie ? -2 : -1;
}

// One case, its prompt in chunks of `chunk` tokens.
inline void compare_case(runtime::Engine& engine, const nlohmann::json& reference, int64_t chunk,
                         Comparison& out) {
  const auto prompt = reference["prompt_ids"].get<std::vector<int32_t>>();
  const auto greedy = reference["greedy_ids"].get<std::vector<int32_t>>();
  runtime::Sequence sequence = engine.new_sequence();
  const auto compute = [&](std::span<const int32_t> ids) {
    const runtime::BatchItem item{&sequence, ids, runtime::Want::Last};
    const auto done = engine.forward({&item, 1});
    EXPECT_TRUE(done.ok()) << done.error().message;
    return done.ok() && *done == runtime::Forward::Done;
  };
  ++out.cases;
  const auto all = std::span(prompt);
  for (size_t at = 0; at < all.size(); at += static_cast<size_t>(chunk)) {
    if (!compute(all.subspan(at, std::min(static_cast<size_t>(chunk), all.size() - at)))) return;
  }
  const nlohmann::json& steps = reference["steps"];
  for (size_t i = 0; i < steps.size(); ++i) {
    const int32_t id = compare_step(engine.logits(0), steps[i], greedy[i], out);
    if (id < 0) {
      out.equal += id == -2;
      return;
    }
    if (i + 1 < steps.size() && !compute({&id, 1})) return;
  }
  ++out.equal;
}

// All cases at once, as a server has them: one sequence each, every step decodes those
// that are not over yet.
inline void compare_together(runtime::Engine& engine, const nlohmann::json& cases,
                             Comparison& out) {
  struct Running {
    runtime::Sequence sequence;
    std::vector<int32_t> ids;  // to be computed next
    const nlohmann::json* reference;
    size_t step = 0;
  };
  std::vector<Running> running;
  for (const nlohmann::json& reference : cases) {
    running.push_back(
        {engine.new_sequence(), reference["prompt_ids"].get<std::vector<int32_t>>(), &reference});
    ++out.cases;
  }
  while (!running.empty()) {
    const size_t count = std::min<size_t>(running.size(), static_cast<size_t>(engine.max_batch()));
    std::vector<runtime::BatchItem> items;
    for (size_t i = 0; i < count; ++i) {
      items.push_back({&running[i].sequence, running[i].ids, runtime::Want::Last});
    }
    const auto done = engine.forward(items);
    ASSERT_TRUE(done.ok()) << done.error().message;
    ASSERT_EQ(*done, runtime::Forward::Done);
    for (size_t i = count; i-- > 0;) {
      Running& run = running[i];
      const nlohmann::json& steps = (*run.reference)["steps"];
      const int32_t expected = (*run.reference)["greedy_ids"][run.step].get<int32_t>();
      const int32_t id =
          compare_step(engine.logits(static_cast<int64_t>(i)), steps[run.step], expected, out);
      run.ids = {id};
      const bool over = ++run.step == steps.size();
      if (id >= 0 && !over) continue;
      out.equal += id != -1;
      running.erase(running.begin() + static_cast<ptrdiff_t>(i));
    }
  }
}

inline nlohmann::json reference_cases(const std::string& model_dir) {
  return nlohmann::json::parse(read_file(model_dir + "/reference-q4_k_m.json"))["cases"];
}

}  // namespace ktx::testing
