// A batch as a message: what the hosts that follow compute, with blocks and slots by number, since
// each has them at other places.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/plan/memory.h"
#include "lib/runtime/cache/kv_pools.h"
#include "lib/runtime/engine/batch.h"
#include "lib/runtime/hosts/host_message.h"
#include "lib/support/result.h"

namespace ktx::runtime {

// `kv`: the pools that the batch's tables point into.
void put_batch(const Batch& batch, const KvPools& kv, MessageWriter& out);

// The batch of a host that follows, and the tables that it points to.
class FollowedBatch {
 public:
  // Fails where the message says what `shape`, `plan`'s vocabulary or the pools do not have.
  Status read(MessageReader& in, const plan::RunShape& shape, int64_t vocab_size, KvPools& kv);
  const Batch& batch() const { return batch_; }

 private:
  Status read_tables(MessageReader& in, const plan::RunShape& shape, KvPools& kv);
  Status read_states(MessageReader& in, KvPools& kv, SequenceState& state);

  Batch batch_;
  ByBlockKind<std::vector<std::vector<std::byte*>>> tables_;  // by sequence
};

}  // namespace ktx::runtime
