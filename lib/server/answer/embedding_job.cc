#include "lib/server/answer/embedding_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lib/server/request/scheduler_refusal.h"

namespace ktx::server {

using runtime::BatchScheduler;
using runtime::EndReason;

EmbeddingJob::EmbeddingJob(std::shared_ptr<ServedModel> model, HttpReplyPtr reply, Done done,
                           runtime::Pooling pooling, bool normalized)
    : model_(std::move(model)),
      reply_(std::move(reply)),
      done_(std::move(done)),
      pooling_(pooling),
      normalized_(normalized && pooling != runtime::Pooling::None) {}

void EmbeddingJob::start(std::vector<std::vector<int32_t>> texts, int64_t dimensions,
                         const ServerContext& context, runtime::LoraChoice lora) {
  const auto self = shared_from_this();
  {
    const std::lock_guard lock(mutex_);
    texts_ = std::move(texts);
    ids_.resize(texts_.size());
    outcome_.vectors.resize(texts_.size());
    dimensions_ = dimensions;
    owner_ = context.owner;
    share_ = context.share;
    lora_ = std::move(lora);
    limit_seconds_ = context.request_seconds;
    const auto batch = static_cast<size_t>(model_->engine->max_batch());
    while (submitted_ < std::min(batch, texts_.size()) && !outcome_.error) submit_next();
  }
  reply_->on_gone([self] {
    const std::lock_guard lock(self->mutex_);
    self->gone_ = true;
    for (const runtime::RequestId id : self->ids_) self->model_->scheduler->cancel(id);
  });
}

void EmbeddingJob::submit_next() {
  const size_t index = submitted_++;
  runtime::GenerationRequest request;
  request.prompt = texts_[index];
  request.owner = owner_;
  request.share = share_;
  request.lora = lora_;
  request.embed = pooling_;
  if (limit_seconds_ > 0) {
    request.deadline = std::chrono::steady_clock::now() + std::chrono::seconds(limit_seconds_);
  }
  const auto self = shared_from_this();
  request.on_embedding = [self, index](std::vector<float> vector) {
    const std::lock_guard lock(self->mutex_);
    if (self->dimensions_ > 0) vector.resize(static_cast<size_t>(self->dimensions_));
    if (self->normalized_) normalize(vector);
    // JSON has no word for them, and clients would take what came instead for numbers.
    if (!std::all_of(vector.begin(), vector.end(), [](float v) { return std::isfinite(v); })) {
      return self->fail(
          {500,
           fmt::format("the model gave NaN (not a number) or infinity in the vector of text {}; "
                       "`ktx-run inspect --verify` checks the weights of the plan",
                       index),
           "", "not_finite"});
    }
    self->outcome_.vectors[index] = std::move(vector);
  };
  request.on_end = [self](const runtime::RequestEnd& end) { self->end_text(end); };
  BatchScheduler::Refused refused;
  ids_[index] = model_->scheduler->submit(std::move(request), &refused);
  if (ids_[index] == 0) {
    ++ended_;
    fail(to_api_error(refused));
  }
}

// The first error is the answer; what still runs is of no use then.
void EmbeddingJob::fail(ApiError error) {
  if (outcome_.error) return;
  outcome_.error = std::move(error);
  for (const runtime::RequestId id : ids_) model_->scheduler->cancel(id);
  submitted_ = texts_.size();
  done_(outcome_);
}

void EmbeddingJob::end_text(const runtime::RequestEnd& end) {
  const std::lock_guard lock(mutex_);
  try {
    tell_end(end);
  } catch (...) {
    if (!reply_->begun()) {
      send_error(*reply_,
                 {500, "an error inside the server; the request was not answered", "", ""});
    }
  }
}

void EmbeddingJob::tell_end(const runtime::RequestEnd& end) {
  ++ended_;
  outcome_.tokens += end.prompt_tokens;
  reply_->add_tokens(end.prompt_tokens, end.cached_tokens, 0);
  if (outcome_.error) return;
  if (end.reason != EndReason::Stop) return fail(end_error(end));
  if (submitted_ < texts_.size() && !gone_) submit_next();
  if (ended_ == texts_.size() && !outcome_.error) done_(std::move(outcome_));
}

void normalize(std::vector<float>& vector) {
  double sum = 0;
  for (const float value : vector) sum += static_cast<double>(value) * value;
  if (sum == 0) return;
  const double scale = 1 / std::sqrt(sum);
  for (float& value : vector) value = static_cast<float>(value * scale);
}

}  // namespace ktx::server
