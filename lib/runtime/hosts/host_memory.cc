#include "lib/runtime/hosts/host_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "lib/plan/plan_hosts.h"
#include "lib/target/target.h"

namespace ktx::runtime {

Result<std::map<std::string, uint64_t>> memory_of_hosts(const plan::PlanView& plan,
                                                        HostGroup& group) {
  KTX_TRY(group.send_to_others(MessageWriter({MessageKind::ReadMemory, 0, 0}).take()));
  std::map<std::string, uint64_t> memory;
  for (int other = 1; other < group.ranks(); ++other) {
    const MessageBytes answer = KTX_TRY(group.wait_for(other, MessageKind::Memory));
    MessageReader in(answer);
    const bool known = in.get<bool>();
    const auto bytes = in.get<uint64_t>();
    if (!in.at_end()) {
      return Error{fmt::format("{}: its answer is damaged", group.name(other))};
    }
    if (known) memory[std::string(plan.string(plan::cpu_string(plan, other)))] = bytes;
  }
  return memory;
}

MessageBytes own_memory(uint64_t reserved) {
  const std::optional<uint64_t> available = target::available_memory();
  const uint64_t bytes = available.value_or(0) - std::min(available.value_or(0), reserved);
  return MessageWriter({MessageKind::Memory, 0, 0}).put(available.has_value()).put(bytes).take();
}

}  // namespace ktx::runtime
