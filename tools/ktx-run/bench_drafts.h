// Generation with draft tokens, measured: what a drafter makes of the tokens a second.
//
//   BenchDrafts drafts(engine, 4, model.drafter.get(), {.most = 4, .adaptive = false}, 0.7);
//   KTX_TRY(drafts.record(128, 4));                       // plain: the answers
//   const DraftRun run = KTX_TRY(drafts.run(128, 4));     // the same with draft tokens
//
// Greedy, from a prompt of one token behind `depth` tokens. With an acceptance the draft tokens are
// made of the recorded answer, right with that probability, and the text goes on with that answer;
// the drafter (may be null then) computes its own, which takes its time, and they are thrown away.
// So a speed can be measured at any acceptance with any pair of models, also of random weights.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "lib/runtime/draft/scripted_drafter.h"
#include "lib/runtime/draft/speculation.h"
#include "lib/runtime/engine/engine.h"
#include "tools/ktx-run/bench_runs.h"

namespace ktx::tools {

struct DraftRun {
  BenchRun speed;
  int64_t drafted = 0, accepted = 0;
  int64_t passes = 0;
  // Tokens a second that the measured times of passes and draft tokens predict for the acceptance,
  // with as many draft tokens as were made on average.
  double predicted_rate = 0;
  bool same = true;  // the model says what was recorded
};

class BenchDrafts {
 public:
  BenchDrafts(runtime::Engine& engine, runtime::Drafter* drafter,
              const runtime::SpeculationOptions& options, std::optional<double> acceptance);

  // Both generate `count` tokens of each of `sequences`, behind `depth` tokens.
  Result<BenchRun> record(int64_t count, int64_t sequences, int64_t depth);
  Result<DraftRun> run(int64_t count, int64_t sequences, int64_t depth);

 private:
  Result<DraftRun> generate(int64_t count, int64_t sequences, int64_t depth, int64_t most);

  runtime::Engine& engine_;
  const std::optional<double> acceptance_;
  std::unique_ptr<runtime::ScriptedDrafter> script_;  // null: the drafter's own draft tokens
  runtime::Speculation speculation_;
  std::vector<std::vector<int32_t>> answers_;
};

}  // namespace ktx::tools
