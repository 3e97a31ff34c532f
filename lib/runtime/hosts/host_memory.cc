#include "lib/runtime/hosts/host_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "lib/plan/device_memory.h"
#include "lib/plan/plan_hosts.h"
#include "lib/target/host_device.h"
#include "lib/target/target.h"

namespace ktx::runtime {
namespace {

constexpr uint64_t kMostGpus = 64;

// The GPUs of a host by number; their names are those of the plan.
std::map<int32_t, std::string> gpus_of_host(const plan::PlanView& plan, size_t host) {
  std::map<int32_t, std::string> gpus;
  for (const std::string& device : plan::plan_devices(plan)) {
    const int number = gpu_number(target::name_on_host(device));
    if (number >= 0 && plan::host_of(plan, device) == host) gpus[number] = device;
  }
  return gpus;
}

}  // namespace

Result<HostsMemory> memory_of_hosts(const plan::PlanView& plan, HostGroup& group) {
  std::vector<std::map<int32_t, std::string>> gpus(static_cast<size_t>(group.ranks()));
  for (int other = 1; other < group.ranks(); ++other) {
    auto& own = gpus[static_cast<size_t>(other)] = gpus_of_host(plan, static_cast<size_t>(other));
    std::vector<int32_t> numbers;
    for (const auto& [number, device] : own) numbers.push_back(number);
    MessageWriter question({MessageKind::ReadMemory, 0, 0});
    KTX_TRY(group.send(other, question.put_list(std::span<const int32_t>(numbers)).take()));
  }
  HostsMemory memory;
  for (int other = 1; other < group.ranks(); ++other) {
    const MessageBytes answer = KTX_TRY(group.wait_for(other, MessageKind::Memory));
    MessageReader in(answer);
    const bool known = in.get<bool>();
    const auto bytes = in.get<uint64_t>();
    for (const auto& [number, device] : gpus[static_cast<size_t>(other)]) {
      GpuFacts facts;
      facts.total_bytes = in.get<uint64_t>();
      facts.free_bytes = in.get<uint64_t>();
      if (facts.free_bytes > 0) memory.gpus[device] = facts;
    }
    if (!in.at_end()) {
      return Error{fmt::format("{}: its answer is damaged", group.name(other))};
    }
    if (known) memory.cpus[std::string(plan.string(plan::cpu_string(plan, other)))] = bytes;
  }
  return memory;
}

MessageBytes own_memory(const MessageBytes& question, uint64_t reserved, const OpenGpu& open_gpu) {
  const std::optional<uint64_t> available = target::available_memory();
  const uint64_t bytes = available.value_or(0) - std::min(available.value_or(0), reserved);
  MessageWriter out({MessageKind::Memory, 0, 0});
  out.put(available.has_value()).put(bytes);
  MessageReader in(question);
  for (const int32_t number : in.get_list<int32_t>(kMostGpus)) {
    // One that is missing is an error of the start, which says why.
    const auto gpu = (open_gpu ? open_gpu : OpenGpu(runtime::open_gpu))(number);
    const GpuFacts facts = gpu ? (*gpu)->facts() : GpuFacts();
    out.put(facts.total_bytes).put(facts.free_bytes);
  }
  return out.take();
}

}  // namespace ktx::runtime
