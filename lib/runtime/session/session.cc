#include "lib/runtime/session/session.h"

#include <algorithm>
#include <utility>

#include "lib/runtime/cache/snapshot_places.h"
#include "lib/runtime/session/session_file.h"
#include "lib/support/timer.h"

namespace ktx::runtime {

Session::Session(Engine& engine, Sampler sampler, LoraChoice lora)
    : engine_(&engine), text_(std::move(sampler)) {
  text_.sequence.emplace(engine.new_sequence({}, std::move(lora)));
}

// What the text took, up to its last token.
Result<Outcome> Session::compute(ChunkWatch watch) {
  fresh_ = loaded_ = false;
  watch.stop = stop_;
  watch.one_by_one = engine_->cache().has_windows();  // they are kept after each chunk (prefill)
  asked_ = best_needed();
  const Forward forward = KTX_TRY(text_.compute(*engine_, asked_, std::move(watch), speculation_));
  if (forward == Forward::ContextFull) return Outcome::ContextFull;
  if (forward == Forward::CacheFull) return Outcome::CacheFull;
  if (forward == Forward::Stopped) return Outcome::Stopped;
  take_row(0);
  return Outcome::Ok;
}

// The logits of the next token, from the rows of the last pass.
void Session::take_row(int64_t row) {
  best_.clear();
  logits_.clear();
  if (engine_->has_logits(row)) {
    const std::span<const float> logits = engine_->logits(row);
    logits_.assign(logits.begin(), logits.end());
  } else {
    const BestLogits found = engine_->best(row);
    best_.assign(found.best.begin(), found.best.end());
    log_sum_ = found.log_sum;
  }
  fresh_ = true;
}

void Session::speculate(Speculation* speculation) {
  drop_draft();
  text_.draft = {};
  speculation_ = speculation;
}

// What may follow the last token, which is all that is to be computed.
void Session::draft() {
  const int64_t rows = std::min(engine_->max_outputs(), engine_->chunk_tokens());
  const int64_t limit =
      std::max<int64_t>(0, std::min({rows - 1, room() - 1, engine_->rollback_tokens()}));
  Speculation::Item item = text_.draft_item(limit);
  speculation_->draft({&item, 1}, 0, limit);
  text_.take_draft(item);
}

// The last token is computed again then; its row of logits is not kept.
void Session::drop_draft() {
  if (text_.draft_tokens == 0) return;
  text_.draft_tokens = 0;
  fresh_ = false;
  text_.sequence->truncate(std::ssize(text_.tokens) - 1);
}

// The last token is the one that was drafted at its place, or the end of the draft tokens.
void Session::verify_draft() {
  if (!speculation_ || text_.verify()) return;
  stats_.drafted_tokens += text_.draft_tokens;
  stats_.accepted_tokens += text_.right_draft_tokens;
  text_.end_draft(speculation_);
}

void Session::watch(const std::atomic<bool>* stop, Tick progress) {
  stop_ = stop;
  tick_ = std::move(progress);
}

Result<Outcome> Session::prefill(std::span<const int32_t> ids, const Progress& progress) {
  if (static_cast<int64_t>(ids.size()) > room()) return Outcome::ContextFull;
  if (ids.empty()) return Outcome::Ok;
  drop_draft();
  text_.tokens.insert(text_.tokens.end(), ids.begin(), ids.end());
  const int64_t start = text_.computed(), total = text_.remaining();
  if (engine_->cache().has_states())
    text_.snapshots = snapshot_places(text_.tokens, 0, ends_message_);
  ChunkWatch watch;
  if (tick_) watch.progress = [&](double done) { tick_(done, total); };
  watch.done = [&](int64_t done) {
    if (done < total) keep_places();
    return !progress || progress(done, total);
  };
  const Timer timer;
  text_.take(total);
  auto result = compute(std::move(watch));
  stats_.prompt_tokens += text_.computed() - start;
  stats_.prompt_seconds += timer.seconds();
  text_.tokens.resize(text_.computed());
  keep_places();
  return result;
}

// So that the text can go on from here when its windows and states are further on.
void Session::keep_places() {
  if (!engine_->cache().has_windows() && !engine_->cache().has_states()) return;
  engine_->cache().keep(*text_.sequence, text_.cached());
}

Result<Outcome> Session::set_prompt(std::span<const int32_t> ids, const Progress& progress) {
  if (ids.empty()) return Error{"the prompt has no tokens"};
  if (static_cast<int64_t>(ids.size()) > engine_->ctx()) return Outcome::ContextFull;
  drop_draft();
  Sequence& sequence = *text_.sequence;
  const auto same = std::mismatch(tokens().begin(), tokens().end(), ids.begin(), ids.end()).first;
  const auto kept = std::min<int64_t>(
      {same - tokens().begin(), sequence.length(), static_cast<int64_t>(ids.size()) - 1});
  if (kept < sequence.length()) keep_places();
  truncate(kept);
  // Windows may have left the place behind, states may be further on; the tree may still know it.
  if (sequence.length() < kept) engine_->cache().reuse(sequence, ids);
  stats_.reused_tokens += std::min(kept, sequence.length());
  return prefill(ids.subspan(kept), progress);
}

Result<Next> Session::next() {
  Sequence& sequence = *text_.sequence;
  // More may be needed than was requested, and rows of logits go with the engine's next pass.
  const bool too_few = logits_.empty() && (best_needed() < 0 || best_needed() > asked_);
  if (too_few || engine_->stats().passes != draft_forward_) drop_draft();
  if (text_.draft_tokens > 0) {
    take_row(text_.right_draft_tokens);
    stats_.decode_tokens += 1;
  } else {
    if (fresh_ && too_few) sequence.truncate(sequence.length() - 1);
    // Logits are not in a session's file: the last token is computed again, to the same bits.
    if (loaded_) sequence.truncate(std::ssize(text_.tokens) - 1);
    const Outcome outcome = KTX_TRY(compute_next());
    if (outcome != Outcome::Ok) return Next{outcome, -1};
  }
  if (!fresh_) return Error{"there are no tokens to continue from"};
  if (room() <= 0) return Next{Outcome::ContextFull, -1};
  const int32_t id = KTX_TRY(logits_.empty() ? text_.sampler.sample(BestLogits{best_, log_sum_})
                                             : text_.sampler.sample(logits_, text_.tokens));
  text_.tokens.push_back(id);
  verify_draft();
  return Next{Outcome::Ok, id};
}

// The tokens that are not in the cache: one, with what may follow it, or a text that is computed
// again because it could not be cut (truncate).
Result<Outcome> Session::compute_next() {
  if (text_.remaining() == 0) return Outcome::Ok;
  const int64_t bytes_before = engine_->stats().weight_bytes;
  const Timer timer;
  text_.take(text_.remaining());
  const bool drafts = speculation_ && text_.remaining() == 1;
  if (drafts) draft();
  const Timer pass;
  Result<Outcome> outcome = compute({});
  // Where there is no room for the draft tokens there may be for the token.
  const bool full = outcome && (*outcome == Outcome::ContextFull || *outcome == Outcome::CacheFull);
  if (full && text_.draft_tokens > 0) {
    text_.take(1);
    outcome = compute({});
  }
  if (!outcome || *outcome != Outcome::Ok) {
    text_.draft_tokens = 0;
    return outcome;
  }
  if (drafts) speculation_->passed(std::ssize(text_.step_ids), pass.seconds());
  draft_forward_ = engine_->stats().passes;
  stats_.decode_tokens += 1;
  stats_.decode_seconds += timer.seconds();
  stats_.decode_weight_bytes += engine_->stats().weight_bytes - bytes_before;
  return Outcome::Ok;
}

Status Session::save(const std::string& path, const std::string& note) {
  drop_draft();
  Sequence& sequence = *text_.sequence;
  // The last token is going to be computed again: better from the states before it, where they are.
  const int64_t before = sequence.length() - 1;
  if (fresh_ && engine_->cache().has_states() && sequence.can_truncate(before))
    sequence.truncate(before);
  SavedSession saved;
  saved.tokens = text_.tokens;
  saved.sampler = text_.sampler.state();
  saved.note = note;
  return save_session(path, *engine_, saved, sequence);
}

Result<std::string> Session::load(const std::string& path) {
  text_.draft_tokens = 0;
  text_.tokens.clear();
  logits_.clear();
  fresh_ = false;
  SavedSession saved = KTX_TRY(load_session(path, *engine_, *text_.sequence));
  text_.tokens = std::move(saved.tokens);
  if (saved.sampler) text_.sampler.set_state(*saved.sampler);
  loaded_ = true;
  return std::move(saved.note);
}

void Session::truncate(int64_t length) {
  drop_draft();
  if (length >= std::ssize(text_.tokens)) return;
  // Logits stay good when only a token that was not computed yet goes.
  if (length < text_.computed()) fresh_ = loaded_ = false;
  text_.sequence->truncate(length);
  text_.tokens.resize(std::max<int64_t>(0, length));
}

}  // namespace ktx::runtime
