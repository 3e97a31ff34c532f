#include "lib/runtime/hosts/follow_host.h"

#include <fmt/format.h>

#include "lib/runtime/hosts/followed_plan.h"
#include "lib/runtime/hosts/host_memory.h"

namespace ktx::runtime {
namespace {

// Between two passes there are none but those of a pass that was stopped before it took them.
HostGroup::Pick drop_values(const MessageHead& head) {
  return head.kind == MessageKind::Values ? HostGroup::Pick::Drop : HostGroup::Pick::Take;
}

Status follow(HostGroup& group, const std::string& path, const EngineOptions& options) {
  std::unique_ptr<FollowedPlan> plan;
  for (;;) {
    const auto drained = [&] {
      if (plan) plan->drain();
      return false;
    };
    const MessageBytes message =
        KTX_TRY(group.wait(0, {.idle = true, .until = drained}, drop_values));
    if (message.empty()) return {};  // the first host has left
    const MessageKind kind = head_of(message).kind;
    if (kind == MessageKind::Start) {
      plan.reset();
      HostReady ready;
      const HostStart start = KTX_TRY(HostStart::read(message));
      auto opened = FollowedPlan::open(group, path, options, start);
      if (opened) {
        plan = opened.take();
        ready.note = plan->note();
        ready.links = plan->has_links();
      } else {
        ready.error = opened.error().message;
      }
      KTX_TRY(group.send(0, ready.message()));
    } else if (kind == MessageKind::ReadMemory) {
      KTX_TRY(group.send(0, own_memory(message, options.reserved_bytes, options.open_gpu)));
    } else if (kind == MessageKind::Close) {
      plan.reset();
    } else if (plan) {
      KTX_TRY(plan->answer(message));
    }
  }
}

}  // namespace

Status follow_host(HostGroup& group, const std::string& path, const EngineOptions& options) {
  const Status followed = follow(group, path, options);
  if (followed) return {};
  // One that failed elsewhere has its name already.
  const std::string failure = group.failure();
  if (!failure.empty()) return Error{failure};
  group.fail(fmt::format("{}: {}", group.name(group.rank()), followed.error().message));
  return Error{group.failure()};
}

}  // namespace ktx::runtime
