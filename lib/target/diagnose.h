// What a machine offers a plan, and what it lacks: the findings of `ktx-run doctor`.
//
//   for (const Finding& finding : diagnose(facts, detect_isa()).findings) print(finding);
//   // {"memory", Ok, "23.4 GiB, of which 21.0 GiB are free", ""}
//   // {"huge pages", Note, "never", "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled
//   ..."}
//
// Never fails: what cannot be read is a finding too.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/target/target.h"

namespace ktx::target {

enum class Health {
  Ok,
  Note,     // runs, but slower or with less than it could
  Problem,  // something does not run; `advice` says what to do
};
std::string_view name(Health health);  // "ok", "note", "problem"

struct Finding {
  std::string what;  // "memory"
  Health health = Health::Ok;
  std::string text;
  std::string advice;  // may be empty
};

struct GpuFacts {
  std::string problem = {};  // of the driver; empty: there is one
  int driver_version = 0;
  std::vector<GpuTarget> gpus = {};
  bool has_kernels = false;  // of GPUs, in this build
  int oldest_driver = 0;     // that they start with: 13000 for CUDA 13
};

struct Diagnosis {
  std::vector<Finding> findings;
  bool runs_on_cpu = false;
  bool runs_on_gpu = false;
};

// `root` is put before every path of /proc and /sys, as in detect_host(); `isa` is the best of the
// machine.
Diagnosis diagnose(const GpuFacts& gpus, Isa isa, const std::string& root = "");

}  // namespace ktx::target
