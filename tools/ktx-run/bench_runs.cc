#include "tools/ktx-run/bench_runs.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/runtime/engine/forward_watch.h"
#include "lib/runtime/engine/text_chunks.h"
#include "lib/runtime/sampling/sampler.h"
#include "lib/support/timer.h"
#include "tools/ktx-run/interrupt.h"

namespace ktx::tools {
namespace {

template <class Work>
Result<BenchRun> measure(runtime::Engine& engine, int64_t tokens, const Work& work) {
  const int64_t bytes = engine.stats().weight_bytes;
  const Timer timer;
  KTX_TRY(work());
  const double seconds = timer.seconds();
  return BenchRun{static_cast<double>(tokens) / seconds,
                  static_cast<double>(engine.stats().weight_bytes - bytes) / seconds};
}

}  // namespace

std::vector<int32_t> bench_tokens(int64_t count, int64_t vocab, uint64_t seed) {
  std::vector<int32_t> ids;
  uint64_t state = 88172645463325252u + seed * 0x9E3779B97F4A7C15u;
  for (int64_t i = 0; i < count; ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    ids.push_back(static_cast<int32_t>(state % static_cast<uint64_t>(vocab)));
  }
  return ids;
}

Result<int32_t> bench_best_token(const runtime::Engine& engine, int64_t row) {
  return engine.has_logits(row) ? runtime::best_token(engine.logits(row))
                                : runtime::best_token(engine.best(row));
}

Status check_forward(const runtime::Engine& engine, runtime::Forward done) {
  if (done == runtime::Forward::Done) return {};
  if (done == runtime::Forward::Stopped) return Error{"stopped"};
  return Error{fmt::format("the test needs a larger context than {}; give --ctx", engine.ctx())};
}

Status bench_forward(runtime::Engine& engine, std::span<const runtime::BatchItem> items) {
  const runtime::ForwardWatch watch{&interrupt_flag(), {}};
  return check_forward(engine, KTX_TRY(engine.forward(items, {}, &watch)));
}

BenchRuns::BenchRuns(runtime::Engine& engine, int64_t most_sequences) : engine_(engine) {
  for (int64_t i = 0; i < most_sequences; ++i) {
    sequences_.push_back(engine.new_sequence({}, engine.own_lora()));
  }
}

Status BenchRuns::fill(int64_t depth) {
  depth_ = depth;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    sequences_[i].truncate(0);
    KTX_TRY(rewind(i));
  }
  return {};
}

void BenchRuns::empty() {
  for (runtime::Sequence& sequence : sequences_) sequence.truncate(0);
}

Status BenchRuns::rewind(size_t i) {
  sequences_[i].truncate(depth_);
  const std::vector<int32_t> ids = bench_tokens(depth_, engine_.vocab_size(), i);
  return feed(sequences_[i], std::span(ids).subspan(static_cast<size_t>(sequences_[i].length())));
}

Result<BenchRun> BenchRuns::prompt(int64_t count) {
  KTX_TRY(rewind(0));
  const std::vector<int32_t> ids = bench_tokens(count, engine_.vocab_size(), 0);
  return measure(engine_, count, [&] { return feed(sequences_[0], ids); });
}

Result<BenchRun> BenchRuns::generation(int64_t count, int64_t sequences) {
  std::vector<int32_t> next(static_cast<size_t>(sequences));
  std::vector<runtime::BatchItem> items;
  for (size_t i = 0; i < next.size(); ++i) {
    KTX_TRY(rewind(i));
    next[i] = bench_tokens(1, engine_.vocab_size(), i)[0];
    items.push_back({&sequences_[i], {&next[i], 1}, runtime::Want::Last, 1});
  }
  return measure(engine_, count * sequences, [&]() -> Status {
    for (int64_t step = 0; step < count; ++step) {
      KTX_TRY(bench_forward(engine_, items));
      for (size_t i = 0; i < next.size(); ++i) {
        next[i] = KTX_TRY(bench_best_token(engine_, static_cast<int64_t>(i)));
      }
    }
    return {};
  });
}

Status BenchRuns::feed(runtime::Sequence& sequence, std::span<const int32_t> ids) {
  const runtime::BatchItem text{&sequence, ids, runtime::Want::Last, 1};
  return check_forward(
      engine_, KTX_TRY(runtime::forward_in_chunks(engine_, text, {.stop = &interrupt_flag()})));
}

}  // namespace ktx::tools
