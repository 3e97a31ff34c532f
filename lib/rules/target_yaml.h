// Reads the description of another machine (`--target=FILE`):
//
//   name: workstation
//   gpus:
//     - {name: RTX 4090, compute_capability: 8.9, memory_gib: 24, bandwidth_gbps: 1008, pcie_gbps:
//     25}
//   cpu: {isa: avx512, cores: 16, memory_gib: 128, bandwidth_gbps: 80, numa_nodes: 1}
//
// `count: 4` in an entry of gpus means four of them. Ready-made files are in targets/. Safe for
// untrusted files.
#pragma once

#include <string>

#include "lib/support/diag.h"
#include "lib/support/result.h"
#include "lib/target/target.h"

namespace ktx::rules {

// Mistakes go to `diags`; the Result fails when the file cannot be read at all.
Result<target::Target> read_target(const std::string& path, DiagSink& diags);
target::Target parse_target(const std::string& text, const std::string& path, DiagSink& diags);

}  // namespace ktx::rules
