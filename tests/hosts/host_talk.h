// What tests of several hosts let an engine compute: passes in which every way of a value shows.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <span>
#include <vector>

#include "lib/runtime/engine/forward_watch.h"
#include "tests/hosts/host_plans.h"
#include "tests/support/text_session.h"

namespace ktx::testing {

// False: it was not computed. Else the logits are behind `bits`.
inline bool compute(runtime::Engine& engine, std::vector<runtime::BatchItem> items, Bits& bits) {
  const auto done = engine.forward(items);
  EXPECT_TRUE(done.ok()) << done.error().message;
  if (!done || *done != runtime::Forward::Done) return false;
  add_bits(engine, bits);
  return true;
}

// Two prompts, the longer one in chunks beside the other's tokens; then a third text that shares a
// beginning with the first one, whose blocks it must not write.
inline Bits talk(runtime::Engine& engine) {
  using runtime::Want;
  Bits bits;
  const std::vector<int32_t> first = random_text(130, 1), second = random_text(9, 2);
  runtime::Sequence a = engine.new_sequence(), b = engine.new_sequence();
  const auto prompt = std::span(first);
  if (!compute(engine, {{&a, prompt.first(70), Want::None}, {&b, second, Want::Last}}, bits)) {
    return bits;
  }
  int32_t of_b = best_id(engine, 0);
  if (!compute(engine, {{&a, prompt.subspan(70), Want::Last}, {&b, {&of_b, 1}, Want::Last}},
               bits)) {
    return bits;
  }
  std::vector<int32_t> text = first;
  for (int i = 0; i < 4; ++i) {
    const int32_t of_a = best_id(engine, 0);
    of_b = best_id(engine, 1);
    text.push_back(of_a);
    if (!compute(engine, {{&a, {&of_a, 1}, Want::Last}, {&b, {&of_b, 1}, Want::Last}}, bits)) break;
  }
  engine.cache().retire(std::move(a), text);
  std::vector<int32_t> third(text.begin(), text.begin() + 131);
  third.push_back(text[0]);
  runtime::Sequence c = engine.new_sequence();
  engine.cache().reuse(c, third);
  for (size_t at = static_cast<size_t>(c.length()); at < third.size(); at += 70) {
    const auto rest = std::span(third).subspan(at);
    if (!compute(engine, {{&c, rest.first(std::min<size_t>(rest.size(), 70)), Want::All}}, bits))
      break;
  }
  return bits;
}

// Passes of a prompt of which each is stopped by this share later than the one before: a text is
// computed whole or not at all.
inline void stop_prompts(runtime::Engine& engine, int passes, double share) {
  const std::vector<int32_t> prompt = random_text(80, 4);
  for (int i = 0; i < passes; ++i) {
    runtime::Sequence sequence = engine.new_sequence();
    const runtime::BatchItem item{&sequence, prompt, runtime::Want::Last};
    std::atomic<bool> stop = i == 0;
    const double at = share * i;
    const runtime::ForwardWatch watch{.stop = &stop, .progress = [&](double done) {
                                        if (done >= at) stop.store(true);
                                      }};
    const auto done = engine.forward({&item, 1}, {}, &watch);
    ASSERT_TRUE(done.ok()) << done.error().message;
    EXPECT_EQ(sequence.length(), *done == runtime::Forward::Stopped ? 0 : 80);
  }
}

}  // namespace ktx::testing
