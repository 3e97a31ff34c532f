// A plan as a host that follows has it open: what an Engine is on the first host, without texts,
// since these are the first host's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lib/plan/plan_reader.h"
#include "lib/runtime/cache/kv_pools.h"
#include "lib/runtime/cpu/warm_up.h"
#include "lib/runtime/engine/engine_options.h"
#include "lib/runtime/engine/plan_runner.h"
#include "lib/runtime/hosts/batch_message.h"
#include "lib/runtime/hosts/host_group.h"
#include "lib/runtime/hosts/host_start.h"

namespace ktx::runtime {

class FollowedPlan {
 public:
  static Result<std::unique_ptr<FollowedPlan>> open(HostGroup& group, const std::string& path,
                                                    const EngineOptions& options,
                                                    const HostStart& start);

  std::string note() const;  // "8 threads, avx512, 93.4 GiB of weights", and those of its GPUs
  bool has_links() const;
  // While this host waits for the first one.
  void drain();
  // Answers a message of the first host, of any kind but Start and Close. An error is one of the
  // run; what a pass fails of is in its ForwardOver.
  Status answer(const MessageBytes& message);

 private:
  FollowedPlan(HostGroup& group, plan::PlanFile file) : group_(group), plan_(std::move(file)) {}
  Status build(const EngineOptions& options, const HostStart& start);
  struct Answer {
    MessageKind kind;
    Status (FollowedPlan::*answer)(MessageReader&);
  };
  static const Answer kAnswers[];
  Status answer_forward(MessageReader& in);
  Status copy_block(MessageReader& in);
  Status give_block(MessageReader& in) { return answer_block(in, false); }
  Status take_block(MessageReader& in) { return answer_block(in, true); }
  Status give_states(MessageReader& in) { return answer_states(in, false); }
  Status take_states(MessageReader& in) { return answer_states(in, true); }
  Status give_value(MessageReader& in);
  Status give_counts(MessageReader& in);
  Status enable_times(MessageReader& in);
  Status give_times(MessageReader& in);
  Status connect(MessageReader& in);
  Status use_links(MessageReader& in);

  Result<bool> run_forward(MessageReader& in);
  Status answer_block(MessageReader& in, bool write);
  Status answer_states(MessageReader& in, bool write);
  Result<KvBlock> read_block(MessageReader& in);

  HostGroup& group_;
  plan::PlanFile plan_;
  plan::RunShape shape_;
  Isa isa_ = Isa::Scalar;
  uint64_t weight_bytes_ = 0;  // of this host
  KvPools kv_;
  std::shared_ptr<ThreadPool> pool_;
  std::unique_ptr<PlanRunner> runner_;
  std::unique_ptr<WarmUp> warm_up_;
  FollowedBatch batch_;
};

}  // namespace ktx::runtime
