#include "lib/server/request/scheduler_refusal.h"

namespace ktx::server {

ApiError to_api_error(const runtime::BatchScheduler::Refused& refused) {
  using Refusal = runtime::BatchScheduler::Refusal;
  ApiError error;
  error.message = refused.message;
  switch (refused.why) {
    case Refusal::Invalid:
      break;
    case Refusal::TooLong:
      error.code = "context_length_exceeded";
      error.prompt_tokens = refused.prompt_tokens;
      error.context_tokens = refused.context_tokens;
      break;
    case Refusal::QueueFull:
      error.status = 429;
      error.code = "queue_full";
      error.retry_after_seconds = 2;
      break;
    case Refusal::Draining:
      error.status = 503;
      error.retry_after_seconds = 5;
      break;
  }
  return error;
}

}  // namespace ktx::server
