#include "lib/runtime/engine/engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/runtime/engine/engine_state.h"
#include "lib/runtime/engine/images_of_pass.h"
#include "lib/runtime/lora/lora_runs.h"
#include "lib/support/strings.h"

namespace ktx::runtime {

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {
  cache().finish_by([this] { finish_all(); });
}
Engine::~Engine() {
  finish_all();
}

void Engine::finish_all() {
  while (state_ && passes() > 0) (void)finish();
}

int64_t Engine::most_forwards() const {
  return static_cast<int64_t>(state_->passes.size());
}
int64_t Engine::passes() const {
  return static_cast<int64_t>(state_->in_flight);
}
bool Engine::goes_ahead() const {
  return most_forwards() > 1 && !cache().has_states();
}

const plan::PlanView& Engine::plan() const {
  return state_->plan.view();
}
Status Engine::check_plan() const {
  KTX_TRY(state_->plan.check());
  const auto& before = state_->opened;
  if (!before) return {};
  const Result<FileStamp> now = stamp_file(state_->plan.path());
  // One that was put in its place, or is gone, leaves what is mapped as it was; so do a new link
  // and other rights, which change `changed_ns`.
  if (!now || now->device != before->device || now->inode != before->inode) return {};
  if (now->size == before->size && now->modified_ns == before->modified_ns) return {};
  return Error{fmt::format(
      "{}: the file was written to while it was in use ({} bytes, before {}); start again when it "
      "is whole",
      state_->plan.path(), now->size, before->size)};
}
int Engine::threads() const {
  return state_->pool->threads();
}
std::shared_ptr<ThreadPool> Engine::pool() const {
  return state_->pool;
}
std::vector<GpuUse> Engine::gpus() const {
  return state_->runner->gpus();
}
Isa Engine::isa() const {
  return state_->isa;
}
const Sizes& Engine::sizes() const {
  return state_->sizes;
}
const std::vector<LoraInfo>& Engine::lora() const {
  return state_->adapters;
}
LoraChoice Engine::own_lora() const {
  std::vector<float> scales;
  for (const LoraInfo& adapter : lora()) scales.push_back(adapter.scale);
  return all_at(scales);
}
SequenceCache& Engine::cache() const {
  return state_->cache;
}
PlanRunner& Engine::runner() const {
  return *state_->runner;
}
int64_t Engine::rollback_tokens() const {
  return cache().has_states() ? sizes().shape.rollback_tokens : chunk_tokens();
}
const EngineStats& Engine::stats() const {
  return state_->stats;
}
int64_t Engine::logits_rows() const {
  return state_->batch().outputs;
}

bool Engine::has_logits(int64_t row) const {
  KTX_ASSERT(row >= 0 && row < logits_rows());
  return state_->batch().best[row] < 0;
}

bool Engine::is_filtered(int64_t row) const {
  return !has_logits(row) && state_->batch().filter[row] != nullptr;
}

BestLogits Engine::best(int64_t row) const {
  KTX_ASSERT(!has_logits(row));
  return state_->runner->best(row, state_->batch().best[row]);
}

Status Engine::fetch_logits(int64_t row) {
  if (has_logits(row)) return {};
  KTX_TRY(state_->runner->fetch_logits(row));
  state_->passes[state_->shown].batch.best[row] = -1;
  return {};
}

std::span<const float> Engine::logits(int64_t row) const {
  KTX_ASSERT(has_logits(row));
  const PlanRunner& runner = *state_->runner;
  return {runner.logits() + row * runner.logits_stride(),
          static_cast<size_t>(plan().facts.output_width())};
}

void Engine::share_out(int64_t items, const std::function<void(int64_t)>& work) {
  state_->pool->for_each(items, [&](int64_t item, int) { work(item); });
}

Result<Forward> Engine::forward(std::span<const BatchItem> items,
                                const std::function<void()>& before_filters,
                                const ForwardWatch* watch) {
  KTX_ASSERT(passes() == 0);
  const Forward begun = KTX_TRY(begin(items, before_filters, watch));
  return begun == Forward::Done ? finish() : begun;
}

Result<Forward> Engine::begin(std::span<const BatchItem> items,
                              const std::function<void()>& before_filters,
                              const ForwardWatch* watch) {
  State& s = *state_;
  KTX_ASSERT(passes() < most_forwards());
  s.shown = (s.oldest + s.in_flight) % s.passes.size();
  s.kept_rows.count = 0;
  Pass& pass = s.passes[s.shown];
  pass.batch.before_filters = before_filters;
  pass.watch = watch;
  const auto begun = begin_forward(pass, items);
  if (!begun) return named(begun.error());
  if (*begun == Forward::Done) ++s.in_flight;
  return begun;
}

Result<Forward> Engine::finish() {
  State& s = *state_;
  KTX_ASSERT(s.in_flight > 0);
  s.kept_rows.count = 0;
  s.shown = s.oldest;
  s.oldest = (s.oldest + 1) % s.passes.size();
  --s.in_flight;
  const auto finished = finish_forward(s.passes[s.shown]);
  if (!finished) return named(finished.error());
  return finished;
}

Error Engine::named(const Error& error) const {
  if (error.message.starts_with(state_->plan.path() + ": ")) return error;  // check_plan()'s
  return Error{fmt::format("{}: {}", state_->plan.path(), error.message)};
}

Result<Forward> Engine::begin_forward(Pass& pass, std::span<const BatchItem> items) {
  State& s = *state_;
  Batch& batch = pass.batch;
  batch.tokens = 0;
  batch.outputs = 0;
  batch.sees_ahead = false;
  batch.columns = 0;
  pass.items.assign(items.begin(), items.end());
  pass.weight_bytes = 0;
  pass.follows_lost = false;
  const auto max_outputs = static_cast<int64_t>(batch.output_rows.size());
  if (static_cast<int64_t>(items.size()) > max_batch()) {
    return Error{fmt::format("a step of {} sequences, at most {} are possible (--max-batch)",
                             items.size(), max_batch())};
  }
  for (size_t i = 0; i < items.size(); ++i) {
    const BatchItem& item = items[i];
    KTX_ASSERT(item.best <= kMostBestLogits && item.best != 0);
    KTX_ASSERT(item.sequence->begun() == item.sequence->length() || goes_ahead());
    const auto count = static_cast<int64_t>(item.tokens.size());
    if (count > chunk_tokens() - batch.tokens) {
      return Error{fmt::format("a step of more than {} tokens", chunk_tokens())};
    }
    const auto chosen = std::ssize(item.outputs);
    const int64_t outputs = chosen > 0               ? chosen
                            : item.want == Want::All ? count
                                                     : item.want == Want::Last && count > 0;
    if (outputs > max_outputs - batch.outputs) {
      return Error{fmt::format("a step with more than {} logits rows", max_outputs)};
    }
    const int64_t start = item.sequence->begun();
    if (start + count > ctx()) return Forward::ContextFull;
    if (!item.images.empty()) KTX_TRY(takes_images(plan(), batch));
    const int64_t image_row = plan().facts.image.row_width();
    ImagesOfPass images = KTX_TRY(ImagesOfPass::find(item.images, start, count, image_row));
    int64_t next_output = 0;
    for (int64_t t = 0; t < count; ++t) {
      const int64_t row = batch.tokens + t;
      const ImageTokens* const image = images.of(start + t);
      const int32_t id = image ? 0 : item.tokens[t];
      if (id < 0 || id >= vocab_size()) {
        return Error{fmt::format("token {} is not in the vocabulary of {}", id, vocab_size())};
      }
      batch.ids[row] = id;
      batch.position[row] = static_cast<int32_t>(start + t);
      batch.sequence[row] = static_cast<int32_t>(i);
      batch.text_end[row] = static_cast<int32_t>(start + count - 1);
      if (!batch.given_row.empty()) put_image_row(image, start + t, row, image_row, batch);
      put_axes(images.axes(start + t), row, batch);
      if (chosen > 0 ? next_output < chosen && item.outputs[next_output] == t
                     : count - t <= outputs) {
        ++next_output;
        batch.best[batch.outputs] = s.runner->keeps_logits() ? item.best : -1;
        batch.filter[batch.outputs] = item.filter;
        batch.output_rows[batch.outputs++] = static_cast<int32_t>(row);
      }
    }
    if (plan().facts.is_tower()) {
      if (items.size() != 1 || item.columns < 1 || count % item.columns != 0) {
        return Error{fmt::format("a pass of {} patches, {} a line, of {} images; one has a tower",
                                 count, item.columns, items.size())};
      }
      batch.columns = item.columns;
      for (int64_t t = 0; t < count; ++t) {
        put_axes(
            {0, static_cast<int32_t>(t / item.columns), static_cast<int32_t>(t % item.columns)}, t,
            batch);
      }
    }
    if (plan().facts.reads_hidden()) {
      const int64_t width = plan().facts.given_width;
      if (std::ssize(item.hidden) != count * width) {
        return Error{"the plan is a drafter that runs with the hidden states of its model alone"};
      }
      std::ranges::copy(item.hidden, batch.hidden.begin() + batch.tokens * width);
    }
    batch.tokens += count;
  }
  if (batch.tokens == 0) return Forward::Done;
  if (s.lora) find_lora_runs(items, batch);
  if (!s.cache.begin_pass(items, batch)) {
    batch.outputs = 0;
    return Forward::CacheFull;
  }
  if (most_forwards() > 1) {
    const int64_t bytes_before = s.runner->weight_bytes();
    s.runner->begin(pass.walk, batch, pass.watch);
    pass.weight_bytes = s.runner->weight_bytes() - bytes_before;
  }
  return Forward::Done;
}

Result<bool> Engine::compute(Pass& pass) {
  State& s = *state_;
  const int64_t bytes_before = s.runner->weight_bytes();
  const Result<bool> done =
      most_forwards() > 1 ? s.runner->finish(pass.walk) : s.runner->run(pass.batch, pass.watch);
  pass.weight_bytes += s.runner->weight_bytes() - bytes_before;
  KTX_TRY(done);
  KTX_TRY(check_plan());
  return *done && !pass.follows_lost;
}

// A pass that computed nothing: so will those behind it that go on from its texts.
void Engine::lose_followers(Pass& pass) {
  State& s = *state_;
  pass.batch.outputs = 0;
  for (size_t i = 0; i < s.in_flight; ++i) {
    Pass& later = s.passes[(s.oldest + i) % s.passes.size()];
    later.follows_lost |=
        std::ranges::find_first_of(later.items, pass.items, {}, &BatchItem::sequence,
                                   &BatchItem::sequence) != later.items.end();
  }
}

Result<Forward> Engine::finish_forward(Pass& pass) {
  State& s = *state_;
  if (pass.batch.tokens == 0) return Forward::Done;
  const Result<bool> done = compute(pass);
  const bool computed = done && *done;
  s.cache.end_pass(pass.items, pass.batch, computed);
  if (!computed) lose_followers(pass);
  if (!KTX_TRY(done)) return Forward::Stopped;
  s.stats.passes += 1;
  s.stats.tokens += pass.batch.tokens;
  s.stats.weight_bytes += pass.weight_bytes;
  s.stats.expert_use = s.runner->expert_use();
  if (s.experts) s.stats.expert_cache = s.experts->use();
  if (s.guests) s.stats.expert_guests = s.guests->use();
  return Forward::Done;
}

Status Engine::hidden(int64_t row, std::span<float> out) {
  State& s = *state_;
  KTX_ASSERT(row >= 0 && row < logits_rows());
  KTX_ASSERT(static_cast<int64_t>(out.size()) == hidden_size());
  if (plan().facts.encoder && plan().facts.scores == 0) {  // its outputs are these
    KTX_TRY(fetch_logits(row));
    std::ranges::copy(logits(row), out.begin());
    return {};
  }
  const FinalHidden found = KTX_TRY(s.hidden);
  const ValueRead read{found.device, found.value, row, out};
  return s.runner->read({&read, 1});
}

int64_t Engine::kept_width() const {
  return std::ssize(state_->kept_hidden) * hidden_size();
}

Result<std::span<const float>> Engine::hidden_of_tokens(int64_t token, int64_t count, bool all) {
  constexpr int64_t kAtOnce = 256;
  State& s = *state_;
  const int64_t width = kept_width(), tokens = s.batch().tokens;
  if (width == 0) {
    return Error{"the plan keeps no hidden states for a drafter; compile it with --draft"};
  }
  KTX_ASSERT(token >= 0 && count > 0 && count <= tokens - token);
  const KeptRows& kept = s.kept_rows;
  const bool here = kept.begin <= token && token + count <= kept.begin + kept.count;
  if (!here) KTX_TRY(all && tokens <= kAtOnce ? read_kept(0, tokens) : read_kept(token, count));
  return std::span<const float>(kept.rows).subspan(
      static_cast<size_t>((token - kept.begin) * width), static_cast<size_t>(count * width));
}

Status Engine::read_kept(int64_t token, int64_t count) {
  State& s = *state_;
  KeptRows& kept = s.kept_rows;
  const int64_t width = hidden_size(), all = kept_width();
  kept.count = 0;
  // Smaller ones keep their size: what is behind `count` is what was there before.
  const auto size = static_cast<size_t>(count * all);
  kept.rows.resize(std::max(kept.rows.size(), size));
  kept.values.resize(std::max(kept.values.size(), size));
  std::vector<ValueRead> reads;
  for (const FinalHidden& value : s.kept_hidden) {
    const size_t from = reads.size() * static_cast<size_t>(count * width);
    reads.push_back({value.device, value.value, token,
                     std::span(kept.values).subspan(from, static_cast<size_t>(count * width))});
  }
  KTX_TRY(s.runner->read(reads));
  for (size_t i = 0; i < reads.size(); ++i) {
    for (int64_t t = 0; t < count; ++t) {
      std::copy_n(reads[i].out.begin() + t * width, width,
                  kept.rows.begin() + t * all + static_cast<int64_t>(i) * width);
    }
  }
  kept.begin = token;
  kept.count = count;
  return {};
}

}  // namespace ktx::runtime
