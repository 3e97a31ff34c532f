#include "tools/ktx-run/bench_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "kernels/matmul/matmul.h"
#include "lib/runtime/engine/plan_runner.h"
#include "lib/support/strings.h"
#include "lib/support/text_table.h"

namespace ktx::tools {
namespace {

struct Kind {
  std::string name;
  double seconds = 0;
  double busy_seconds = 0;
  double bytes = 0;
  double ops = 0;
};

}  // namespace

bool is_per_output(const program::Program& program, const program::Step& step) {
  return !step.outputs.empty() && program.rows(step) == RowKind::Output;
}

std::string step_kind(const program::Step& step) {
  const std::string_view module = step.module;
  const size_t dot = module.rfind('.');
  return fmt::format("{} {}", info(step.op).name,
                     printable(dot == std::string_view::npos ? module : module.substr(dot + 1)));
}

double step_ops(const program::Program& program, const program::Step& step) {
  const auto elements = [&](size_t i) {  // of one matrix
    const program::Blob& blob = *program.weight(step, i);
    return 2.0 * static_cast<double>(blob.rows) * static_cast<double>(blob.cols);
  };
  if (step.op == StepOp::Matmul || step.op == StepOp::MatmulHeads) {
    return elements(0) * static_cast<double>(program.weight(step, 0)->matrices);
  }
  const auto* const experts = std::get_if<ExpertsAttrs>(&step.attrs);
  if (experts == nullptr) return 0;
  const bool gated = step.op == StepOp::ExpertsGateUp;
  return (gated ? elements(0) + elements(1) : elements(0)) * experts->top_k;
}

CacheWork cache_work(const program::Program& program, const program::Step& step,
                     plan::KvType kv_type, std::span<const runtime::SequenceRun> runs) {
  CacheWork work;
  const auto* const blocks = std::get_if<BlockAttentionAttrs>(&step.attrs);
  if (step.op != StepOp::Attention && step.op != StepOp::SparseAttention && !blocks) return work;
  const auto attrs = blocks ? whole_attention(*blocks) : std::get<AttentionAttrs>(step.attrs);
  auto most = std::numeric_limits<int64_t>::max();
  if (step.op != StepOp::Attention) most = program.values[step.inputs[1].value].width;
  if (blocks) most = most / attrs.kv_heads * blocks->block;
  const auto position_bytes =
      static_cast<double>(plan::kv_token_bytes(program.kv_slots[attrs.slot], kv_type));
  int64_t seen = 0, read = 0;
  for (const runtime::SequenceRun& run : runs) {
    const int64_t before = run.positions - run.tokens;
    for (int64_t at = before; at < run.positions; ++at) {
      seen += std::min(at + 1 - first_position(attrs, at), most);
    }
    const int64_t all = run.positions - first_position(attrs, before);
    read += run.tokens == 1 ? std::min(all, most) : all;
  }
  work.bytes = position_bytes * static_cast<double>(read);
  work.ops = 2.0 * attrs.heads * (attrs.key_dim + attrs.value_dim) * static_cast<double>(seen);
  return work;
}

double token_ops(const program::Program& program) {
  double ops = 0;
  for (const program::Step& step : program.steps) {
    if (!is_per_output(program, step)) ops += step_ops(program, step);
  }
  return ops;
}

std::string steps_table(const runtime::Engine& engine, const Floor& floor) {
  const program::Program& program = *engine.plan().program;
  const auto threads = static_cast<double>(engine.threads());
  std::vector<Kind> kinds;
  std::map<std::string, size_t> places;
  double all = 0;
  int64_t runs = 1;
  for (const runtime::StepTime& time : engine.runner().step_times()) {
    const program::Step& step = program.steps[time.step];
    const std::string name = step_kind(step);
    const auto [place, added] = places.try_emplace(name, kinds.size());
    if (added) kinds.push_back({name});
    Kind& kind = kinds[place->second];
    kind.seconds += time.seconds;
    kind.busy_seconds += time.busy_seconds;
    kind.bytes += static_cast<double>(time.weight_bytes);
    const int64_t rows = is_per_output(program, step) ? time.runs : time.tokens;
    kind.ops += step_ops(program, step) * static_cast<double>(rows);
    all += time.seconds;
    runs = std::max(runs, time.runs);
  }
  std::stable_sort(kinds.begin(), kinds.end(),
                   [](const Kind& a, const Kind& b) { return a.seconds > b.seconds; });
  TextTable table({{"step", TextTable::Left},
                   {"ms/run"},
                   {"% of time"},
                   {"% busy"},
                   {"GB/s"},
                   {"% of bw"},
                   {"GOP/s"},
                   {"% of int8"}});
  const auto share = [](double part, double whole) { return whole > 0 ? 100 * part / whole : 0; };
  for (const Kind& kind : kinds) {
    const double seconds = std::max(kind.seconds, 1e-12);
    const double bytes = kind.bytes / seconds, ops = kind.ops / seconds;
    table.add({kind.name, fmt::format("{:.3f}", 1e3 * kind.seconds / static_cast<double>(runs)),
               fmt::format("{:.1f}", share(kind.seconds, all)),
               fmt::format("{:.1f}", share(kind.busy_seconds, threads * seconds)),
               fmt::format("{:.2f}", bytes / 1e9),
               fmt::format("{:.1f}", share(bytes, floor.bytes_per_second)),
               fmt::format("{:.1f}", ops / 1e9),
               fmt::format("{:.1f}", share(ops, floor.ops_per_second))});
  }
  return table.markdown();
}

std::string products_text(const runtime::Engine& engine) {
  const program::Program& program = *engine.plan().program;
  std::set<std::string> lines;
  for (const program::Step& step : program.steps) {
    const std::string& kernel = step.kernels[static_cast<size_t>(engine.precision())];
    const program::Blob* const weight = program.weight(step, 0);
    if (kernel.empty() || weight == nullptr) continue;
    const auto product = kernels::find_matmul(kernel, weight->dtype, engine.isa());
    if (!product.ok()) continue;  // another op
    lines.insert(fmt::format("{}, {}: {}\n", kernel, name(weight->dtype), product->describe()));
  }
  std::string text;
  for (const std::string& line : lines) text += line;
  return text;
}

}  // namespace ktx::tools
