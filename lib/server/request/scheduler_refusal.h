// Why the scheduler does not take a request, as an error of its client.
#pragma once

#include "lib/runtime/scheduler/batch_scheduler.h"
#include "lib/server/http/api_error.h"

namespace ktx::server {

// 400, 429 with Retry-After or 503.
ApiError to_api_error(const runtime::BatchScheduler::Refused& refused);

}  // namespace ktx::server
