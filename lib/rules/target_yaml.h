// Reads the description of another machine (`--target=FILE`):
//
//   name: workstation
//   gpus:
//     - {name: RTX 4090, compute_capability: 8.9, memory_gib: 24, bandwidth_gbps: 1008, pcie_gbps:
//     25}
//   cpu: {isa: avx512, cores: 16, memory_gib: 128, bandwidth_gbps: 80, numa_nodes: 1}
//
// Several machines that compute one model together are `hosts` instead of `cpu`:
//
//   network: {gbit: 25, latency_us: 20}
//   hosts:
//     - {name: a, cpu: {isa: avx512, cores: 32, memory_gib: 256, bandwidth_gbps: 300}}
//     - {name: b, cpu: {isa: avx512, cores: 32, memory_gib: 128, bandwidth_gbps: 200},
//        gpus: [{compute_capability: 8.9, memory_gib: 24, bandwidth_gbps: 1008}]}
//
// `count: 4` in an entry of gpus or hosts means four of them; hosts of an entry are then numbered
// (node1 to node4). An entry may have a `network` of its own. Ready-made files are in targets/.
// Safe for untrusted files.
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
