// Computes embeddings, or scores of texts, for every protocol.
//
//   auto job = std::make_shared<EmbeddingJob>(model, reply, [](EmbeddingJob::Outcome o) {...},
//                                             model->pooling);
//   job->start(texts, dimensions, context, lora);
//
// A vector is the pooled hidden state of a text (`pooling`), cut to `dimensions` if
// given, with length 1; without pooling, the states of all tokens, one after another. Texts go to
// the scheduler one batch at a time, so a long list leaves room in the queue for other requests.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lib/server/answer/answer_job.h"
#include "lib/server/endpoints.h"

namespace ktx::server {

class EmbeddingJob : public std::enable_shared_from_this<EmbeddingJob> {
 public:
  struct Outcome {
    std::optional<ApiError> error;            // then there are no vectors
    std::vector<std::vector<float>> vectors;  // in the order of the texts; all numbers finite
    int64_t tokens = 0;
  };
  using Done = std::function<void(Outcome)>;  // called once, mostly on the engine's thread

  // Without `normalized` vectors keep their length, as they do without pooling.
  EmbeddingJob(std::shared_ptr<ServedModel> model, HttpReplyPtr reply, Done done,
               runtime::Pooling pooling, bool normalized = true);

  // `dimensions`: of the answer, 0 for all. Owner and the time limit of each text are the
  // context's.
  void start(std::vector<std::vector<int32_t>> texts, int64_t dimensions,
             const ServerContext& context, runtime::LoraChoice lora);

 private:
  void submit_next();  // with mutex_ held
  void end_text(const runtime::RequestEnd& end);
  void tell_end(const runtime::RequestEnd& end);
  void fail(ApiError error);

  const std::shared_ptr<ServedModel> model_;
  const HttpReplyPtr reply_;
  const Done done_;
  const runtime::Pooling pooling_;
  const bool normalized_;
  std::mutex mutex_;
  std::vector<std::vector<int32_t>> texts_;
  std::vector<runtime::RequestId> ids_;
  std::string owner_;
  runtime::ShareOf share_;
  runtime::LoraChoice lora_;
  int64_t dimensions_ = 0, limit_seconds_ = 0;
  size_t submitted_ = 0, ended_ = 0;
  bool gone_ = false;
  Outcome outcome_;
};

// Divides by the Euclidean length; a vector of zeros stays one.
void normalize(std::vector<float>& vector);

}  // namespace ktx::server
