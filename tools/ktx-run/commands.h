// The commands of ktx-run. Each returns the exit status. Results go to stdout; diagnostics and
// progress go to stderr.
#pragma once

#include "lib/target/target.h"
#include "tools/ktx-run/options.h"

namespace ktx::tools {

int run_generate(const Options& options);
int run_chat(const Options& options);
int run_serve(const Options& options);
int run_inspect(const Options& options);
int run_bench(const Options& options);
int run_perplexity(const Options& options);
int run_score(const Options& options);
int run_compare(const Options& options);
int run_selftest(const Options& options);
int run_doctor(const Options& options);
int run_probe(const Options& options);
int run_plans(const Options& options);
int run_pull(const Options& options);
// What probe finds out about the machine at hand.
target::Target measure_machine();

}  // namespace ktx::tools
