// One iteration of the batch: its inputs from each request, the forward pass, and its results.
//
//   shift_contexts   texts that have filled their context
//   share_prefixes   blocks that other requests have computed meanwhile
//   gather           the tokens of each request (batch_plan.h)
//   draft            and what may follow them (draft/speculation.h)
//   begin, finish    filters prepare beside it
//   take_results     rows of logits become tokens, hidden rows become vectors
//
// Over several hosts (lib/program/forwards_in_flight.h) some begin before the first one is
// finished, each of other requests:
//
//   begin 1-4 | begin 5-8 | finish 1-4, their tokens, begin 1-4 | finish 5-8 ...
#include <algorithm>
#include <utility>

#include "kernels/delta_net/state_segment.h"
#include "lib/runtime/cache/snapshot_places.h"
#include "lib/runtime/engine/logits_rows.h"
#include "lib/runtime/scheduler/batch_plan.h"
#include "lib/runtime/scheduler/running_request.h"

namespace ktx::runtime {
namespace {

constexpr int64_t kBlock = KvCache::kBlockTokens;

// How many of the best logits a request can do with; -1: it needs all.
int32_t best_needed(const Engine& engine, const GenerationRequest& request, const Sampler& sampler,
                    bool all_rows) {
  if (!engine.plan().facts.gives_logits()) return -1;
  if (request.embed) return 1;  // wants none
  if (all_rows) return -1;
  if (request.logprobs > kMostBestLogits) return -1;
  const int32_t chosen = sampler.best_needed();
  return chosen < 0 ? -1 : std::max(chosen, static_cast<int32_t>(request.logprobs));
}

// Each row of the text is needed, not only its last one.
bool pools_all(const Engine& engine, const GenerationRequest& request) {
  if (!request.embed || *request.embed == Pooling::Last) return false;
  return *request.embed != Pooling::Scores || engine.plan().facts.encoder;
}

// The token that all logits of the row would give. Where only the best of them are here, they
// are those that the filter allows.
Result<int32_t> choose_token(Engine& engine, int64_t row, const GenerationRequest& request,
                             Sampler& sampler, std::span<const int32_t> history) {
  if (!request.filter) {
    return engine.has_logits(row) ? sampler.sample(engine.logits(row), history)
                                  : sampler.sample(engine.best(row));
  }
  const TokenBits allowed = KTX_TRY(request.filter->allowed());
  if (engine.is_filtered(row)) return sampler.sample(engine.best(row));
  KTX_TRY(engine.fetch_logits(row));
  return sampler.sample(engine.logits(row), history, allowed);
}

}  // namespace

struct BatchScheduler::Choice {
  int32_t id = -1;
  Logprobs best;  // if requested
};

void BatchScheduler::step() {
  while (std::ssize(in_flight_) < most_forwards_ && begin_step()) {
  }
  if (!in_flight_.empty()) finish_step();
}

// False: there is nothing to begin, or not before those in flight have ended.
bool BatchScheduler::begin_step() {
  if (drains_ && !in_flight_.empty()) return false;
  drains_ = false;
  shift_contexts();
  share_prefixes();
  StepItems step = gather();
  if (step.who.empty()) return false;
  const StepTurns::Turn turn(most_forwards_ > 1 ? options_.turns : nullptr);
  const Clock::time_point begin = Clock::now();
  const Result<Forward> begun = engine_.begin(step.items, [this] {
    if (filter_worker_) filter_worker_->wait();
  });
  step.seconds = seconds(Clock::now() - begin);
  stats_.busy_seconds += step.seconds;
  const bool begins = begun && *begun == Forward::Done;
  // What others hold may be free after their passes; none is preempted before.
  drains_ = begun && *begun == Forward::CacheFull && !in_flight_.empty();
  if (drains_) return false;
  if (!begins) {
    not_computed(step, begun);
    std::erase_if(running_, [](const auto& running) { return running->ended; });
    return false;
  }
  ++begun_steps_;
  for (Running* running : step.who) {
    ++running->in_flight;
    running->last_step = begun_steps_;
  }
  in_flight_.push_back(std::move(step));
  return true;
}

void BatchScheduler::finish_step() {
  const StepItems step = std::move(in_flight_.front());
  in_flight_.erase(in_flight_.begin());
  const StepTurns::Turn turn(options_.turns);
  start_filters(step);
  const Clock::time_point begin = Clock::now();
  const Result<Forward> done = engine_.finish();
  const double taken = seconds(Clock::now() - begin);
  stats_.busy_seconds += taken;
  if (filter_worker_) filter_worker_->wait();
  for (Running* running : step.who) --running->in_flight;
  if (done && *done == Forward::Done) {
    drafts_ = true;
    if (speculation_) speculation_->passed(step.tokens(), step.seconds + taken);
    if (options_.after_step) options_.after_step(engine_);
    show_hidden(step);
    take_results(step);
    keep_prefixes(step);
  } else {
    not_computed(step, done);
  }
  for (Running* running : step.who) {
    if (!running->ends_as || running->in_flight > 0) continue;
    end(*running, running->ends_as->reason, std::move(running->ends_as->error));
  }
  std::erase_if(running_, [](const auto& running) { return running->ended; });
}

// Ends those who cannot have it, or makes room for them.
void BatchScheduler::not_computed(const StepItems& step, const Result<Forward>& why) {
  const std::vector<Running*>& who = step.who;
  const bool drafted = std::any_of(who.begin(), who.end(),
                                   [](const Running* running) { return running->draft_tokens; });
  if (speculation_) speculation_->forget_forward();
  drafts_ = !drafted;
  if (!why) {
    // Clients know no paths.
    const std::string text = engine_.check_plan()
                                 ? why.error().message
                                 : "the model's file was changed or cut off while it answered";
    for (Running* running : who) end(*running, EndReason::Failed, text);
  } else if (!drafts_) {
    // Without draft tokens it may have room.
  } else if (*why == Forward::CacheFull) {
    if (!make_room()) end(*running_.front(), EndReason::ContextFull);
  } else if (*why == Forward::ContextFull) {
    for (size_t i = 0; i < who.size(); ++i) {
      if (who[i]->begun() + step.count(i) > engine_.ctx()) end(*who[i], EndReason::ContextFull);
    }
  }
}

// Also where one throws: callers of call() wait for an answer.
void BatchScheduler::finish_steps() {
  try {
    while (!in_flight_.empty()) finish_step();
  } catch (...) {
    fail_round(exception_text());
  }
}

// Results are lost; who was to have them is as before the step.
void BatchScheduler::drop_steps() {
  engine_.finish_all();
  in_flight_.clear();
  for (auto& running : running_) running->in_flight = 0;
}

// Another request may have computed the next blocks of a prompt.
void BatchScheduler::share_prefixes() {
  for (auto& running : running_) {
    if (running->remaining() <= 1 || running->in_flight > 0 || !running->request.reuse_cache)
      continue;
    const int64_t before = running->computed();
    const PrefixHit hit = engine_.cache().reuse(*running->sequence, running->tokens);
    choose_snapshots(*running, hit);
    const int64_t found = hit.tokens - before;
    if (found <= 0 || !running->in_prompt()) continue;
    running->result.cached_tokens += found;
    stats_.cached_tokens += found;
  }
}

// Whose turn it is in the next step. With several in flight each has its share of the requests,
// those first that have waited for longest; a request is in one of them, but for chunks of a
// prompt, which may follow each other.
std::vector<bool> BatchScheduler::choose_turn() const {
  std::vector<bool> turn(running_.size());
  std::vector<size_t> able;
  for (size_t i = 0; i < running_.size(); ++i) {
    const Running& running = *running_[i];
    const bool free = running.in_flight == 0 || engine_.goes_ahead();
    if (free && !running.ends_as && !running.gives_way && running.to_begin() > 0) able.push_back(i);
  }
  const size_t share = (running_.size() + static_cast<size_t>(most_forwards_) - 1) /
                       static_cast<size_t>(most_forwards_);
  if (able.size() > share) {
    std::ranges::stable_sort(able, {}, [&](size_t i) { return running_[i]->last_step; });
    able.resize(share);
  }
  for (const size_t i : able) turn[i] = true;
  return turn;
}

BatchScheduler::StepItems BatchScheduler::gather() {
  std::vector<StepCandidate> candidates;
  const std::vector<bool> turn = choose_turn();
  for (size_t i = 0; i < running_.size(); ++i) {
    const Running& running = *running_[i];
    candidates.push_back({turn[i] ? running.to_begin() : 0, running.id, running.begun(),
                          running.blocks, turn[i] && running.in_prompt(),
                          running.begun() - running.computed(), running.request.share.key,
                          running.request.share.weight, running.images});
  }
  std::vector<int64_t> shares =
      engine_.plan().facts.encoder
          ? plan_whole_texts(candidates, engine_.chunk_tokens())
          : plan_step(candidates, engine_.chunk_tokens(), kBlock,
                      engine_.cache().has_states() ? kernels::kDeltaChunk : 1);
  if (!engine_.plan().facts.encoder) limit_rows(shares);
  int64_t budget = engine_.chunk_tokens();
  for (int64_t share : shares) budget -= share;

  StepItems step;
  for (size_t i = 0; i < running_.size(); ++i) {
    Running& running = *running_[i];
    if (shares[i] == 0) continue;
    running.take(shares[i]);
    step.who.push_back(&running);
  }
  if (speculation_) draft(step.who, budget);
  for (Running* running : step.who) step.items.push_back(item_of(*running));
  return step;
}

// What the step computes of a request.
BatchItem BatchScheduler::item_of(Running& running) {
  const bool each = running.tells_prompt();
  BatchItem item = running.item();
  if (each || pools_all(engine_, running.request)) item.want = Want::All;
  item.best = best_needed(engine_, running.request, running.sampler, each);
  if (TokenFilter* filter = running.request.filter.get(); filter != nullptr && item.best > 0) {
    // A filter knows what comes next and not what comes behind a draft token; and the best
    // log-probabilities refer to all tokens.
    const bool one_row = item.want == Want::Last && running.request.logprobs <= 0;
    item.best = one_row ? item.best : -1;
    item.filter = one_row ? filter : nullptr;
  }
  return item;
}

// Filters of those who get logits prepare while the step is computed.
void BatchScheduler::start_filters(const StepItems& step) {
  if (!filter_worker_) return;
  std::vector<TokenFilter*> filters;
  for (size_t i = 0; i < step.who.size(); ++i) {
    TokenFilter* filter = step.who[i]->request.filter.get();
    if (filter != nullptr && step.items[i].want != Want::None) filters.push_back(filter);
  }
  filter_worker_->start(std::move(filters));
}

void BatchScheduler::take_results(const StepItems& step) {
  stats_.steps += 1;
  stats_.expert_use = engine_.stats().expert_use;
  stats_.expert_cache = engine_.stats().expert_cache;
  stats_.expert_guests = engine_.stats().expert_guests;
  stats_.step_requests += static_cast<int64_t>(step.who.size());
  std::vector<std::optional<Result<Choice>>> choices = choose_first(step);
  int64_t row = 0;
  for (size_t i = 0; i < step.who.size(); row += step.rows(i), ++i) {
    Running& running = *step.who[i];
    stats_.computed_tokens += step.count(i);
    shares_.charge(running.request.share, running.take_charge());
    try {
      if (running.ends_as) continue;
      if (running.in_prompt()) running.tell_progress();
      if (step.rows(i) == 0) continue;
      int64_t first = 0;
      if (step.tells_prompt(i)) {
        if (!tell_prompt(running, row, step.rows(i)) || running.remaining() > 0) continue;
        first = step.rows(i) - 1;
      }
      take_rows(running, row + first, step.rows(i) - first, std::move(choices[i]));
    } catch (...) {
      end(running, EndReason::Failed, exception_text());
    }
  }
}

// Each row of a prompt has the log-probabilities of the token behind it. False: the request ended.
bool BatchScheduler::tell_prompt(Running& running, int64_t row, int64_t rows) {
  const GenerationRequest& request = running.request;
  const int64_t begin = running.computed() - rows;  // the text's token of the first row
  const auto size = static_cast<int64_t>(request.prompt.size());
  // What was reported before the request had to begin anew is not reported again.
  const int64_t from = std::max<int64_t>(0, running.next_told - 1 - begin);
  const int64_t to = std::min(rows, size - 1 - begin);
  if (to <= from) return true;
  std::vector<Result<Logprobs>> found(static_cast<size_t>(to - from), Logprobs());
  const Status fetched =
      visit_logits(engine_, row + from, to - from, [&](int64_t i, std::span<const float> logits) {
        const int32_t id = request.prompt[static_cast<size_t>(begin + from + i + 1)];
        found[static_cast<size_t>(i)] = logprobs(logits, id, request.prompt_logprobs);
      });
  if (!fetched) return end(running, EndReason::Failed, fetched.error().message), false;
  for (const Result<Logprobs>& each : found) {
    if (!each) return end(running, EndReason::Failed, each.error().message), false;
    if (request.on_prompt_logprobs) request.on_prompt_logprobs(running.next_told, *each);
    ++running.next_told;
  }
  return true;
}

// What the rows from `row` on are to their request.
void BatchScheduler::take_rows(Running& running, int64_t row, int64_t rows,
                               std::optional<Result<Choice>> first) {
  if (running.request.embed) return pool_rows(running, row, rows);
  running.result.drafted_tokens += running.draft_tokens;
  stats_.drafted_tokens += running.draft_tokens;
  while (next_token(running, first ? *std::exchange(first, {}) : choose(running, row)) &&
         running.verify()) {
    ++running.result.accepted_tokens;
    ++stats_.accepted_tokens;
    ++row;
  }
  running.end_draft(speculation_.get());
}

// The first token of each request, of one that drafts too: on the engine's threads at once, as
// a row has 150,000 logits. What a GPU leaves of them is little.
std::vector<std::optional<Result<BatchScheduler::Choice>>> BatchScheduler::choose_first(
    const StepItems& step) {
  std::vector<std::optional<Result<Choice>>> choices(step.who.size());
  std::vector<std::pair<size_t, int64_t>> todo;  // item, its first row
  int64_t row = 0;
  for (size_t i = 0; i < step.who.size(); row += step.rows(i), ++i) {
    const Running& running = *step.who[i];
    if (step.rows(i) == 0 || running.request.embed || running.ends_as) continue;
    if (!step.tells_prompt(i)) {
      todo.push_back({i, row});
    } else if (running.remaining() == 0) {
      todo.push_back({i, row + step.rows(i) - 1});
    }
  }
  const auto one = [&](int64_t t) {
    const auto [item, first] = todo[static_cast<size_t>(t)];
    choices[item] = choose(*step.who[item], first);
  };
  const auto count = static_cast<int64_t>(todo.size());
  if (count > 1 && engine_.gpus().empty()) {
    engine_.share_out(count, one);
  } else {
    for (int64_t t = 0; t < count; ++t) one(t);
  }
  return choices;
}

// Also on the engine's threads, which nothing may leave by a throw.
Result<BatchScheduler::Choice> BatchScheduler::choose(Running& running, int64_t row) {
  const GenerationRequest& request = running.request;
  Choice choice;
  try {
    choice.id = KTX_TRY(choose_token(engine_, row, request, running.sampler, running.tokens));
    if (request.logprobs >= 0 && request.sampled_logprobs) {
      choice.best = running.sampler.drawn_from(choice.id, request.logprobs);
    } else if (request.logprobs >= 0) {
      choice.best = engine_.has_logits(row)
                        ? KTX_TRY(logprobs(engine_.logits(row), choice.id, request.logprobs))
                        : KTX_TRY(logprobs(engine_.best(row), choice.id, request.logprobs));
    }
  } catch (...) {
    return Error{exception_text()};
  }
  return choice;
}

// Whole blocks that are new may be used by others from now on.
void BatchScheduler::keep_prefixes(const StepItems& step) {
  if (!options_.keep_prefixes || engine_.plan().facts.encoder) return;
  for (Running* running : step.who) {
    if (running->ended || running->computed() / kBlock == running->kept_blocks) continue;
    running->kept_blocks = running->computed() / kBlock;
    engine_.cache().keep(*running->sequence, running->cached());
  }
}

// Every row that is pooled or reported is a row of logits too, and a step has few of them: each of
// the other requests may need its own; those that need all of theirs share what is left.
void BatchScheduler::limit_rows(std::vector<int64_t>& shares) const {
  const auto wants_all = [&](size_t i) {
    return shares[i] > 0 &&
           (pools_all(engine_, running_[i]->request) || running_[i]->tells_prompt());
  };
  int64_t rows = engine_.max_outputs(), all = 0;
  for (size_t i = 0; i < running_.size(); ++i) {
    const int64_t before = running_[i]->tokens_before_told();
    if (before > 0) shares[i] = std::min(shares[i], before);
    all += wants_all(i);
    if (!wants_all(i)) rows -= 1 + max_draft_tokens();
  }
  for (size_t i = 0; i < running_.size(); ++i) {
    if (wants_all(i)) shares[i] = std::min(shares[i], std::max<int64_t>(1, rows / all));
  }
}

// Adds rows of the step to a text's vector, and ends it behind its last token.
void BatchScheduler::pool_rows(Running& running, int64_t row, int64_t rows) {
  if (running.request.embed == Pooling::Scores) return take_scores(running, row);
  std::vector<float> hidden(static_cast<size_t>(engine_.hidden_size()));
  if (running.request.embed == Pooling::First) rows = 1;
  const bool keep = running.request.embed == Pooling::None;
  if (!keep) running.pooled.resize(hidden.size());
  for (int64_t r = 0; r < rows; ++r) {
    const Status read = engine_.hidden(row + r, hidden);
    if (!read) return end(running, EndReason::Failed, read.error().message);
    if (keep) {
      running.pooled.insert(running.pooled.end(), hidden.begin(), hidden.end());
      continue;
    }
    for (size_t i = 0; i < hidden.size(); ++i) running.pooled[i] += hidden[i];
    ++running.pooled_rows;
  }
  if (running.remaining() > 0) return;
  if (!keep) {
    for (float& value : running.pooled) value /= static_cast<float>(running.pooled_rows);
  }
  if (running.request.on_embedding) running.request.on_embedding(std::move(running.pooled));
  end(running, EndReason::Stop);
}

// The scores of a text: an encoder's are those of its first token, a decoder's of its last.
void BatchScheduler::take_scores(Running& running, int64_t row) {
  if (running.remaining() > 0) return;
  const Status fetched = engine_.fetch_logits(row);
  if (!fetched) return end(running, EndReason::Failed, fetched.error().message);
  const std::span<const float> scores = engine_.logits(row);
  if (running.request.on_embedding) {
    running.request.on_embedding({scores.begin(), scores.end()});
  }
  end(running, EndReason::Stop);
}

// How many tokens may be drafted: within the answer, the context and the cache.
int64_t BatchScheduler::draft_limit(const Running& running) const {
  const auto total = static_cast<int64_t>(running.tokens.size());
  const GenerationRequest& request = running.request;
  int64_t most = std::min({request.max_draft_tokens, max_draft_tokens(), capacity_ - total - 1});
  if (request.max_tokens >= 0) {
    most = std::min(most, request.max_tokens - running.result.completion_tokens - 1);
  }
  return drafts_ ? std::max<int64_t>(0, most) : 0;
}

// To a drafter that reads hidden states, those of every text that may get draft tokens.
void BatchScheduler::show_hidden(const StepItems& step) {
  if (!speculation_ || !speculation_->reads_hidden()) return;
  const Clock::time_point begin = Clock::now();
  int64_t row = 0;
  for (Running* running : step.who) {
    const auto count = static_cast<int64_t>(running->step_ids.size());
    const int64_t first = std::exchange(row, row + count);
    if (running->request.embed || running->request.max_draft_tokens == 0) continue;
    running->show_hidden(*speculation_, engine_, first, count);
  }
  const double taken = seconds(Clock::now() - begin);
  stats_.draft_seconds += taken;
  stats_.busy_seconds += taken;
}

// Adds to the tokens of those that generate what may follow them.
void BatchScheduler::draft(std::span<Running* const> who, int64_t budget) {
  std::vector<Speculation::Item> items;
  std::vector<Running*> whose;
  for (Running* running : who) {
    if (running->remaining() != 1 || running->in_prompt() || running->request.embed) continue;
    items.push_back(running->draft_item(draft_limit(*running)));
    whose.push_back(running);
  }
  const auto others = static_cast<int64_t>(who.size() - whose.size());
  const Clock::time_point begin = Clock::now();
  speculation_->draft(items, others, budget);
  const double taken = seconds(Clock::now() - begin);
  stats_.draft_seconds += taken;
  stats_.draft_failed = speculation_->failure().empty() ? 0 : 1;
  stats_.busy_seconds += taken;
  for (size_t i = 0; i < items.size(); ++i) {
    whose[i]->take_draft(items[i]);
    const auto end = static_cast<int64_t>(whose[i]->tokens.size()) + whose[i]->draft_tokens;
    whose[i]->add_snapshot(end / kSnapshotEvery * kSnapshotEvery);
  }
}

// One more token of an answer. False: it ended.
bool BatchScheduler::next_token(Running& running, Result<Choice> choice) {
  const GenerationRequest& request = running.request;
  RequestEnd& result = running.result;
  const auto ended = [&](EndReason reason, std::string error = {}) {
    end(running, reason, std::move(error));
    return false;
  };
  if (request.max_tokens >= 0 && result.completion_tokens >= request.max_tokens) {
    return ended(EndReason::Length);
  }
  if (static_cast<int64_t>(running.tokens.size()) >= capacity_ && !may_shift(running)) {
    return ended(EndReason::ContextFull);
  }
  if (!choice) return ended(EndReason::Failed, choice.error().message);
  const int32_t id = choice->id;

  const Clock::time_point now = Clock::now();
  if (result.completion_tokens == 0) {
    running.first_token = now;
    stats_.first_token.add(seconds(now - running.submitted));
  } else {
    stats_.between_tokens.add(seconds(now - running.last_token));
  }
  running.last_token = now;
  running.tokens.push_back(id);
  const auto total = static_cast<int64_t>(running.tokens.size());
  if (total % kSnapshotEvery == 0) running.add_snapshot(total);
  ++result.completion_tokens;
  running.take_times();
  ++stats_.completion_tokens;
  const bool is_end = request.is_end && request.is_end(id);
  if (is_end && !request.tell_end) return ended(EndReason::Stop);
  if (request.filter && !is_end) {
    if (const Status accepted = request.filter->accept(id); !accepted) {
      return ended(EndReason::Failed, accepted.error().message);
    }
  }
  TokenEvent event;
  event.id = id;
  if (request.logprobs >= 0) event.logprobs = &choice->best;
  event.so_far = &result;
  if ((request.on_token && !request.on_token(event)) || is_end) return ended(EndReason::Stop);
  if (request.max_tokens >= 0 && result.completion_tokens >= request.max_tokens) {
    return ended(EndReason::Length);
  }
  return true;
}

}  // namespace ktx::runtime
