// ktx-run bench: speed of prompts and of generation, beside the limits of the machine.
//
// Sampling and detokenising are not measured. A first step with as many tokens as fit is not
// reported: it maps the pages of the weights, including nearly all experts. On GPUs each test
// begins with a run that does not count, in which libraries load what the shapes of the test
// need.
#include <fmt/format.h>

#include <algorithm>

#include "lib/plan/device_memory.h"
#include "lib/plan/quantization_name.h"
#include "lib/runtime/engine/forward_trace.h"
#include "lib/runtime/engine/plan_runner.h"
#include "lib/support/output_place.h"
#include "lib/support/strings.h"
#include "lib/support/write_file.h"
#include "tools/ktx-run/bench_drafts.h"
#include "tools/ktx-run/bench_kernels.h"
#include "tools/ktx-run/bench_rows.h"
#include "tools/ktx-run/bench_runs.h"
#include "tools/ktx-run/bench_steps.h"
#include "tools/ktx-run/commands.h"
#include "tools/ktx-run/drafting.h"
#include "tools/ktx-run/expert_record.h"
#include "tools/ktx-run/int8_rate.h"
#include "tools/ktx-run/interrupt.h"
#include "tools/ktx-run/loaded_model.h"
#include "tools/ktx-run/progress_line.h"
#include "tools/ktx-run/read_bandwidth.h"
#include "tools/ktx-run/report.h"
#include "tools/ktx-run/trace_file.h"

namespace ktx::tools {
namespace {

constexpr int64_t kTracedTokens = 8;  // more of the same make only a larger file

template <class T>
std::vector<T> or_default(const std::vector<T>& given, T otherwise) {
  return given.empty() ? std::vector<T>{otherwise} : given;
}

// What is measured; absent lists have one entry.
struct Tests {
  explicit Tests(const Options& options)
      : prompts(or_default<int64_t>(options.bench_prompt, 512)),
        generations(or_default<int64_t>(options.bench_generate, 128)),
        depths(or_default<int64_t>(options.bench_depth, 0)),
        batches(or_default<int64_t>(options.bench_batch, 1)) {}

  int64_t ctx() const {
    return std::max({int64_t{1}, most(prompts), most(generations)}) + most(depths);
  }
  int64_t most_sequences() const { return most(batches); }
  bool none() const { return most(prompts) == 0 && most(generations) == 0; }

  std::vector<int64_t> prompts, generations, depths, batches;

 private:
  static int64_t most(const std::vector<int64_t>& counts) {
    return *std::max_element(counts.begin(), counts.end());
  }
};

BenchRow row_of(const runtime::Engine& engine) {
  BenchRow row;
  const plan::PlanFacts& facts = engine.plan().facts;
  row.model = plan::model_label(engine.plan());
  row.quantization = plan::quantization_name(engine.plan());
  row.parameters = facts.parameters;
  const size_t gpus = engine.gpus().size();
  row.backend = gpus == 0   ? fmt::format("CPU {}", name(engine.isa()))
                : gpus == 1 ? "CUDA"
                            : fmt::format("CUDA x{}", gpus);
  row.weight_bytes = plan::weight_bytes(engine.plan());
  row.precision = engine.precision() == runtime::Precision::Exact ? "exact" : "fast";
  row.threads = engine.threads();
  row.token_ops = token_ops(*engine.plan().program);
  return row;
}

// Rates of the machine: the mean of what was measured before a test and behind each of its
// repetitions, since hosts change from one second to the next (80 to 135 GB/s on one of 16 cores).
class Floor {
 public:
  explicit Floor(const runtime::Engine& engine) : engine_(engine) {}
  void measure(BenchRow& row) {
    const auto gpus = engine_.gpus();
    if (!gpus.empty()) {
      row.bandwidth = gpus[0].bandwidth_gbps * 1e9;  // as rated; layers take turns
      return;
    }
    bandwidth_ += measure_read_bandwidth(row.threads);
    int8_rate_ += measure_int8_rate(row.threads, engine_.isa());
    ++times_;
    row.bandwidth = bandwidth_ / times_;
    row.int8_rate = int8_rate_ / times_;
  }

 private:
  const runtime::Engine& engine_;
  double bandwidth_ = 0, int8_rate_ = 0;  // sums
  int times_ = 0;
};

// A run more, which does not count, for the trace; says what it shows.
template <class Run>
Status trace_run(runtime::Engine& engine, const std::string& test, runtime::ForwardTrace& trace,
                 const Run& run) {
  const double begin = trace.now();
  engine.runner().enable_times(false);
  engine.runner().set_trace(&trace);
  Status ran;
  if (auto done = run(); !done) ran = done.error();
  engine.runner().set_trace(nullptr);
  KTX_TRY(ran);
  note(fmt::format("trace of {}: {}", test, trace_shares(trace, begin)));
  return {};
}

// One test: a row, and the requested tables.
template <class Run>
Result<BenchRow> measure(const Options& options, runtime::Engine& engine, BenchRow row,
                         ProgressLine& line, const Run& run) {
  const auto show = [&](const std::string& what) {
    line.show_now(fmt::format("bench: {}, {} threads: {}", row.test, row.threads, what));
  };
  show("what the machine could do");
  Floor floor(engine);
  floor.measure(row);
  double bytes = 0;
  const runtime::EngineStats before = engine.stats();
  if (!engine.gpus().empty()) {
    show("a run that does not count");
    KTX_TRY(run());
  }
  engine.runner().enable_times(options.bench_steps);
  for (int i = 0; i < options.repetitions; ++i) {
    show(fmt::format("run {} of {}", i + 1, options.repetitions));
    const BenchRun result = KTX_TRY(run());
    row.rates.push_back(result.rate);
    bytes += result.bytes_per_second;
    if (result.rate > 0) floor.measure(row);  // (not where nothing but the rates is asked for)
  }
  line.erase();
  row.bytes_per_second = bytes / options.repetitions;
  const runtime::ExpertUse& now = engine.stats().expert_use;
  const runtime::ExpertUse& then = before.expert_use;
  row.expert_use = {now.cpu - then.cpu, now.gpu - then.gpu, now.streamed - then.streamed};
  row.expert_guests = engine.stats().expert_guests.since(before.expert_guests);
  row.expert_cache = engine.stats().expert_cache.since(before.expert_cache);
  row.tokens = engine.stats().tokens - before.tokens;
  if (options.bench_steps) {
    note(fmt::format("{}, {} threads: {:.1f} GB/s, {:.2f} TOP/s int8\n{}\n{}", row.test,
                     row.threads, row.bandwidth / 1e9, row.int8_rate / 1e12,
                     steps_table(engine, {row.bandwidth, row.int8_rate}), products_text(engine)));
  }
  if (options.bench_kernels) {
    note(fmt::format("{}: kernels of one step, {:.0f} GB/s as rated\n{}", row.test,
                     row.bandwidth / 1e9, KTX_TRY(kernels_table(engine, row.bandwidth))));
  }
  return row;
}

// The same generation with draft tokens: a row beside the one before it.
Result<BenchRow> measure_drafts(const Options& options, const LoadedModel& model, int64_t count,
                                int64_t sequences, int64_t depth, ProgressLine& line) {
  std::optional<double> acceptance;
  if (options.draft.accept >= 0) acceptance = options.draft.accept;
  BenchDrafts drafts(*model.engine, model.drafter.get(), speculation_options(options.draft),
                     acceptance);
  line.show_now("bench: the answer without draft tokens");
  KTX_TRY(drafts.record(count, sequences, depth));
  BenchRow row = row_of(*model.engine);
  row.test =
      fmt::format("tg{}{} guesses{}", count, sequences == 1 ? "" : fmt::format(" x {}", sequences),
                  depth > 0 ? fmt::format(" @ d{}", depth) : "");
  DraftUse use;
  bool same = true;
  BenchRow measured =
      KTX_TRY(measure(options, *model.engine, std::move(row), line, [&]() -> Result<BenchRun> {
        const DraftRun run = KTX_TRY(drafts.run(count, sequences, depth));
        use = {run.drafted, run.accepted, run.passes, run.predicted_rate};
        same &= run.same;
        return run.speed;
      }));
  measured.drafts = use;
  if (!same) {
    note(fmt::format("{}: the answers differ from those without draft tokens{}", measured.test,
                     model.engine->gpus().empty()
                         ? "; this is a bug"
                         : ": on a GPU sums depend on the size of a pass"));
  }
  return measured;
}

Status bench_threads(const Options& options, int threads, ProgressLine& line,
                     std::vector<BenchRow>& rows) {
  const Tests tests(options);
  if (!options.trace.empty()) KTX_TRY(find_output(options.trace));
  EngineFlags flags = options.engine;
  flags.threads = threads;
  if (flags.ctx == 0) flags.ctx = tests.ctx();
  if (flags.max_batch == 0) flags.max_batch = tests.most_sequences();
  line.show_now("bench: loading the plan");
  ExpertRecord record = KTX_TRY(ExpertRecord::open(flags.record_experts));
  LoadedModel model = KTX_TRY(load_model(options.plan, flags, options.draft));
  line.erase();
  catch_interrupts(SecondInterrupt::Ends);
  runtime::Engine& engine = *model.engine;
  for (const std::string& line : model.notes) note(line);
  BenchRuns runs(engine, tests.most_sequences());
  line.show_now("bench: first steps, which do not count");
  KTX_TRY(runs.prompt(std::min<int64_t>(engine.chunk_tokens(), engine.ctx())));
  KTX_TRY(runs.generation(1, 1));
  runtime::ForwardTrace trace;
  // `traced`: the run that it shows.
  const auto add = [&](std::string test, int64_t depth, const auto& run,
                       const auto& traced) -> Status {
    BenchRow row = row_of(engine);
    row.test = depth > 0 ? fmt::format("{} @ d{}", test, depth) : std::move(test);
    rows.push_back(KTX_TRY(measure(options, engine, std::move(row), line, run)));
    if (options.trace.empty()) return {};
    return trace_run(engine, rows.back().test, trace, traced);
  };
  if (tests.none()) {  // the machine's rates alone
    const auto nothing = [] { return Result<BenchRun>(BenchRun{}); };
    return add("probe", 0, nothing, nothing);
  }
  for (int64_t depth : tests.depths) {
    if (depth > 0) line.show_now(fmt::format("bench: filling the cache with {} tokens", depth));
    KTX_TRY(runs.fill(depth));
    for (int64_t n : tests.prompts) {
      const auto run = [&] { return runs.prompt(n); };
      if (n > 0) KTX_TRY(add(fmt::format("pp{}", n), depth, run, run));
    }
    for (int64_t n : tests.generations) {
      if (n == 0) continue;
      for (int64_t batch : tests.batches) {
        const std::string test =
            batch == 1 ? fmt::format("tg{}", n) : fmt::format("tg{} x {}", n, batch);
        KTX_TRY(add(
            test, depth, [&] { return runs.generation(n, batch); },
            [&] { return runs.generation(std::min(n, kTracedTokens), batch); }));
        if (!options.draft.on() && options.draft.accept < 0) continue;
        runs.empty();
        rows.push_back(KTX_TRY(measure_drafts(options, model, n, batch, depth, line)));
        KTX_TRY(runs.fill(depth));
      }
    }
  }
  KTX_TRY(record.save(engine));
  if (options.trace.empty()) return {};
  KTX_TRY(write_file(options.trace, kTraceMagic, trace_json(trace, engine.plan())));
  note(fmt::format("trace: {}; https://ui.perfetto.dev shows it", printable(options.trace)));
  return {};
}

}  // namespace

int run_bench(const Options& options) {
  std::vector<BenchRow> rows;
  std::vector<int64_t> threads = options.bench_threads;
  if (threads.empty()) threads.push_back(0);
  for (int64_t count : threads) {
    ProgressLine line;
    const Status status = bench_threads(options, static_cast<int>(count), line, rows);
    line.erase();
    if (interrupted()) {  // what was measured is not lost
      if (!rows.empty()) print_rows(rows, options.format);
      return end_interrupted();
    }
    if (!status) return fail(status.error().message);
  }
  print_rows(rows, options.format);
  return 0;
}

}  // namespace ktx::tools
