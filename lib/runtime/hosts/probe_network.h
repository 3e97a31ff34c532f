// Measures what the first host and another one send each other: for a target file (`ktx-run
// probe` under mpirun).
//
//   first host   measure_link(group, 1)     // 23.4 Gbit/s, 18.2 us
//   the others   answer_probe(group, message, own) for each message that comes
//
// The best of several rounds counts: in the others the network or the machines were busy
// with something else as well.
#pragma once

#include <string>
#include <vector>

#include "lib/runtime/hosts/host_group.h"
#include "lib/support/result.h"
#include "lib/target/target.h"

namespace ktx::runtime {

struct LinkRate {
  double gbit = 0;        // 10^9 bits of values a second, of the slower way
  double latency_us = 0;  // of a message of a few bytes, one way
};
Result<LinkRate> measure_link(HostGroup& group, int other);

// A machine of the probe, as its own process sees it.
struct ProbedHost {
  std::string name;  // of the machine
  target::CpuTarget cpu;
  std::vector<target::GpuTarget> gpus;
};
// Requests all others to measure themselves; receive_hosts() waits for the results.
Status ask_hosts(HostGroup& group);
Result<ProbedHost> receive_host(HostGroup& group, int other);

// On another host: answers what the first one asks until that leaves. `measure` finds the own
// machine.
Status follow_probe(HostGroup& group, const std::function<ProbedHost()>& measure);

}  // namespace ktx::runtime
