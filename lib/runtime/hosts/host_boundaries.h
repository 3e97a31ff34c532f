// What crosses from one host to another: the values of a part of the network, one message in a
// pass. Those of a boundary between GPUs go by a link of these where all hosts have them
// (linked_boundaries.h): then the message says that they are on their way.
#pragma once

#include <functional>

#include "lib/runtime/engine/backend.h"
#include "lib/runtime/engine/bound_parts.h"
#include "lib/runtime/engine/host_arena.h"
#include "lib/runtime/hosts/host_group.h"
#include "lib/runtime/hosts/linked_boundaries.h"

namespace ktx::runtime {

// The backend of a following host; that of the first host also leads.
class HostBoundaries : public Backend {
 public:
  HostBoundaries(const BackendSetup& setup, const BoundParts& parts, const HostArena& arena)
      : plan_(setup.plan),
        program_(*setup.plan.program),
        group_(*setup.hosts),
        parts_(parts),
        arena_(arena),
        links_(setup, parts) {}

  LinkedBoundaries& links() { return links_; }

  // Runs a part of the pass that HostGroup::begin_forward() has begun.
  Result<bool> run(size_t part, const Batch& batch, const ForwardWatch* watch) override;

  Status read(std::span<const ValueRead>) override {
    return Error{"values of other hosts are read on the first one"};
  }
  Status map_block(const KvBlock&, bool, std::span<std::byte*>) override { return {}; }
  Status copy_states(StateSlot, bool, std::span<std::byte>) override { return {}; }
  int64_t weight_bytes() const override { return 0; }
  void enable_times(bool) override {}
  void add_times(std::vector<StepTotals>&) const override {}
  void set_trace(ForwardTrace*) override {}

 protected:
  // Whether a wait within the pass should end: `watch` may be null.
  virtual bool gives_up(const ForwardWatch* watch);
  // After it did: an error, or false for a pass that was stopped.
  virtual Result<bool> given_up() { return false; }

  const plan::PlanView& plan_;
  const program::Program& program_;
  HostGroup& group_;
  const BoundParts& parts_;
  const HostArena& arena_;
  LinkedBoundaries links_;

 private:
  // The rows of a transfer's values in host memory: of its input here, or of its output.
  std::span<std::byte> rows_of(const program::View& operand, const Batch& batch) const;
  // For a transfer between experts' hosts: the rows that go, each with its number.
  static bool has_chosen_rows(const program::Step& step);
  Status put_chosen_rows(const program::Step& step, const Batch& batch, MessageWriter& out) const;
  bool take_chosen_rows(const program::Step& step, const Batch& batch, MessageReader& in) const;
  Status send_values(size_t part, const Batch& batch);
  Result<bool> receive_values(size_t part, const Batch& batch, const ForwardWatch* watch);
  Status send_linked(size_t part, const Batch& batch);
  Status take_linked(size_t part, const Batch& batch, const MessageBytes& message);
};

}  // namespace ktx::runtime
