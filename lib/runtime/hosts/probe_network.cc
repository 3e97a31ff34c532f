#include "lib/runtime/hosts/probe_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "lib/support/timer.h"

namespace ktx::runtime {
namespace {

// Small ones first, which also open the connection.
constexpr int kPings = 200, kLargeRounds = 6;
constexpr uint64_t kLargeBytes = uint64_t{16} << 20;
constexpr uint64_t kMostNodes = 1024, kMostProbedGpus = 64;

// Seconds until the answer to a message of some bytes, which has some bytes itself.
Result<double> ping(HostGroup& group, int other, uint64_t bytes, uint64_t answer_bytes) {
  MessageWriter out({MessageKind::Ping, 0, 0});
  out.put(answer_bytes).add(bytes);
  MessageBytes message = out.take();
  const Timer timer;
  KTX_TRY(group.send(other, std::move(message)));
  const MessageBytes answer = KTX_TRY(group.wait_for(other, MessageKind::Pong));
  const double seconds = timer.seconds();
  if (answer.size() == sizeof(MessageHead) + answer_bytes) return seconds;
  return Error{fmt::format("{}: its answer is damaged", group.name(other))};
}

Status answer_ping(HostGroup& group, MessageReader& in) {
  const auto bytes = in.get<uint64_t>();
  if (!in.ok() || bytes > kLargeBytes) return Error{"the first host's message is damaged"};
  MessageWriter out({MessageKind::Pong, 0, 0});
  out.add(bytes);
  return group.send(0, out.take());
}

void put_gpu(MessageWriter& out, const target::GpuTarget& gpu) {
  out.put_text(gpu.name).put(static_cast<int32_t>(gpu.compute_major));
  out.put(static_cast<int32_t>(gpu.compute_minor)).put(gpu.memory_bytes);
  out.put(static_cast<int32_t>(gpu.multiprocessors)).put(gpu.bandwidth_gbps).put(gpu.pcie_gbps);
  out.put(gpu.peer_gbps).put(gpu.peer_write_gbps).put(gpu.peer_both_gbps);
  out.put(gpu.sum_us).put(gpu.sum_mib_us);
  out.put(gpu.read_gbps).put(gpu.tflops).put(gpu.launch_us).put(gpu.hand_over_us);
}

target::GpuTarget get_gpu(MessageReader& in) {
  target::GpuTarget gpu;
  gpu.name = in.get_text();
  gpu.compute_major = in.get<int32_t>();
  gpu.compute_minor = in.get<int32_t>();
  gpu.memory_bytes = in.get<uint64_t>();
  gpu.multiprocessors = in.get<int32_t>();
  for (double* rate : {&gpu.bandwidth_gbps, &gpu.pcie_gbps, &gpu.peer_gbps, &gpu.peer_write_gbps,
                       &gpu.peer_both_gbps, &gpu.sum_us, &gpu.sum_mib_us, &gpu.read_gbps,
                       &gpu.tflops, &gpu.launch_us, &gpu.hand_over_us}) {
    *rate = in.get<double>();
  }
  return gpu;
}

}  // namespace

Result<LinkRate> measure_link(HostGroup& group, int other) {
  double small = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kPings; ++i) small = std::min(small, KTX_TRY(ping(group, other, 0, 0)));
  double slower = 0;  // of both ways, with a small answer
  for (const bool back : {false, true}) {
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kLargeRounds; ++i) {
      best = std::min(best,
                      KTX_TRY(ping(group, other, back ? 0 : kLargeBytes, back ? kLargeBytes : 0)));
    }
    slower = std::max(slower, best);
  }
  const double seconds = std::max(slower - small, 1e-9);
  return LinkRate{static_cast<double>(kLargeBytes) * 8 / seconds / 1e9, small / 2 * 1e6};
}

Status ask_hosts(HostGroup& group) {
  return group.send_to_others(MessageWriter({MessageKind::Measure, 0, 0}).take());
}

Result<ProbedHost> receive_host(HostGroup& group, int other) {
  const MessageBytes answer = KTX_TRY(group.wait_for(other, MessageKind::Machine));
  MessageReader in(answer);
  ProbedHost host;
  host.name = in.get_text();
  target::CpuTarget& cpu = host.cpu;
  cpu.model = in.get_text();
  const auto isa = in.get<int32_t>();
  cpu.isa = static_cast<Isa>(std::clamp(isa, 0, static_cast<int32_t>(all_isas().back().isa)));
  cpu.cores = in.get<int32_t>();
  cpu.memory_bytes = in.get<uint64_t>();
  cpu.numa.resize(std::min(in.get<uint64_t>(), kMostNodes));
  cpu.bandwidth_gbps = in.get<double>();
  cpu.read_gbps = in.get<double>();
  cpu.int8_tops = in.get<double>();
  const uint64_t gpus = std::min(in.get<uint64_t>(), kMostProbedGpus);
  for (uint64_t i = 0; i < gpus; ++i) host.gpus.push_back(get_gpu(in));
  if (in.at_end()) return host;
  return Error{fmt::format("{}: its answer is damaged", group.name(other))};
}

Status follow_probe(HostGroup& group, const std::function<ProbedHost()>& measure) {
  for (;;) {
    const MessageBytes message = KTX_TRY(group.wait(0, {.idle = true}));
    if (message.empty()) return {};  // the first host has left
    MessageReader in(message);
    if (in.head().kind == MessageKind::Ping) {
      KTX_TRY(answer_ping(group, in));
      continue;
    }
    const ProbedHost host = measure();
    const target::CpuTarget& cpu = host.cpu;
    MessageWriter out({MessageKind::Machine, 0, 0});
    out.put_text(host.name).put_text(cpu.model).put(static_cast<int32_t>(cpu.isa));
    out.put(static_cast<int32_t>(cpu.cores)).put(cpu.memory_bytes);
    out.put(static_cast<uint64_t>(cpu.numa.size())).put(cpu.bandwidth_gbps).put(cpu.read_gbps);
    out.put(cpu.int8_tops).put(static_cast<uint64_t>(host.gpus.size()));
    for (const target::GpuTarget& gpu : host.gpus) put_gpu(out, gpu);
    KTX_TRY(group.send(0, out.take()));
  }
}

}  // namespace ktx::runtime
