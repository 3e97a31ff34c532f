// One conversation: a sequence in the cache, its tokens, and a sampler.
//
//   Session session(*engine, KTX_TRY(Sampler::create(options, engine->vocab_size())));
//   KTX_TRY(session.set_prompt(ids));
//   for (;;) {
//     const Next next = KTX_TRY(session.next());
//     if (next.outcome != Outcome::Ok) break;      // the context is full
//     print(next.id);
//     if (is_end(next.id)) break;
//   }
//   session.set_prompt(longer_ids)                  // computes only what is new
//
// A token returned by next() is in tokens() at once and enters the cache at the following call:
// the last token of an answer is never computed in vain. Not thread-safe; the engine must
// outlive the session.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lib/runtime/draft/speculation.h"
#include "lib/runtime/engine/engine.h"
#include "lib/runtime/engine/text_chunks.h"
#include "lib/runtime/sampling/sampler.h"
#include "lib/runtime/session/text_run.h"
#include "lib/support/result.h"

namespace ktx::runtime {

enum class Outcome {
  Ok,
  ContextFull,  // no room for the tokens in a context of engine.ctx()
  CacheFull,    // other sequences hold all blocks of the cache
  Stopped,      // by the progress function or the flag of watch()
};

struct Next {
  Outcome outcome = Outcome::Ok;
  int32_t id = -1;
};

// Sums since the session began, or since reset_stats().
struct SessionStats {
  int64_t prompt_tokens = 0;  // computed; those found in the cache are not counted
  int64_t reused_tokens = 0;  // found in the cache by set_prompt()
  double prompt_seconds = 0;
  int64_t decode_tokens = 0;  // computed one by one
  double decode_seconds = 0;
  int64_t decode_weight_bytes = 0;
  int64_t drafted_tokens = 0;   // drafted (speculation)
  int64_t accepted_tokens = 0;  // of these, right

  double prompt_rate() const { return prompt_seconds > 0 ? prompt_tokens / prompt_seconds : 0; }
  double decode_rate() const { return decode_seconds > 0 ? decode_tokens / decode_seconds : 0; }
  double bytes_per_token() const {
    return decode_tokens > 0 ? static_cast<double>(decode_weight_bytes) / decode_tokens : 0;
  }
};

class Session {
 public:
  // Called after each chunk with tokens done and tokens to do; false stops. For what goes on
  // within a chunk, watch().
  using Progress = std::function<bool(int64_t done, int64_t total)>;

  // `lora`: Engine::new_sequence. Such a session has no files.
  Session(Engine& engine, Sampler sampler, LoraChoice lora = {});

  // Appends tokens and computes them, chunk by chunk. ContextFull: nothing was
  // changed. Other outcomes and errors: tokens() holds what was computed.
  Result<Outcome> prefill(std::span<const int32_t> ids, const Progress& progress = {});
  // Makes tokens() equal to `ids`, keeping the common beginning that the cache has.
  // At least the last token is computed. `ids` must not be empty.
  Result<Outcome> set_prompt(std::span<const int32_t> ids, const Progress& progress = {});

  // The images of the next prompt, whose tokens are in it.
  void show_images(std::vector<ImageTokens> images) { text_.images = std::move(images); }

  // The tokens that end messages: behind them texts go on otherwise (snapshot_places.h).
  void end_messages_at(std::function<bool(int32_t)> ends) { ends_message_ = std::move(ends); }

  // From now on `stop` (null: nothing) ends what is being computed once it is true: prefill()
  // and next() give Stopped, and the session is as after the last whole chunk or token.
  // `progress` (may be empty) sees tokens done, a share of a chunk as well, and tokens to do
  // in prefill(); called by any of the engine's threads, one at a time.
  using Tick = std::function<void(double done, int64_t total)>;
  void watch(const std::atomic<bool>* stop, Tick progress = {});

  // The next token, sampled after the last one. tokens() must not be empty, and
  // after truncate() something must have been prefilled.
  Result<Next> next();

  // From now on next() computes what `speculation` drafts (null: nothing) with the last token; it
  // outlives the session. The engine has room for the rows of logits (sequence_logits).
  void speculate(Speculation* speculation);

  // Logits after the last computed token: those that next() used last, or that it
  // will use when nothing is waiting to be computed. Empty before the first prefill.
  std::span<const float> logits() const { return logits_; }
  // False: what the sampler needs is enough, and a GPU sends no more. logits() may be empty
  // then. At first true.
  void keep_logits(bool keep) { keep_logits_ = keep; }

  std::span<const int32_t> tokens() const { return text_.tokens; }
  // Forgets all tokens from `length` on.
  void truncate(int64_t length);
  // How many more tokens the context can take.
  int64_t room() const { return engine_->ctx() - std::ssize(text_.tokens); }

  // The text with its keys, values and random numbers in a file, and back: what next()
  // gives afterwards is what it would have given before (session_file.h). `note` is the
  // caller's. When load() fails the session is empty.
  Status save(const std::string& path, const std::string& note = {});
  Result<std::string> load(const std::string& path);

  const Sampler& sampler() const { return text_.sampler; }
  const SessionStats& stats() const { return stats_; }
  void reset_stats() { stats_ = {}; }
  Engine& engine() const { return *engine_; }

 private:
  Result<Outcome> compute(ChunkWatch watch);
  Result<Outcome> compute_next();
  void draft();
  void take_row(int64_t row);
  void drop_draft();
  void verify_draft();
  void keep_places();
  int32_t best_needed() const { return keep_logits_ ? -1 : text_.sampler.best_needed(); }

  Engine* engine_;
  // Draft tokens stay with it while next() gives them one by one; their rows of logits are those of
  // the engine's pass `draft_forward_`.
  TextRun text_;
  int64_t draft_forward_ = 0;
  const std::atomic<bool>* stop_ = nullptr;
  Tick tick_;
  std::function<bool(int32_t)> ends_message_;
  std::vector<float> logits_;
  std::vector<TokenLogit> best_;  // in place of logits_, as many as were requested
  int32_t asked_ = -1;
  double log_sum_ = 0;
  bool keep_logits_ = true;
  Speculation* speculation_ = nullptr;
  bool loaded_ = false;  // from a file, and nothing was computed since
  bool fresh_ = false;   // logits_ or best_ follow the last cached token
  SessionStats stats_;
};

}  // namespace ktx::runtime
