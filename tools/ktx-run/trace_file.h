// A trace of passes as a file for Perfetto and chrome://tracing (the Trace Event format), and in a
// line what it shows.
//
//   {"name": "matmul q_proj", "ph": "X", "pid": 1, "tid": 2, "ts": 8123.5, "dur": 14.1,
//    "args": {"module": "model.layers.3.self_attn.q_proj", "step": 40}}
#pragma once

#include <string>
#include <string_view>

#include "lib/plan/plan_reader.h"
#include "lib/runtime/engine/forward_trace.h"

namespace ktx::tools {

// How a file of ours begins, so that only such a one is replaced.
inline constexpr std::string_view kTraceMagic = "{\"displayTimeUnit\":\"ms\"";

std::string trace_json(const runtime::ForwardTrace& trace, const plan::PlanView& plan);

// The shares of time of the passes from `begin` on (ForwardTrace::now) in which the CPU computes, a
// GPU does, and both do: "cpu 81 %, GPUs 43 %, both 25 %, neither 1 %". Copies beside the queue,
// where there are any, have a share of their own.
std::string trace_shares(const runtime::ForwardTrace& trace, double begin);

}  // namespace ktx::tools
