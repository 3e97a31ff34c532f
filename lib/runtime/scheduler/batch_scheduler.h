// Continuous batching: many requests on one engine, which join and leave the batch between
// iterations.
//
//   BatchScheduler scheduler(*engine, {.max_queue = 256});
//   BatchScheduler::Refused refused;
//   const RequestId id = scheduler.submit(std::move(request), &refused);  // 0: see `refused`
//   ...on_token, on_token, on_end
//   scheduler.cancel(id);
//
// One thread owns the engine. Each iteration admits new requests, of a key the oldest first, as far
// as slots (engine.max_batch()) and cache blocks allow; plans a step over all running requests
// (batch_plan.h); computes; samples; calls back. Keys share slots, blocks and steps (key_shares.h):
// where one has taken those of another, or the cache is full in the middle of an answer, its
// youngest request is preempted: it gives back its blocks and waits. It is
// recomputed later, and because the bits of an answer depend on its own tokens alone (CPU), it
// continues unchanged. So an answer in a batch equals the answer alone, with draft tokens or
// without.
//
// Where layers are on several hosts, steps of other requests begin before the first one has its
// results (engine.most_forwards()), so that all hosts compute. With draft tokens, steps take turns.
//
// An exception from a callback or a filter ends its own request as Failed; an exception from a
// step (out of memory) ends the running requests. The thread continues.
//
// submit(), cancel(), stats(), slots() may be called from any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "lib/runtime/draft/speculation.h"
#include "lib/runtime/engine/engine.h"
#include "lib/runtime/scheduler/filter_worker.h"
#include "lib/runtime/scheduler/generation_request.h"
#include "lib/runtime/scheduler/key_quota.h"
#include "lib/runtime/scheduler/key_shares.h"
#include "lib/runtime/scheduler/scheduler_stats.h"
#include "lib/runtime/scheduler/slot_texts.h"
#include "lib/runtime/scheduler/step_turns.h"
#include "lib/support/result.h"

namespace ktx::runtime {

using RequestId = uint64_t;  // 0: none

struct SchedulerOptions {
  int64_t max_queue = 256;  // requests that may wait beside those that fill the batch
  int64_t key_slots = 0;    // most places of a key in the batch; 0: all
  bool keep_prefixes = true;
  bool share_prefixes = false;  // owners use each other's: faster, but the time reveals them
  // Speculative decoding (draft/speculation.h): what drafts tokens for the model to verify;
  // answers stay the same. Null: nothing. The engine has room for the rows of logits
  // (sequence_logits).
  std::shared_ptr<Drafter> drafter;
  SpeculationOptions speculation;
  // Prepare filters while a step is computed. Empty: where a GPU computes it, so that it
  // takes nothing from the step.
  std::optional<bool> filters_beside_steps;
  StepTurns* turns = nullptr;  // of several models; outlives them
  // Called after each step, on the engine's thread (profiles).
  std::function<void(Engine&)> after_step;
};

class BatchScheduler {
 public:
  // `engine` must outlive the scheduler; no other code may use it meanwhile except through
  // call().
  BatchScheduler(Engine& engine, const SchedulerOptions& options);
  ~BatchScheduler();  // stop()
  BatchScheduler(const BatchScheduler&) = delete;
  BatchScheduler& operator=(const BatchScheduler&) = delete;

  // What became of a request that was not taken: then on_end is not called.
  enum class Refusal { Invalid, TooLong, QueueFull, Draining };
  struct Refused {
    Refusal why = Refusal::Invalid;
    std::string message;
    int64_t prompt_tokens = 0, context_tokens = 0;  // of TooLong
  };
  // The id, or 0 and why not in `refused`.
  RequestId submit(GenerationRequest request, Refused* refused = nullptr);
  // The refusal of a prompt of so many tokens; nothing: it fits.
  std::optional<Refused> too_long(int64_t tokens) const;

  // Ends a request soon; unknown and ended ones are ignored.
  void cancel(RequestId id);
  // Takes no more requests. wait_idle() returns when all have ended.
  void drain();
  bool wait_idle(std::chrono::milliseconds limit);
  void cancel_all();
  // Ends what still runs with EndReason::ShutDown; when it returns no callback runs or
  // will. For the owner: not from a callback, and nothing but stats() after it. If callbacks share
  // the scheduler, its owner must call this, or the last callback would destroy the scheduler.
  void stop();

  // Runs `work` on the engine's thread between two steps and waits for it; throws what it threw.
  void call(const std::function<void(Engine&)>& work);

  SchedulerStats stats() const;
  // Each owner of requests sees its own texts in the slots, and those of others as empty ones.
  std::vector<SlotState> slots(const std::string& owner = {}) const;
  // The text of a slot, of its request, running or ended. The cache may have all, a part
  // or none of it.
  SlotText slot_text(int slot, const std::string& owner = {}) const;
  // Calls `work` on the engine's thread with a slot's text and, when its request runs, the
  // sequence that holds what is computed of it (else null).
  using SlotWork = std::function<void(Engine&, const SlotText&, const Sequence*)>;
  void call_with_slot(int slot, const SlotWork& work, const std::string& owner = {});
  // Gives an idle slot another text, or none; false when it is busy with the owner's own.
  bool set_slot_text(int slot, SlotText text, const std::string& owner = {});

  // Most tokens that a prompt and its answer can have together.
  int64_t capacity() const { return capacity_; }
  // Requests that run or wait, at most.
  int64_t most_open() const { return unanswered_.most(); }
  // Draft tokens of a request in a pass; 0: there are none.
  int64_t max_draft_tokens() const { return speculation_ ? speculation_->options().most : 0; }
  // Under which name the cache keeps what an owner's requests compute.
  std::string cache_owner(const std::string& owner) const {
    return options_.share_prefixes ? std::string() : owner;
  }

 private:
  struct Running;  // running_request.h
  struct StepItems;
  struct Choice;
  using Clock = std::chrono::steady_clock;

  void loop();
  bool take_in();
  void admit();
  enum class Place { Ready, Missing, NoBlocks };
  Place make_place(Running& next);
  void take_place(size_t waiting, SlotState& place);
  int64_t missing_blocks(const Running& next) const;
  std::vector<ShareItem> running_items() const;
  SlotState* free_place(const Running& next);
  void step();
  bool begin_step();
  void finish_step();
  void not_computed(const StepItems& step, const Result<Forward>& why);
  void finish_steps();
  void drop_steps();
  std::vector<bool> choose_turn() const;
  void fail_round(const std::string& why);
  bool may_shift(const Running& running) const;
  void shift_contexts();
  PrefixHit place_anew(Running& running);
  void choose_snapshots(Running& running, const PrefixHit& hit);
  void share_prefixes();
  StepItems gather();
  BatchItem item_of(Running& running);
  void start_filters(const StepItems& step);
  void take_results(const StepItems& step);
  void take_rows(Running& running, int64_t row, int64_t rows, std::optional<Result<Choice>> first);
  bool tell_prompt(Running& running, int64_t row, int64_t rows);
  void keep_prefixes(const StepItems& step);
  std::vector<std::optional<Result<Choice>>> choose_first(const StepItems& step);
  Result<Choice> choose(Running& running, int64_t row);
  bool next_token(Running& running, Result<Choice> choice);
  void limit_rows(std::vector<int64_t>& shares) const;
  void take_scores(Running& running, int64_t row);
  void pool_rows(Running& running, int64_t row, int64_t rows);
  void show_hidden(const StepItems& step);
  void draft(std::span<Running* const> who, int64_t budget);
  int64_t draft_limit(const Running& running) const;
  bool make_room();
  void preempt(size_t running);
  void end(Running& running, EndReason reason, std::string error = {});
  void end_where(const std::function<std::pair<bool, EndReason>(const Running&)>& test);
  void count_end(const Running& running);
  void publish_stats();

  Engine& engine_;
  const SchedulerOptions options_;
  int64_t capacity_ = 0;

  // Shared with callers.
  mutable std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::vector<std::unique_ptr<Running>> arrived_;
  std::vector<RequestId> cancelled_;
  std::vector<std::function<void()>> work_;
  bool cancel_all_ = false;
  bool draining_ = false;
  bool stopping_ = false;
  int64_t open_ = 0;     // submitted, and on_end has not returned
  KeyQuota unanswered_;  // submitted, and on_end was not called; by ShareOf::key
  RequestId last_id_ = 0;
  int64_t waiting_count_ = 0;
  int64_t refused_ = 0;
  int64_t accepted_ = 0;
  SchedulerStats published_;
  SlotTexts slot_texts_;

  // The engine thread's own.
  std::deque<std::unique_ptr<Running>> waiting_;
  std::vector<std::unique_ptr<Running>> running_;
  std::vector<SlotState> slots_;
  KeyShares shares_;
  SchedulerStats stats_;
  int64_t most_forwards_ = 1;         // steps in flight
  std::vector<StepItems> in_flight_;  // those that have begun, the oldest first
  bool drains_ = false;               // nothing begins before they have ended
  int64_t begun_steps_ = 0;

  std::unique_ptr<Speculation> speculation_;     // null: nothing is drafted
  bool drafts_ = true;                           // in the next step
  std::unique_ptr<FilterWorker> filter_worker_;  // null: filters do all in allowed()
  std::thread thread_;                           // last: starts when all else is there
};

}  // namespace ktx::runtime
