// The public interface of the scheduler; its thread is in batch_rounds.cc and batch_step.cc.
#include "lib/runtime/scheduler/batch_scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "lib/runtime/engine/images_of_pass.h"
#include "lib/runtime/scheduler/running_request.h"

namespace ktx::runtime {
namespace {

// The texts of slots that several owners leave behind take at most so many contexts a slot.
constexpr int64_t kSlotContexts = 4;

// Why the model does not do what a request wants; empty: it does.
std::string not_for(const plan::PlanFacts& facts, std::optional<Pooling> wanted) {
  if (!wanted) return plan::no_text_reason(facts);
  if (facts.scores > 0 && wanted != Pooling::Scores) {
    return "this model scores texts (a reranker) and embeds none; POST to /rerank";
  }
  if (facts.scores == 0 && wanted == Pooling::Scores) {
    return "this model has no head that scores texts";
  }
  return "";
}

// Why the images of a request cannot be shown to the model; empty: they can, and every token of the
// prompt is the vocabulary's or an image's.
std::string wrong_images(const Engine& engine, const GenerationRequest& request) {
  if (!request.images.empty() && !engine.plan().facts.takes_images) {
    return "the model takes no images; compile it with its projector (--mmproj FILE)";
  }
  if (!request.images.empty() && (request.embed || request.prompt_logprobs >= 0)) {
    return "vectors and log-probabilities are those of a text without images";
  }
  if (const Status good = check_images(request.images, engine.plan().facts.image.row_width());
      !good) {
    return good.error().message;
  }
  const auto size = std::ssize(request.prompt);
  std::span<const ImageTokens> rest = request.images;
  for (int64_t at = 0; at < size;) {
    const int32_t id = request.prompt[static_cast<size_t>(at)];
    const bool begins = !rest.empty() && rest[0].first == at;
    if (!begins && id >= 0 && id < engine.vocab_size()) {
      ++at;
      continue;
    }
    if (!begins) {
      return fmt::format("token {} is not in the vocabulary of {}", id, engine.vocab_size());
    }
    if (!rest[0].causal && rest[0].count > engine.chunk_tokens()) {
      return fmt::format(
          "an image has {} tokens, more than a step of {} may have; start with a larger one: "
          "--chunk {}",
          rest[0].count, engine.chunk_tokens(), rest[0].count);
    }
    at = rest[0].end();
    rest = rest.subspan(1);
  }
  const bool ends_in_text = request.images.empty() || request.images.back().end() < size;
  return rest.empty() && ends_in_text ? "" : "an image stands behind the end of the prompt";
}

// As many draft tokens as each sequence has rows of logits for, and can take back.
int64_t max_draft_tokens_of(const Engine& engine, int64_t most) {
  most = std::min({most, kMaxDraftTokens, engine.rollback_tokens()});
  if (engine.max_outputs() >= engine.chunk_tokens()) return most;
  return std::min(most, engine.max_outputs() / engine.max_batch() - 1);
}

}  // namespace

BatchScheduler::BatchScheduler(Engine& engine, const SchedulerOptions& options)
    : engine_(engine),
      options_(options),
      unanswered_(engine.max_batch() + options.max_queue),
      slot_texts_(static_cast<size_t>(engine.max_batch()),
                  kSlotContexts * engine.max_batch() * engine.ctx()),
      shares_(options.key_slots) {
  capacity_ = std::min(engine.ctx(), engine.cache().state().total * KvCache::kBlockTokens);
  if (engine.cache().state().total == 0) capacity_ = engine.ctx();  // no attention, no cache
  for (int64_t i = 0; i < engine.max_batch(); ++i) {
    slots_.push_back({});
    slots_.back().id = static_cast<int>(i);
  }
  SpeculationOptions speculation = options.speculation;
  speculation.most = max_draft_tokens_of(engine, speculation.most);
  if (options.drafter && speculation.most > 0) {
    speculation_ = std::make_unique<Speculation>(*options.drafter, speculation);
  }
  if (options.filters_beside_steps.value_or(!engine.gpus().empty())) {
    filter_worker_ = std::make_unique<FilterWorker>();
  }
  most_forwards_ = speculation_ ? 1 : engine.most_forwards();
  publish_stats();
  thread_ = std::thread([this] { loop(); });
}

BatchScheduler::~BatchScheduler() {
  stop();
}

void BatchScheduler::stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    draining_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

std::optional<BatchScheduler::Refused> BatchScheduler::too_long(int64_t tokens) const {
  const bool encoder = engine_.plan().facts.encoder;
  if (encoder ? tokens <= capacity_ : tokens < capacity_) return std::nullopt;
  return Refused{
      Refusal::TooLong,
      encoder ? fmt::format("the text has {} tokens, at most {} fit: the model reads a text as a "
                            "whole",
                            tokens, capacity_)
              : fmt::format("the prompt has {} tokens, which exceeds the available context size "
                            "of {} with an answer",
                            tokens, capacity_),
      tokens, capacity_};
}

RequestId BatchScheduler::submit(GenerationRequest request, Refused* refused) {
  const auto refuse = [&](Refusal why, std::string message, int64_t tokens = 0) -> RequestId {
    if (refused != nullptr) *refused = {why, std::move(message), tokens, capacity_};
    return 0;
  };
  const auto count = static_cast<int64_t>(request.prompt.size());
  if (count == 0) return refuse(Refusal::Invalid, "the prompt has no tokens");
  if (const std::optional<Refused> why = too_long(count)) {
    return refuse(why->why, why->message, count);
  }
  const plan::PlanFacts& facts = engine_.plan().facts;
  if (const std::string why = wrong_images(engine_, request); !why.empty()) {
    return refuse(Refusal::Invalid, why);
  }
  if (const std::string why = not_for(facts, request.embed); !why.empty()) {
    return refuse(Refusal::Invalid, why);
  }
  Result<Sampler> sampler = Sampler::create(request.sampling, engine_.vocab_size());
  if (!sampler) return refuse(Refusal::Invalid, sampler.error().message);
  if (request.slot >= engine_.max_batch()) {
    return refuse(Refusal::Invalid, fmt::format("slot {} does not exist; there are 0 to {}",
                                                request.slot, engine_.max_batch() - 1));
  }
  if (request.embed && *request.embed != Pooling::Last) {
    request.reuse_cache = request.embed == Pooling::Scores;
  }
  if (facts.encoder || request.prompt_logprobs >= 0) request.reuse_cache = false;
  if (request.sampler) sampler->set_state(*request.sampler);
  request.answered_tokens = std::clamp<int64_t>(request.answered_tokens, 0, count);
  for (int32_t id : std::span(request.prompt).last(request.answered_tokens)) {
    if (!request.filter) break;
    const Status accepted = request.filter->accept(id);
    if (!accepted) return refuse(Refusal::Invalid, accepted.error().message);
  }
  auto running = std::make_unique<Running>(0, std::move(request), sampler.take());
  running->submitted = Clock::now();
  RequestId id = 0;
  {
    const std::lock_guard lock(mutex_);
    if (draining_) return refuse(Refusal::Draining, "the server is shutting down");
    // Requests that have just arrived have no place yet, also where places are free: all count.
    if (!unanswered_.take(running->request.share.key)) {
      ++refused_;
      return refuse(
          Refusal::QueueFull,
          fmt::format("{} requests run or wait already; try again later", unanswered_.taken()));
    }
    id = running->id = ++last_id_;
    arrived_.push_back(std::move(running));
    ++open_;
    ++accepted_;
  }
  wake_.notify_all();
  return id;
}

void BatchScheduler::cancel(RequestId id) {
  if (id == 0) return;
  {
    const std::lock_guard lock(mutex_);
    cancelled_.push_back(id);
  }
  wake_.notify_all();
}

void BatchScheduler::drain() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
}

bool BatchScheduler::wait_idle(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, limit, [&] { return open_ == 0; });
}

void BatchScheduler::cancel_all() {
  {
    const std::lock_guard lock(mutex_);
    cancel_all_ = true;
  }
  wake_.notify_all();
}

void BatchScheduler::call(const std::function<void(Engine&)>& work) {
  std::mutex done_mutex;
  std::condition_variable done_signal;
  bool done = false;
  std::exception_ptr thrown;
  {
    const std::lock_guard lock(mutex_);
    work_.push_back([&] {
      try {
        work(engine_);
      } catch (...) {
        thrown = std::current_exception();
      }
      const std::lock_guard done_lock(done_mutex);
      done = true;
      done_signal.notify_all();
    });
  }
  wake_.notify_all();
  std::unique_lock lock(done_mutex);
  done_signal.wait(lock, [&] { return done; });
  if (thrown) std::rethrow_exception(thrown);
}

SchedulerStats BatchScheduler::stats() const {
  const std::lock_guard lock(mutex_);
  SchedulerStats stats = published_;
  stats.waiting = waiting_count_ + static_cast<int64_t>(arrived_.size());
  stats.requests = accepted_;
  stats.refused = refused_;
  return stats;
}

std::vector<SlotState> BatchScheduler::slots(const std::string& owner) const {
  const std::lock_guard lock(mutex_);
  return slot_texts_.states(owner);
}

SlotText BatchScheduler::slot_text(int slot, const std::string& owner) const {
  const std::lock_guard lock(mutex_);
  const SlotTexts::Entry* entry = slot_texts_.find(owner, slot);
  return entry == nullptr ? SlotText() : entry->text;
}

void BatchScheduler::call_with_slot(int slot, const SlotWork& work, const std::string& owner) {
  call([&](Engine& engine) {
    for (const auto& running : running_) {
      if (running->result.slot == slot && running->sequence && running->owner == owner) {
        return work(engine, running->slot_text(), &*running->sequence);
      }
    }
    work(engine, slot_text(slot, owner), nullptr);
  });
}

bool BatchScheduler::set_slot_text(int slot, SlotText text, const std::string& owner) {
  bool set = false;
  call([&](Engine&) {
    const bool runs = std::any_of(running_.begin(), running_.end(), [&](const auto& running) {
      return running->result.slot == slot && running->owner == owner;
    });
    if (runs) return;
    if (!slots_[slot].busy) slots_[slot].request = 0;
    const std::lock_guard lock(mutex_);
    if (text.tokens.empty()) {
      slot_texts_.erase(owner, slot);
    } else {
      SlotTexts::Entry& entry = slot_texts_.use(owner, slot);
      entry.state = {.id = slot,
                     .tokens = static_cast<int64_t>(text.tokens.size()),
                     .computed = static_cast<int64_t>(text.tokens.size())};
      entry.text = std::move(text);
      slot_texts_.shrink();
    }
    set = true;
  });
  return set;
}

}  // namespace ktx::runtime
