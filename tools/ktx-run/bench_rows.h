// The result of one test of bench, and the printing of a list of them.
//
//   print_rows(rows, "md");   // or "csv", "json"
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/runtime/engine/expert_use.h"
#include "lib/runtime/experts/expert_cache_use.h"
#include "lib/runtime/experts/expert_guest_use.h"

namespace ktx::tools {

// The figures of one run with draft tokens (bench_drafts.h).
struct DraftUse {
  int64_t drafted = 0, accepted = 0, passes = 0;
  double predicted_rate = 0;  // tokens a second
};

struct BenchRow {
  std::string model;         // "Llama 3.1 8B Q4_K_M"
  std::string quantization;  // "Q4_K_M"
  uint64_t weight_bytes = 0;
  int64_t parameters = 0;
  std::string backend;  // the instruction set
  std::string precision;
  int threads = 0;
  std::string test;           // "pp512", "tg128"
  std::vector<double> rates;  // tokens per second
  double bytes_per_second = 0;
  double bandwidth = 0;                   // measured, bytes per second
  double int8_rate = 0;                   // measured, operations per second
  double token_ops = 0;                   // operations of a token's products
  runtime::ExpertUse expert_use;          // activations in the test; none: no experts
  runtime::ExpertGuestUse expert_guests;  // in the test; no slots: experts stay where they are
  runtime::ExpertCacheUse expert_cache;   // in the test; no slots: all are mapped
  int64_t tokens = 0;                     // that the test computed
  std::optional<DraftUse> drafts;
};

// In the columns of llama-bench, with the bytes of weights read per second and their
// share of the measured bandwidth, and the products' share of the int8 peak.
void print_rows(const std::vector<BenchRow>& rows, const std::string& format);

}  // namespace ktx::tools
