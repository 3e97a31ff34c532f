#include "tools/ktx-run/bench_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lib/support/text_table.h"

namespace ktx::tools {
namespace {

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

double int8_share(const BenchRow& row) {
  return row.int8_rate > 0 ? mean(row.rates) * row.token_ops / row.int8_rate : 0;
}

// The share of routed experts' activations that GPUs served with experts of their own.
double gpu_share(const BenchRow& row) {
  const auto all = static_cast<double>(row.expert_use.total());
  return all > 0 ? static_cast<double>(row.expert_use.gpu) / all : 0;
}
// Whether the CPU, or a GPU over main memory, serves some.
bool divides_experts(const BenchRow& row) {
  return row.backend.starts_with("CUDA") && row.expert_use.cpu + row.expert_use.streamed > 0;
}

nlohmann::ordered_json to_json(const BenchRow& row) {
  nlohmann::ordered_json json = {
      {"model", row.model},
      {"size_bytes", row.weight_bytes},
      {"parameters", row.parameters},
      {"quantization", row.quantization},
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
      {"int8_share", int8_share(row)},
      {"expert_activations",
       {{"cpu", row.expert_use.cpu},
        {"gpu", row.expert_use.gpu},
        {"streamed", row.expert_use.streamed}}}};
  if (const runtime::ExpertGuestUse& guests = row.expert_guests; guests.slots > 0) {
    json["expert_gpu_slots"] = {{"slots", guests.slots}, {"activations", guests.activations},
                                {"hits", guests.hits},   {"moves", guests.moves},
                                {"bytes", guests.bytes}, {"failures", guests.failures}};
  }
  if (const runtime::ExpertCacheUse& cache = row.expert_cache; cache.slots > 0) {
    json["expert_cache"] = {{"slots", cache.slots},
                            {"experts", cache.experts},
                            {"chosen", cache.chosen()},
                            {"hits", cache.hits},
                            {"ahead", cache.ahead},
                            {"read_bytes", cache.read_bytes},
                            {"tokens", row.tokens},
                            {"guesses", cache.guesses},
                            {"right_guesses", cache.right_guesses},
                            {"wait_seconds", cache.waited_seconds}};
  }
  if (row.drafts) {
    json["guesses"] = {{"drafted", row.drafts->drafted},
                       {"accepted", row.drafts->accepted},
                       {"passes", row.drafts->passes},
                       {"predicted_tokens_per_second", row.drafts->predicted_rate}};
  }
  return json;
}

// "8.03 B", "3.41 M"; all rows are of one plan.
std::string parameters(const BenchRow& row) {
  const double millions = static_cast<double>(row.parameters) / 1e6;
  return millions < 1000 ? fmt::format("{:.2f} M", millions)
                         : fmt::format("{:.2f} B", millions / 1000);
}

std::string percent(int64_t part, int64_t all) {
  if (all == 0) return "-";
  return fmt::format("{:.1f}", 100.0 * static_cast<double>(part) / static_cast<double>(all));
}

// Chosen experts that were in memory, megabytes read for a token, and right guesses.
void add_cache(const BenchRow& row, std::vector<std::string>& cells) {
  const runtime::ExpertCacheUse& cache = row.expert_cache;
  const auto tokens = static_cast<double>(std::max<int64_t>(1, row.tokens));
  cells.push_back(percent(cache.hits, cache.chosen()));
  cells.push_back(fmt::format("{:.1f}", static_cast<double>(cache.read_bytes) / 1e6 / tokens));
  cells.push_back(percent(cache.right_guesses, cache.guesses));
}

void add_drafts(const std::optional<DraftUse>& use, std::vector<std::string>& cells) {
  const DraftUse drafts = use.value_or(DraftUse());
  const double right = drafts.drafted > 0 ? 100.0 * static_cast<double>(drafts.accepted) /
                                                static_cast<double>(drafts.drafted)
                                          : 0;
  cells.push_back(use ? fmt::format("{}", drafts.drafted) : "");
  cells.push_back(use ? fmt::format("{:.1f}", right) : "");
  cells.push_back(use ? fmt::format("{:.2f}", drafts.predicted_rate) : "");
}

void print_markdown(const std::vector<BenchRow>& rows) {
  uint64_t largest = 0;
  for (const BenchRow& row : rows) largest = std::max(largest, row.weight_bytes);
  const ByteUnit unit(largest);
  const bool divided = std::ranges::any_of(rows, divides_experts);
  std::vector<TextTable::Column> columns = {{"model", TextTable::Left},
                                            {"size"},
                                            {"params"},
                                            {"backend", TextTable::Left},
                                            {"threads"},
                                            {"test"},
                                            {"t/s"},
                                            {"GB/s"},
                                            {"% of bw"},
                                            {"% of i8"}};
  if (divided) columns.push_back({"% of experts on GPU"});
  const bool guests =
      std::ranges::any_of(rows, [](const BenchRow& row) { return row.expert_guests.slots > 0; });
  if (guests) columns.insert(columns.end(), {{"% in slots"}, {"experts moved"}});
  const bool cached =
      std::ranges::any_of(rows, [](const BenchRow& row) { return row.expert_cache.slots > 0; });
  if (cached) columns.insert(columns.end(), {{"% of experts there"}, {"MB/t read"}, {"% guessed"}});
  const bool drafted = std::ranges::any_of(rows, [](const BenchRow& row) { return !!row.drafts; });
  if (drafted) columns.insert(columns.end(), {{"guesses"}, {"% right"}, {"predicted t/s"}});
  TextTable table(columns);
  for (const BenchRow& row : rows) {
    const double share = row.bandwidth > 0 ? 100 * row.bytes_per_second / row.bandwidth : 0;
    std::vector<std::string> cells = {
        row.model,
        unit.text(row.weight_bytes),
        parameters(row),
        row.backend,
        fmt::format("{}", row.threads),
        row.test,
        fmt::format("{:.2f} ± {:.2f}", mean(row.rates), deviation(row.rates)),
        fmt::format("{:.2f}", row.bytes_per_second / 1e9),
        row.bandwidth > 0 ? fmt::format("{:.1f}", share) : "-",
        fmt::format("{:.1f}", 100 * int8_share(row))};
    if (divided) cells.push_back(fmt::format("{:.1f}", 100 * gpu_share(row)));
    if (guests) {
      cells.push_back(percent(row.expert_guests.hits, row.expert_guests.activations));
      cells.push_back(fmt::format("{}", row.expert_guests.moves));
    }
    if (cached) add_cache(row, cells);
    if (drafted) add_drafts(row.drafts, cells);
    table.add(std::move(cells));
  }
  fmt::print("{}", table.markdown());
}

void print_csv(const std::vector<BenchRow>& rows) {
  fmt::print(
      "model,size_bytes,parameters,backend,precision,threads,test,tokens_per_second,"
      "deviation,bytes_per_second,read_bandwidth\n");
  for (const BenchRow& row : rows) {
    std::string model = row.model;
    std::erase(model, '"');
    fmt::print("\"{}\",{},{},{},{},{},{},{:.3f},{:.3f},{:.0f},{:.0f}\n", model, row.weight_bytes,
               row.parameters, row.backend, row.precision, row.threads, row.test, mean(row.rates),
               deviation(row.rates), row.bytes_per_second, row.bandwidth);
  }
}

void print_json(const std::vector<BenchRow>& rows) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const BenchRow& row : rows) json.push_back(to_json(row));
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

void print_rows(const std::vector<BenchRow>& rows, const std::string& format) {
  if (format == "json") return print_json(rows);
  if (format == "csv") return print_csv(rows);
  print_markdown(rows);
}

}  // namespace ktx::tools
