// bench --steps: time of a test by kind of step, beside the limits of the machine.
#pragma once

#include <span>
#include <string>

#include "lib/program/program.h"
#include "lib/runtime/engine/batch.h"
#include "lib/runtime/engine/engine.h"

namespace ktx::tools {

struct Floor {
  double bytes_per_second = 0;  // measured reading of memory
  double ops_per_second = 0;    // measured int8 multiply-adds, two operations each
};

// "matmul q_proj": the op and the last part of the module's name.
std::string step_kind(const program::Step& step);

// Whether its result has a row per wanted logits row, not per token.
bool is_per_output(const program::Program& program, const program::Step& step);

// Operations of a step's products for one row of its result.
double step_ops(const program::Program& program, const program::Step& step);

// What attention does with the cache: bytes of keys and values that it reads, each once for a
// sequence, and operations of both products. Nothing for other steps.
struct CacheWork {
  double bytes = 0, ops = 0;
};
CacheWork cache_work(const program::Program& program, const program::Step& step,
                     plan::KvType kv_type, std::span<const runtime::SequenceRun> runs);

// Operations of the products for one token, its logits left out.
double token_ops(const program::Program& program);

// A table of the steps that ran since the engine's step times were switched on:
//
//   | step          |  ms/run |   time |    busy |   GB/s |  % of bw |  GOP/s | % of int8 |
//   | matmul q_proj |    0.21 |  3.1 % |  97.8 % |   41.2 |     88.0 |     81 |       3.9 |
//
// busy: what part of that time the threads had work in its stage. A step's bytes are those
// of its weights and, of delta nets, of the states that it reads and writes; its operations those
// of its products.
std::string steps_table(const runtime::Engine& engine, const Floor& floor);

// The kernels of the products on the CPU, a line for each family and weight format (of gate, where
// up has another), by the number of tokens of a call; for experts, of an expert:
//
//   matmul_panel16_q8, Q4_K: 1: matmul_panel16_q8_gemv_avx512, ... 17-:
//   matmul_panel16_q8_gemm_avx512
std::string products_text(const runtime::Engine& engine);

}  // namespace ktx::tools
