// ktx-run bench: speed of prompts and of generation, in the columns of llama-bench,
// with the bytes read per second and their share of the measured read bandwidth, and
// the operations of the products with their share of the measured int8 peak.
//
// Neither sampling nor detokenising is measured; the next token of a generation
// test is the best one's id, so that routing is that of real decoding.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lib/support/strings.h"
#include "lib/support/timer.h"
#include "tools/ktx-run/bench_steps.h"
#include "tools/ktx-run/commands.h"
#include "tools/ktx-run/int8_rate.h"
#include "tools/ktx-run/loaded_model.h"
#include "tools/ktx-run/read_bandwidth.h"
#include "tools/ktx-run/talk.h"

namespace ktx::tools {
namespace {

struct Row {
  std::string model;
  uint64_t weight_bytes = 0;
  int64_t parameters = 0;
  std::string backend;  // the instruction set
  std::string precision;
  int threads = 0;
  std::string test;           // "pp512", "tg128"
  std::vector<double> rates;  // tokens per second
  double bytes_per_second = 0;
  double bandwidth = 0;  // measured, bytes per second
  double int8_rate = 0;  // measured, operations per second
  double token_ops = 0;  // operations of a token's products
};

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double deviation(const std::vector<double>& values) {
  const double center = mean(values);
  double sum = 0;
  for (double value : values) sum += (value - center) * (value - center);
  return values.size() < 2 ? 0 : std::sqrt(sum / static_cast<double>(values.size() - 1));
}

// Token ids that a real prompt might have: spread over the vocabulary, the same on
// every run.
std::vector<int32_t> bench_tokens(int64_t count, int64_t vocab) {
  std::vector<int32_t> ids;
  uint64_t state = 88172645463325252u;
  for (int64_t i = 0; i < count; ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    ids.push_back(static_cast<int32_t>(state % static_cast<uint64_t>(vocab)));
  }
  return ids;
}

class Bench {
 public:
  explicit Bench(runtime::Engine& engine) : engine_(engine), sequence_(engine.new_sequence()) {}

  // Tokens per second of one run, and the bytes of weights it read.
  struct Run {
    double rate = 0;
    double bytes_per_second = 0;
  };

  // What follows is measured behind so many tokens.
  Status fill(int64_t depth) {
    sequence_.truncate(0);
    depth_ = depth;
    return feed(bench_tokens(depth, engine_.vocab_size()));
  }

  Result<Run> prompt(int64_t count) {
    sequence_.truncate(depth_);
    const std::vector<int32_t> ids = bench_tokens(count, engine_.vocab_size());
    return measure(count, [&] { return feed(ids); });
  }

  Result<Run> generation(int64_t count) {
    sequence_.truncate(depth_);
    const std::vector<int32_t> first = bench_tokens(1, engine_.vocab_size());
    int32_t next = first[0];
    return measure(count, [&]() -> Status {
      for (int64_t i = 0; i < count; ++i) {
        KTX_TRY(forward(sequence_, {&next, 1}));
        next = KTX_TRY(runtime::best_token(engine_.logits(0)));
      }
      return {};
    });
  }

 private:
  Status feed(const std::vector<int32_t>& ids) {
    for (size_t begin = 0; begin < ids.size(); begin += engine_.chunk_tokens()) {
      const size_t size = std::min<size_t>(engine_.chunk_tokens(), ids.size() - begin);
      KTX_TRY(forward(sequence_, std::span(ids).subspan(begin, size)));
    }
    return {};
  }

  Status forward(runtime::Sequence& sequence, std::span<const int32_t> ids) {
    const runtime::BatchItem item{&sequence, ids, runtime::Want::Last};
    if (KTX_TRY(engine_.forward({&item, 1})) == runtime::Forward::Done) return {};
    return Error{fmt::format("the test needs a larger context than {}; give --ctx", engine_.ctx())};
  }

  template <class Work>
  Result<Run> measure(int64_t tokens, const Work& work) {
    const int64_t bytes = engine_.stats().weight_bytes;
    const Timer timer;
    KTX_TRY(work());
    const double seconds = timer.seconds();
    return Run{static_cast<double>(tokens) / seconds,
               static_cast<double>(engine_.stats().weight_bytes - bytes) / seconds};
  }

  runtime::Engine& engine_;
  runtime::Sequence sequence_;
  int64_t depth_ = 0;
};

double int8_share(const Row& row) {
  return row.int8_rate > 0 ? mean(row.rates) * row.token_ops / row.int8_rate : 0;
}

nlohmann::ordered_json to_json(const Row& row) {
  return {{"model", row.model},
          {"size_bytes", row.weight_bytes},
          {"parameters", row.parameters},
          {"backend", row.backend},
          {"precision", row.precision},
          {"threads", row.threads},
          {"test", row.test},
          {"tokens_per_second", mean(row.rates)},
          {"deviation", deviation(row.rates)},
          {"samples", row.rates},
          {"bytes_per_second", row.bytes_per_second},
          {"read_bandwidth", row.bandwidth},
          {"share", row.bandwidth > 0 ? row.bytes_per_second / row.bandwidth : 0},
          {"token_ops", row.token_ops},
          {"int8_rate", row.int8_rate},
          {"int8_share", int8_share(row)}};
}

void print_markdown(const std::vector<Row>& rows) {
  fmt::print(
      "| {:<24} | {:>10} | {:>9} | {:<10} | {:>7} | {:>13} | {:>18} | {:>7} | {:>7} | {:>7} |\n",
      "model", "size", "params", "backend", "threads", "test", "t/s", "GB/s", "% of bw", "% of i8");
  fmt::print(
      "| {:-<24} | {:->9}: | {:->8}: | {:-<10} | {:->6}: | {:->12}: | {:->17}: | {:->6}: | {:->6}: "
      "| {:->6}: |\n",
      "", "", "", "", "", "", "", "", "", "");
  for (const Row& row : rows) {
    fmt::print(
        "| {:<24} | {:>10} | {:>7.2f} B | {:<10} | {:>7} | {:>13} | {:>18} | {:>7.2f} | {:>7.1f} "
        "| {:>7.1f} |\n",
        row.model, human_bytes(row.weight_bytes), static_cast<double>(row.parameters) / 1e9,
        row.backend, row.threads, row.test,
        fmt::format("{:.2f} ± {:.2f}", mean(row.rates), deviation(row.rates)),
        row.bytes_per_second / 1e9,
        row.bandwidth > 0 ? 100 * row.bytes_per_second / row.bandwidth : 0, 100 * int8_share(row));
  }
}

void print_csv(const std::vector<Row>& rows) {
  fmt::print(
      "model,size_bytes,parameters,backend,precision,threads,test,tokens_per_second,"
      "deviation,bytes_per_second,read_bandwidth\n");
  for (const Row& row : rows) {
    std::string model = row.model;
    std::erase(model, '"');
    fmt::print("\"{}\",{},{},{},{},{},{},{:.3f},{:.3f},{:.0f},{:.0f}\n", model, row.weight_bytes,
               row.parameters, row.backend, row.precision, row.threads, row.test, mean(row.rates),
               deviation(row.rates), row.bytes_per_second, row.bandwidth);
  }
}

// Of all devices.
uint64_t weight_bytes(const plan::PlanView& plan) {
  uint64_t sum = 0;
  for (const plan::SegmentRecord& segment : plan.segments) {
    if (segment.kind == static_cast<uint32_t>(plan::SegmentKind::Weights)) sum += segment.size;
  }
  return sum;
}

template <class T>
std::vector<T> or_default(const std::vector<T>& given, T otherwise) {
  return given.empty() ? std::vector<T>{otherwise} : given;
}

Status bench_threads(const Options& options, int threads, std::vector<Row>& rows) {
  EngineFlags flags = options.engine;
  flags.threads = threads;
  const std::vector<int64_t> prompts = or_default<int64_t>(options.bench_prompt, 512);
  const std::vector<int64_t> generations = or_default<int64_t>(options.bench_generate, 128);
  const std::vector<int64_t> depths = or_default<int64_t>(options.bench_depth, 0);
  if (flags.ctx == 0) {
    for (int64_t n : prompts) flags.ctx = std::max(flags.ctx, n);
    for (int64_t n : generations) flags.ctx = std::max(flags.ctx, n);
    flags.ctx = std::max<int64_t>(flags.ctx, 1) + *std::max_element(depths.begin(), depths.end());
  }
  LoadedModel model = KTX_TRY(load_model(options.plan, flags));
  for (const std::string& line : model.engine->notes()) note(line);
  Row row;
  row.model = model.engine->plan().facts.name;
  if (row.model.empty()) row.model = model.engine->plan().facts.architecture;
  row.weight_bytes = model.engine->memory().weight_bytes;
  row.parameters = model.engine->plan().facts.parameters;
  row.backend = fmt::format("CPU {}", name(model.engine->isa()));
  const auto gpus = model.engine->gpus();
  if (!gpus.empty()) row.backend = gpus.size() == 1 ? "CUDA" : fmt::format("CUDA x{}", gpus.size());
  row.weight_bytes = weight_bytes(model.engine->plan());
  row.precision = model.engine->precision() == runtime::Precision::Exact ? "exact" : "fast";
  row.threads = model.engine->threads();
  row.token_ops = token_ops(model.engine->plan());
  Bench bench(*model.engine);
  KTX_TRY(bench.generation(1));  // warms caches and pages
  const auto add = [&](const std::string& test, int64_t depth, auto&& run) -> Status {
    row.test = depth > 0 ? fmt::format("{} @ d{}", test, depth) : test;
    row.rates.clear();
    if (gpus.empty()) {
      row.bandwidth = measure_read_bandwidth(row.threads);  // beside each test: machines vary
      row.int8_rate = measure_int8_rate(row.threads, model.engine->isa());
    } else {
      row.bandwidth = gpus[0].bandwidth_gbps * 1e9;  // as rated; layers take turns
    }
    double bytes = 0;
    model.engine->enable_step_stats(options.bench_steps);
    for (int i = 0; i < options.repetitions; ++i) {
      const Bench::Run result = KTX_TRY(run());
      row.rates.push_back(result.rate);
      bytes += result.bytes_per_second;
    }
    row.bytes_per_second = bytes / options.repetitions;
    rows.push_back(row);
    if (options.bench_steps) {
      note(fmt::format("{}, {} threads: {:.1f} GB/s, {:.2f} TOP/s int8\n{}", row.test, row.threads,
                       row.bandwidth / 1e9, row.int8_rate / 1e12,
                       steps_table(*model.engine, {row.bandwidth, row.int8_rate})));
    }
    return {};
  };
  const auto none = [](const std::vector<int64_t>& counts) {
    return std::all_of(counts.begin(), counts.end(), [](int64_t n) { return n == 0; });
  };
  if (none(prompts) && none(generations)) {  // the machine's rates alone
    return add("probe", 0, [] { return Result<Bench::Run>(Bench::Run{}); });
  }
  for (int64_t depth : depths) {
    KTX_TRY(bench.fill(depth));
    for (int64_t n : prompts) {
      if (n > 0) KTX_TRY(add(fmt::format("pp{}", n), depth, [&] { return bench.prompt(n); }));
    }
    for (int64_t n : generations) {
      if (n > 0) KTX_TRY(add(fmt::format("tg{}", n), depth, [&] { return bench.generation(n); }));
    }
  }
  return {};
}

}  // namespace

int run_bench(const Options& options) {
  std::vector<Row> rows;
  std::vector<int64_t> threads = options.bench_threads;
  if (threads.empty()) threads.push_back(0);
  for (int64_t count : threads) {
    const Status status = bench_threads(options, static_cast<int>(count), rows);
    if (!status) return fail(status.error().message);
  }
  if (options.format == "json") {
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    for (const Row& row : rows) json.push_back(to_json(row));
    fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else if (options.format == "csv") {
    print_csv(rows);
  } else {
    print_markdown(rows);
  }
  return 0;
}

}  // namespace ktx::tools
