#include "lib/runtime/session/session.h"

#include <algorithm>

#include "lib/runtime/cache/snapshot_places.h"
#include "lib/runtime/session/session_file.h"
#include "lib/support/timer.h"

namespace ktx::runtime {

Session::Session(Engine& engine, Sampler sampler)
    : engine_(&engine), sampler_(std::move(sampler)), sequence_(engine.new_sequence()) {}

// Computes `ids`, the tokens after those in the cache, in one step.
Result<Outcome> Session::compute(std::span<const int32_t> ids, bool want_logits,
                                 const PassWatch& watch) {
  fresh_ = loaded_ = false;
  BatchItem item{&sequence_, ids, want_logits ? Want::Last : Want::None, best_needed()};
  item.snapshots = snapshots_;
  const Forward forward = KTX_TRY(engine_->forward({&item, 1}, {}, &watch));
  if (forward == Forward::ContextFull) return Outcome::ContextFull;
  if (forward == Forward::CacheFull) return Outcome::CacheFull;
  if (forward == Forward::Stopped) return Outcome::Stopped;
  if (want_logits) {
    asked_ = item.best;
    best_.clear();
    logits_.clear();
    if (engine_->has_logits(0)) {
      const std::span<const float> row = engine_->logits(0);
      logits_.assign(row.begin(), row.end());
    } else {
      const BestLogits found = engine_->best(0);
      best_.assign(found.best.begin(), found.best.end());
      log_sum_ = found.log_sum;
    }
    fresh_ = true;
  }
  return Outcome::Ok;
}

void Session::watch(const std::atomic<bool>* stop, Tick progress) {
  stop_ = stop;
  tick_ = std::move(progress);
}

Result<Outcome> Session::prefill(std::span<const int32_t> ids, const Progress& progress) {
  if (static_cast<int64_t>(ids.size()) > room()) return Outcome::ContextFull;
  if (ids.empty()) return Outcome::Ok;
  tokens_.insert(tokens_.end(), ids.begin(), ids.end());
  const auto total = static_cast<int64_t>(tokens_.size());
  const int64_t start = sequence_.length();
  if (engine_->has_states()) snapshots_ = snapshot_places(tokens_, 0, ends_message_);
  const Timer timer;
  const auto go = [&]() -> Result<Outcome> {
    while (sequence_.length() < total) {
      const int64_t done = sequence_.length();
      const int64_t count = std::min(total - done, engine_->chunk_tokens());
      PassWatch watch{stop_, {}};
      if (tick_) {
        watch.progress = [&](double share) {
          tick_(static_cast<double>(done - start) + share * static_cast<double>(count),
                total - start);
        };
      }
      const Outcome outcome =
          KTX_TRY(compute(std::span(tokens_).subspan(done, count), done + count == total, watch));
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
  if (fresh_ && logits_.empty() && (best_needed() < 0 || best_needed() > asked_)) {
    // More is needed than was requested: once more.
    sequence_.truncate(sequence_.length() - 1);
  }
  // Logits are not in a session's file: the last token is computed again, to the same bits.
  if (loaded_) sequence_.truncate(total - 1);
  if (sequence_.length() < total) {
    const int64_t bytes_before = engine_->stats().weight_bytes;
    const Timer timer;
    // One token, or a text that is computed again because it could not be cut (truncate).
    while (sequence_.length() < total) {
      const int64_t count = std::min(total - sequence_.length(), engine_->chunk_tokens());
      const Outcome outcome =
          KTX_TRY(compute(std::span(tokens_).subspan(sequence_.length(), count),
                          sequence_.length() + count == total, PassWatch{stop_, {}}));
      if (outcome != Outcome::Ok) return Next{outcome, -1};
    }
    stats_.decode_tokens += 1;
    stats_.decode_seconds += timer.seconds();
    stats_.decode_weight_bytes += engine_->stats().weight_bytes - bytes_before;
  }
  if (!fresh_) return Error{"there are no tokens to continue from"};
  if (room() <= 0) return Next{Outcome::ContextFull, -1};
  const int32_t id = KTX_TRY(logits_.empty() ? sampler_.sample(BestLogits{best_, log_sum_})
                                             : sampler_.sample(logits_, tokens_));
  tokens_.push_back(id);
  return Next{Outcome::Ok, id};
}

Status Session::save(const std::string& path, const std::string& note) {
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
  if (length >= static_cast<int64_t>(tokens_.size())) return;
  // Logits stay good when only a token that was not computed yet goes.
  if (length < sequence_.length()) fresh_ = loaded_ = false;
  sequence_.truncate(length);
  tokens_.resize(std::max<int64_t>(0, length));
}

}  // namespace ktx::runtime
