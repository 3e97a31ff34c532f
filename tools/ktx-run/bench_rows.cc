#include "tools/ktx-run/bench_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lib/support/strings.h"

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

nlohmann::ordered_json to_json(const BenchRow& row) {
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

void print_markdown(const std::vector<BenchRow>& rows) {
  fmt::print(
      "| {:<24} | {:>10} | {:>9} | {:<10} | {:>7} | {:>13} | {:>18} | {:>7} | {:>7} | {:>7} |\n",
      "model", "size", "params", "backend", "threads", "test", "t/s", "GB/s", "% of bw", "% of i8");
  fmt::print(
      "| {:-<24} | {:->9}: | {:->8}: | {:-<10} | {:->6}: | {:->12}: | {:->17}: | {:->6}: | {:->6}: "
      "| {:->6}: |\n",
      "", "", "", "", "", "", "", "", "", "");
  for (const BenchRow& row : rows) {
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
