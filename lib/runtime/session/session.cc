#include "lib/runtime/session/session.h"

#include <algorithm>

#include "lib/runtime/cache/snapshot_places.h"
#include "lib/runtime/engine/text_chunks.h"
#include "lib/runtime/session/session_file.h"
#include "lib/support/timer.h"

namespace ktx::runtime {
namespace {

Outcome outcome_of(Forward forward) {
  if (forward == Forward::ContextFull) return Outcome::ContextFull;
  if (forward == Forward::CacheFull) return Outcome::CacheFull;
  return forward == Forward::Stopped ? Outcome::Stopped : Outcome::Ok;
}

}  // namespace

Session::Session(Engine& engine, Sampler sampler)
    : engine_(&engine), sampler_(std::move(sampler)), sequence_(engine.new_sequence()) {}

// Computes `ids`, the tokens after those in the cache, in one step.
Result<Outcome> Session::compute(std::span<const int32_t> ids, Want want,
                                 const ForwardWatch& watch) {
  fresh_ = loaded_ = false;
  BatchItem item{&sequence_, ids, want, best_needed()};
  item.snapshots = snapshots_;
  if (want == Want::All) item.rollback = static_cast<int64_t>(ids.size()) - 1;
  const Forward forward = KTX_TRY(engine_->forward({&item, 1}, {}, &watch));
  if (forward != Forward::Done) return outcome_of(forward);
  if (speculation_ && speculation_->reads_hidden()) {
    const int64_t count = std::ssize(ids);
    Speculation::Item text;
    text.text = &draft_;
    text.tokens = tokens_;
    text.sampler = &sampler_;
    speculation_->computed(text, *engine_, {0, sequence_.length() - count, count});
  }
  if (want != Want::None) {
    asked_ = item.best;
    take_row(0);
  }
  return Outcome::Ok;
}

// Whether chunks of the text may begin before those before them have ended. Windows are kept after
// each chunk (keep_places), and draft tokens are made of what each has given.
bool Session::goes_ahead(int64_t tokens) const {
  return !speculation_ && !engine_->has_windows() && has_chunks_in_flight(*engine_, tokens);
}

// The tokens that are not in the cache.
Result<Outcome> Session::compute_ahead(const Progress& progress) {
  fresh_ = loaded_ = false;
  const int64_t start = sequence_.length();
  const int64_t total = static_cast<int64_t>(tokens_.size()) - start;
  const BatchItem text{&sequence_, std::span(tokens_).subspan(start), Want::Last, best_needed()};
  const auto done = [&](int64_t tokens) {
    if (tick_) tick_(static_cast<double>(tokens), total);
    return !progress || progress(tokens, total);
  };
  const Forward forward = KTX_TRY(forward_in_chunks(*engine_, text, stop_, done));
  if (forward != Forward::Done) return outcome_of(forward);
  asked_ = text.best;
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
  draft_ = {};
  speculation_ = speculation;
}

// What may follow the last token, which is all that is to be computed. False: nothing drafts.
bool Session::draft() {
  if (!speculation_) return false;
  const int64_t rows = std::min(engine_->max_outputs(), engine_->chunk_tokens());
  Speculation::Item item;
  item.text = &draft_;
  item.tokens = tokens_;
  item.sampler = &sampler_;
  item.limit = std::max<int64_t>(0, std::min({rows - 1, room() - 1, engine_->rollback_tokens()}));
  speculation_->draft({&item, 1}, 0, item.limit);
  draft_tokens_ = std::move(item.draft_tokens);
  right_draft_tokens_ = 0;
  return true;
}

// The last token is computed again then; its row of logits is not kept.
void Session::drop_draft() {
  if (draft_tokens_.empty()) return;
  draft_tokens_.clear();
  fresh_ = false;
  sequence_.truncate(static_cast<int64_t>(tokens_.size()) - 1);
}

// `id` is the last token: the one that was drafted at its place, or the end of the draft tokens.
void Session::verify_draft(int32_t id) {
  if (!speculation_) return;
  if (right_draft_tokens_ < draft_tokens_.size() && draft_tokens_[right_draft_tokens_] == id) {
    ++right_draft_tokens_;
    return;
  }
  const auto drafted = static_cast<int64_t>(draft_tokens_.size());
  const auto right = static_cast<int64_t>(right_draft_tokens_);
  speculation_->verified(draft_, drafted, right);
  stats_.drafted_tokens += drafted;
  stats_.accepted_tokens += right;
  draft_tokens_.clear();
  right_draft_tokens_ = 0;
  if (right < drafted) sequence_.truncate(static_cast<int64_t>(tokens_.size()) - 1);
}

void Session::watch(const std::atomic<bool>* stop, Tick progress) {
  stop_ = stop;
  tick_ = std::move(progress);
}

Result<Outcome> Session::prefill(std::span<const int32_t> ids, const Progress& progress) {
  if (static_cast<int64_t>(ids.size()) > room()) return Outcome::ContextFull;
  if (ids.empty()) return Outcome::Ok;
  drop_draft();
  tokens_.insert(tokens_.end(), ids.begin(), ids.end());
  const auto total = static_cast<int64_t>(tokens_.size());
  const int64_t start = sequence_.length();
  if (engine_->has_states()) snapshots_ = snapshot_places(tokens_, 0, ends_message_);
  const Timer timer;
  const auto go = [&]() -> Result<Outcome> {
    if (goes_ahead(total - start)) return compute_ahead(progress);
    while (sequence_.length() < total) {
      const int64_t done = sequence_.length();
      const int64_t count = std::min(total - done, engine_->chunk_tokens());
      ForwardWatch watch{stop_, {}};
      if (tick_) {
        watch.progress = [&](double share) {
          tick_(static_cast<double>(done - start) + share * static_cast<double>(count),
                total - start);
        };
      }
      const Outcome outcome =
          KTX_TRY(compute(std::span(tokens_).subspan(done, count),
                          done + count == total ? Want::Last : Want::None, watch));
      if (outcome != Outcome::Ok) return outcome;
      const bool last = sequence_.length() == total;
      if (!last) keep_places();
      if (progress && !progress(sequence_.length() - start, total - start) && !last) {
        return Outcome::Stopped;
      }
    }
    return Outcome::Ok;
  };
  auto result = go();
  stats_.prompt_tokens += sequence_.length() - start;
  stats_.prompt_seconds += timer.seconds();
  tokens_.resize(sequence_.length());
  keep_places();
  return result;
}

// So that the text can go on from here when its windows and states are further on.
void Session::keep_places() {
  if (!engine_->has_windows() && !engine_->has_states()) return;
  engine_->keep_prefix(sequence_, std::span(tokens_).first(sequence_.length()));
}

Result<Outcome> Session::set_prompt(std::span<const int32_t> ids, const Progress& progress) {
  if (ids.empty()) return Error{"the prompt has no tokens"};
  if (static_cast<int64_t>(ids.size()) > engine_->ctx()) return Outcome::ContextFull;
  drop_draft();
  const auto same = std::mismatch(tokens_.begin(), tokens_.end(), ids.begin(), ids.end()).first;
  const auto kept = std::min<int64_t>(
      {same - tokens_.begin(), sequence_.length(), static_cast<int64_t>(ids.size()) - 1});
  if (kept < sequence_.length()) keep_places();
  truncate(kept);
  // Windows may have left the place behind, states may be further on; the tree may still know it.
  if (sequence_.length() < kept) engine_->reuse_prefix(sequence_, ids);
  stats_.reused_tokens += std::min(kept, sequence_.length());
  return prefill(ids.subspan(kept), progress);
}

Result<Next> Session::next() {
  const auto total = static_cast<int64_t>(tokens_.size());
  // More may be needed than was requested, and rows of logits go with the engine's next pass.
  const bool too_few = logits_.empty() && (best_needed() < 0 || best_needed() > asked_);
  if (!draft_tokens_.empty() && (too_few || engine_->stats().steps != draft_forward_)) drop_draft();
  if (!draft_tokens_.empty()) {
    take_row(static_cast<int64_t>(right_draft_tokens_));
    stats_.decode_tokens += 1;
  } else {
    if (fresh_ && too_few) sequence_.truncate(sequence_.length() - 1);
    // Logits are not in a session's file: the last token is computed again, to the same bits.
    if (loaded_) sequence_.truncate(total - 1);
    const Outcome outcome = KTX_TRY(compute_next());
    if (outcome != Outcome::Ok) return Next{outcome, -1};
  }
  if (!fresh_) return Error{"there are no tokens to continue from"};
  if (room() <= 0) return Next{Outcome::ContextFull, -1};
  const int32_t id = KTX_TRY(logits_.empty() ? sampler_.sample(BestLogits{best_, log_sum_})
                                             : sampler_.sample(logits_, tokens_));
  tokens_.push_back(id);
  verify_draft(id);
  return Next{Outcome::Ok, id};
}

// The tokens that are not in the cache: one, with what may follow it, or a text that is computed
// again because it could not be cut (truncate).
Result<Outcome> Session::compute_next() {
  const auto total = static_cast<int64_t>(tokens_.size());
  if (sequence_.length() == total) return Outcome::Ok;
  const int64_t bytes_before = engine_->stats().weight_bytes;
  const Timer timer;
  const bool asked = sequence_.length() == total - 1 && draft();
  if (!draft_tokens_.empty()) {
    std::vector<int32_t> ids = {tokens_.back()};
    ids.insert(ids.end(), draft_tokens_.begin(), draft_tokens_.end());
    const Timer pass;
    auto outcome = compute(ids, Want::All, ForwardWatch{stop_, {}});
    const bool computed = outcome && *outcome == Outcome::Ok;
    if (!computed) draft_tokens_.clear();
    if (!outcome || *outcome == Outcome::Stopped) return outcome;
    // Where there is no room for the draft tokens there may be for the token.
    if (computed) speculation_->passed(static_cast<int64_t>(ids.size()), pass.seconds());
    draft_forward_ = engine_->stats().steps;
  }
  while (sequence_.length() < total) {
    const int64_t count = std::min(total - sequence_.length(), engine_->chunk_tokens());
    const Timer pass;
    const Outcome outcome = KTX_TRY(compute(
        std::span(tokens_).subspan(sequence_.length(), count),
        sequence_.length() + count == total ? Want::Last : Want::None, ForwardWatch{stop_, {}}));
    if (outcome != Outcome::Ok) return outcome;
    if (asked) speculation_->passed(count, pass.seconds());
  }
  stats_.decode_tokens += 1;
  stats_.decode_seconds += timer.seconds();
  stats_.decode_weight_bytes += engine_->stats().weight_bytes - bytes_before;
  return Outcome::Ok;
}

Status Session::save(const std::string& path, const std::string& note) {
  drop_draft();
  // The last token is going to be computed again: better from the states before it, where they are.
  const int64_t before = sequence_.length() - 1;
  if (fresh_ && engine_->has_states() && sequence_.can_truncate(before)) sequence_.truncate(before);
  SavedSession saved;
  saved.tokens = tokens_;
  saved.sampler = sampler_.state();
  saved.note = note;
  return save_session(path, *engine_, saved, sequence_);
}

Result<std::string> Session::load(const std::string& path) {
  draft_tokens_.clear();
  tokens_.clear();
  logits_.clear();
  fresh_ = false;
  SavedSession saved = KTX_TRY(load_session(path, *engine_, sequence_));
  tokens_ = std::move(saved.tokens);
  if (saved.sampler) sampler_.set_state(*saved.sampler);
  loaded_ = true;
  return std::move(saved.note);
}

void Session::truncate(int64_t length) {
  drop_draft();
  if (length >= static_cast<int64_t>(tokens_.size())) return;
  // Logits stay good when only a token that was not computed yet goes.
  if (length < sequence_.length()) fresh_ = loaded_ = false;
  sequence_.truncate(length);
  tokens_.resize(std::max<int64_t>(0, length));
}

}  // namespace ktx::runtime
