#include "tools/ktx-run/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "lib/program/program.h"
#include "lib/support/strings.h"

namespace ktx::tools {
namespace {

using runtime::ForwardTrace;
using runtime::TraceLane;
using runtime::TraceSpan;
using Spans = std::vector<std::pair<double, double>>;  // begin, end

std::string_view last_name(std::string_view module) {
  const size_t dot = module.rfind('.');
  return dot == module.npos ? module : module.substr(dot + 1);
}

// "matmul q_proj"; of several steps and of what is no step, what they are.
std::string name_of(const TraceSpan& span, const plan::PlanView& plan) {
  if (span.what && span.tokens > 0) {
    return fmt::format("{} of {} token{}", span.what, span.tokens, span.tokens == 1 ? "" : "s");
  }
  if (span.step == plan::kNone) return span.what;
  const program::Step& step = plan.program->steps[span.step];
  const std::string layer = step.layer >= 0 ? fmt::format(" layer {}", step.layer) : "";
  if (span.what) return fmt::format("{}{}", span.what, layer);
  return fmt::format("{} {}", info(step.op).name, printable(last_name(step.module)));
}

nlohmann::ordered_json args_of(const TraceSpan& span, const plan::PlanView& plan) {
  nlohmann::ordered_json args = nlohmann::ordered_json::object();
  if (span.step != plan::kNone) {
    args["module"] = printable(plan.program->steps[span.step].module);
    args["step"] = span.step;
    if (span.steps > 1) args["steps"] = span.steps;
  }
  if (span.bytes > 0) args["bytes"] = span.bytes;
  if (span.tokens > 0) args["tokens"] = span.tokens;
  return args;
}

// Sorted, without overlaps.
Spans joined(Spans spans) {
  std::ranges::sort(spans);
  Spans out;
  for (const auto& [begin, end] : spans) {
    if (out.empty() || begin > out.back().second) {
      out.emplace_back(begin, end);
    } else {
      out.back().second = std::max(out.back().second, end);
    }
  }
  return out;
}

Spans both(const Spans& a, const Spans& b) {
  Spans out;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const double begin = std::max(a[i].first, b[j].first);
    const double end = std::min(a[i].second, b[j].second);
    if (begin < end) out.emplace_back(begin, end);
    a[i].second < b[j].second ? ++i : ++j;
  }
  return out;
}

double seconds(const Spans& spans) {
  double sum = 0;
  for (const auto& [begin, end] : spans) sum += end - begin;
  return sum;
}

template <class Takes>
Spans spans_of(const ForwardTrace& trace, const Takes& takes) {
  Spans spans;
  for (const TraceLane& lane : trace.lanes()) {
    for (const TraceSpan& span : lane.spans) {
      if (takes(lane, span)) spans.emplace_back(span.begin, span.end);
    }
  }
  return joined(std::move(spans));
}

}  // namespace

std::string trace_json(const ForwardTrace& trace, const plan::PlanView& plan) {
  std::string out = std::string(kTraceMagic) + ",\"traceEvents\":[";
  const char* separator = "\n";
  const auto add = [&](const nlohmann::ordered_json& event) {
    out += separator + event.dump();
    separator = ",\n";
  };
  std::vector<std::string> devices;
  std::vector<int> lanes;  // of each device so far
  for (const TraceLane& lane : trace.lanes()) {
    auto device = std::ranges::find(devices, lane.device);
    const auto pid = static_cast<int>(device - devices.begin());
    if (device == devices.end()) {
      devices.push_back(lane.device);
      lanes.push_back(0);
      add({{"name", "process_name"}, {"ph", "M"}, {"pid", pid}, {"args", {{"name", lane.device}}}});
    }
    const int tid = lanes[static_cast<size_t>(pid)]++;
    add({{"name", "thread_name"},
         {"ph", "M"},
         {"pid", pid},
         {"tid", tid},
         {"args", {{"name", lane.name}}}});
    for (const TraceSpan& span : lane.spans) {
      const auto us = [](double s) { return std::round(s * 1e9) / 1e3; };
      add({{"name", name_of(span, plan)},
           {"ph", "X"},
           {"pid", pid},
           {"tid", tid},
           {"ts", us(span.begin)},
           {"dur", us(span.end - span.begin)},
           {"args", args_of(span, plan)}});
    }
  }
  return out + "\n]}\n";
}

std::string trace_shares(const ForwardTrace& trace, double begin) {
  const Spans passes = spans_of(trace, [&](const TraceLane& lane, const TraceSpan& span) {
    return lane.name == "passes" && span.begin >= begin;
  });
  const double all = seconds(passes);
  if (all <= 0) return "nothing ran";
  const Spans cpu = both(passes, spans_of(trace, [](const TraceLane& lane, const TraceSpan& span) {
                           return lane.name == "host" && span.what == std::string_view("compute");
                         }));
  const Spans gpus = both(passes, spans_of(trace, [](const TraceLane& lane, const TraceSpan&) {
                            return lane.name == "queue";
                          }));
  const Spans copies = both(passes, spans_of(trace, [](const TraceLane& lane, const TraceSpan&) {
                              return lane.name == "copies";
                            }));
  const auto share = [&](double of) { return 100 * of / all; };
  const double at_once = seconds(both(cpu, gpus));
  std::string out = fmt::format("cpu {:.0f} %", share(seconds(cpu)));
  if (gpus.empty()) return out;
  out += fmt::format(", GPUs {:.0f} %, both {:.0f} %, neither {:.0f} %", share(seconds(gpus)),
                     share(at_once), share(all - seconds(cpu) - seconds(gpus) + at_once));
  if (!copies.empty()) {
    out += fmt::format("; copies of experts {:.0f} %, beside a GPU's work {:.0f} %",
                       share(seconds(copies)), share(seconds(both(copies, gpus))));
  }
  return out;
}

}  // namespace ktx::tools
