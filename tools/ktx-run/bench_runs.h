// One measured run of bench: a prompt, or the generation of several sequences side by side.
//
//   BenchRuns runs(engine, 16);
//   KTX_TRY(runs.fill(4096));                      // what follows is behind so many tokens
//   const BenchRun run = KTX_TRY(runs.generation(128, 16));
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lib/runtime/engine/engine.h"

namespace ktx::tools {

struct BenchRun {
  double rate = 0;              // tokens per second, of all sequences
  double bytes_per_second = 0;  // of weights
};

// Token ids that a real prompt might have: spread over the vocabulary, the same on every run,
// others for every seed.
std::vector<int32_t> bench_tokens(int64_t count, int64_t vocab, uint64_t seed);

// The most likely token in a row of the engine's last pass.
Result<int32_t> bench_best_token(const runtime::Engine& engine, int64_t row);
// An error unless it is Done.
Status check_forward(const runtime::Engine& engine, runtime::Forward done);
// In one pass.
Status bench_forward(runtime::Engine& engine, std::span<const runtime::BatchItem> items);

// Ctrl-C (interrupt.h) ends any of it with an error.
class BenchRuns {
 public:
  BenchRuns(runtime::Engine& engine, int64_t most_sequences);

  Status fill(int64_t depth);
  // The cache is empty until the next fill().
  void empty();
  // The first sequence alone.
  Result<BenchRun> prompt(int64_t count);
  // The next token of each is the best one's id, so that routing is that of real decoding.
  Result<BenchRun> generation(int64_t count, int64_t sequences);

 private:
  // Back to the depth; where a window has left it behind, its tokens are computed once more.
  Status rewind(size_t sequence);
  Status feed(runtime::Sequence& sequence, std::span<const int32_t> ids);

  runtime::Engine& engine_;
  std::vector<runtime::Sequence> sequences_;
  int64_t depth_ = 0;
};

}  // namespace ktx::tools
