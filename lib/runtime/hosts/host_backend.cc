#include "lib/runtime/hosts/host_backend.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "lib/plan/plan_hosts.h"
#include "lib/plan/state_layout.h"
#include "lib/runtime/hosts/batch_message.h"
#include "lib/runtime/hosts/host_boundaries.h"
#include "lib/runtime/hosts/host_start.h"

namespace ktx::runtime {
namespace {

// The first host's.
class HostLeader final : public HostBoundaries {
 public:
  HostLeader(const BackendSetup& setup, const BoundParts& parts, const HostArena& arena)
      : HostBoundaries(setup, parts, arena),
        kv_(setup.kv),
        counts_(setup.expert_counts),
        begun_(group_.pass()),
        finished_(begun_),
        over_(static_cast<size_t>(group_.ranks())),
        states_(static_cast<size_t>(group_.ranks())) {
    for (const program::KvSlot& slot : program_.kv_slots) {
      slot_hosts_.push_back(static_cast<int>(plan::host_of(plan_, slot.device)));
    }
    slot_copies_.resize(slot_hosts_.size());
    for (const SequenceKind kind : kBlockKinds) {
      kv_.of(kind).add_copy([this, kind](int64_t to, int64_t from) {
        MessageWriter out({MessageKind::CopyBlock, 0, 0});
        const MessageBytes message = out.put(kind).put(to).put(from).take();
        // A failure is one of the run, which the next pass reports.
        (void)group_.send_to_others(message);
      });
    }
  }

  ~HostLeader() override {
    for (const SequenceKind kind : kBlockKinds) kv_.of(kind).drop_copies();
    (void)group_.send_to_others(MessageWriter({MessageKind::Close, 0, 0}).take());
  }

  Status start(const BackendSetup& setup) {
    const HostStart start{KTX_VERSION,
                          plan_.identity,
                          setup.shape,
                          setup.kv_blocks,
                          static_cast<int32_t>(setup.precision),
                          setup.count_experts};
    KTX_TRY(group_.send_to_others(start.message()));
    Status all;
    int unlinked = links_.can_connect() ? -1 : 0;
    for (int other = 1; other < group_.ranks(); ++other) {
      const MessageBytes message = KTX_TRY(group_.wait_for(other, MessageKind::Ready));
      const Result<HostReady> ready = HostReady::read(message);
      const std::string& error = ready ? ready->error : ready.error().message;
      if (!error.empty() && all) all = Error{fmt::format("{}: {}", group_.name(other), error)};
      states_[static_cast<size_t>(other)] =
          plan::state_parts_of_host(plan_, static_cast<size_t>(other));
      if (ready && !ready->note.empty()) {
        notes_.push_back(fmt::format("{}: {}", group_.name(other), ready->note));
      }
      if (ready && !ready->links && unlinked < 0) unlinked = other;
    }
    KTX_TRY(all);
    if (!links_.wanted()) return {};
    const Status linked = link_hosts(unlinked);
    if (!linked && setup.gpu_links == GpuLinks::On) return linked;
    notes_.push_back(linked ? "values cross between GPUs of hosts by NCCL"
                            : fmt::format("values cross between GPUs of hosts by way of host "
                                          "memory: {}",
                                          linked.error().message));
    return {};
  }

  // All hosts make their links; where one cannot (`unlinked`; -1: all can), none is used.
  Status link_hosts(int unlinked) {
    Status all;
    if (unlinked >= 0) {
      all = Error{fmt::format("{} has no NCCL for its GPU", group_.name(unlinked))};
    } else {
      KTX_TRY(group_.send_to_others(MessageWriter({MessageKind::Connect, 0, 0}).take()));
      all = links_.connect();
    }
    for (int other = 1; other < group_.ranks() && unlinked < 0; ++other) {
      const MessageBytes message = KTX_TRY(group_.wait_for(other, MessageKind::Connected));
      MessageReader in(message);
      const std::string error = in.get_text();
      if (!error.empty() && all) all = Error{fmt::format("{}: {}", group_.name(other), error)};
    }
    MessageWriter use({MessageKind::UseLinks, 0, 0});
    KTX_TRY(group_.send_to_others(use.put(all.ok()).take()));
    links_.use(all.ok());
    return all;
  }

  Status begin(const Batch& batch) override {
    group_.begin_forward(++begun_);
    MessageWriter out({MessageKind::Forward, 0, group_.pass()});
    put_batch(batch, kv_, out);
    return group_.send_to_others(out.take());
  }

  Status finish() override {
    if (!passing()) return {};
    finished_ = group_.pass();
    Status all;
    for (int other = 1; other < group_.ranks(); ++other) {
      while (!is_over(other)) KTX_TRY(note_over(other, true));
      const std::string& error = over_[static_cast<size_t>(other)].last.error;
      if (!error.empty() && all) all = Error{fmt::format("{}: {}", group_.name(other), error)};
    }
    return all;
  }

  void stop() override { group_.stop_forward(group_.pass()); }

  void abandon() override {
    if (!passing()) return;
    stop();
    (void)finish();  // the failure at hand is the one to report
  }

  Status read(std::span<const ValueRead> reads) override {
    for (const ValueRead& read : reads) {
      const auto host = static_cast<int>(plan::host_of(plan_, read.device));
      MessageWriter question({MessageKind::ReadValue, 0, 0});
      question.put(read.value).put(read.row).put(static_cast<uint64_t>(read.out.size()));
      KTX_TRY(group_.send(host, question.take()));
      const MessageBytes answer = KTX_TRY(group_.wait_for(host, MessageKind::Value));
      KTX_TRY(copy_answer(host, answer, std::as_writable_bytes(read.out)));
    }
    return {};
  }

  Status map_block(const KvBlock& block, bool, std::span<std::byte*> slots) override {
    for (int other = 1; other < group_.ranks(); ++other) {
      const std::vector<int32_t> theirs = slots_of(other, block);
      if (theirs.empty()) continue;
      KTX_TRY(group_.send(other, block_message(MessageKind::MapBlock, block).take()));
      const MessageBytes answer = KTX_TRY(group_.wait_for(other, MessageKind::Block));
      MessageReader in(answer);
      for (const int32_t slot : theirs) {
        const auto bytes = in.get_bytes(static_cast<uint64_t>(kv_.layout(slot).slot_bytes()));
        std::vector<std::byte>& copy = slot_copies_[static_cast<size_t>(slot)];
        copy.assign(bytes.begin(), bytes.end());
        if (in.ok()) slots[static_cast<size_t>(slot)] = copy.data();
      }
      if (!in.at_end()) return damaged(other);
    }
    return {};
  }

  Status unmap_block(const KvBlock& block, bool write) override {
    for (int other = 1; write && other < group_.ranks(); ++other) {
      const std::vector<int32_t> theirs = slots_of(other, block);
      if (theirs.empty()) continue;
      MessageWriter out = block_message(MessageKind::UnmapBlock, block);
      for (const int32_t slot : theirs) out.put_bytes(slot_copies_[static_cast<size_t>(slot)]);
      KTX_TRY(group_.send(other, out.take()));
    }
    return {};
  }

  Status copy_states(StateSlot slot, bool write, std::span<std::byte> all) override {
    for (int other = 1; other < group_.ranks(); ++other) {
      const std::vector<plan::StatePart>& parts = states_[static_cast<size_t>(other)];
      if (parts.empty()) continue;
      MessageWriter out({write ? MessageKind::WriteStates : MessageKind::ReadStates, 0, 0});
      out.put(slot);
      for (const plan::StatePart& part : parts) {
        if (write) out.put_bytes(all.subspan(part.among_all, part.bytes));
      }
      KTX_TRY(group_.send(other, out.take()));
      if (write) continue;
      const MessageBytes answer = KTX_TRY(group_.wait_for(other, MessageKind::States));
      MessageReader in(answer);
      for (const plan::StatePart& part : parts) {
        const auto bytes = in.get_bytes(part.bytes);
        if (in.ok()) std::memcpy(all.data() + part.among_all, bytes.data(), bytes.size());
      }
      if (!in.at_end()) return damaged(other);
    }
    return {};
  }

  int64_t weight_bytes() const override {
    int64_t sum = 0;
    for (const Over& over : over_) sum += over.last.weight_bytes;
    return sum;
  }

  Status add_expert_counts(std::span<uint64_t> counts) override {
    for (int other = 1; other < group_.ranks(); ++other) {
      KTX_TRY(group_.send(other, MessageWriter({MessageKind::CountExperts, 0, 0}).take()));
      const MessageBytes answer = KTX_TRY(group_.wait_for(other, MessageKind::Counts));
      MessageReader in(answer);
      const std::vector<uint64_t> theirs = in.get_list<uint64_t>(counts.size());
      if (!in.at_end()) return damaged(other);
      for (size_t i = 0; i < theirs.size(); ++i) counts[i] += theirs[i];
    }
    return {};
  }

  void enable_times(bool on) override {
    (void)group_.send_to_others(MessageWriter({MessageKind::EnableTimes, 0, 0}).put(on).take());
  }

  void add_times(std::vector<StepTotals>& out) const override {
    for (int other = 1; other < group_.ranks(); ++other) {
      if (!group_.send(other, MessageWriter({MessageKind::GiveTimes, 0, 0}).take())) return;
      const Result<MessageBytes> answer = group_.wait_for(other, MessageKind::Times);
      if (!answer) return;  // the next pass says why
      MessageReader in(*answer);
      for (const StepTotals& times : in.get_list<StepTotals>(program_.steps.size())) {
        if (times.step < program_.steps.size()) out.push_back(times);
      }
    }
  }

  std::vector<std::string> notes() const override { return notes_; }

 protected:
  bool gives_up(const ForwardWatch* watch) override {
    for (int other = 1; other < group_.ranks(); ++other) {
      const Over& over = over_[static_cast<size_t>(other)];
      if (!note_over(other, false)) return true;
      if (is_over(other) && !over.last.error.empty()) return true;
    }
    return watch && watch->stopped();
  }

  Result<bool> given_up() override {
    for (int other = 1; other < group_.ranks(); ++other) {
      const Over& over = over_[static_cast<size_t>(other)];
      if (is_over(other) && !over.last.error.empty()) {
        return Error{fmt::format("{}: {}", group_.name(other), over.last.error)};
      }
    }
    const std::string failure = group_.failure();
    if (!failure.empty()) return Error{failure};
    return false;
  }

 private:
  struct Over {
    int64_t pass = 0;  // whose end `last` is
    HostForwardOver last;
  };

  // Whether the pass at hand has begun and not finished; of those in flight it is the oldest.
  bool passing() const { return group_.pass() > finished_ && group_.pass() <= begun_; }
  bool is_over(int other) const { return over_[static_cast<size_t>(other)].pass == group_.pass(); }

  // Takes the end of the pass on a host, if it has come or is waited for.
  Status note_over(int other, bool wait) {
    Over& over = over_[static_cast<size_t>(other)];
    if (is_over(other)) return {};
    const auto pick = [this](const MessageHead& head) {
      const bool own = head.kind == MessageKind::ForwardOver && head.pass == group_.pass();
      return own ? HostGroup::Pick::Take : HostGroup::Pick::Leave;
    };
    // A pass that is awaited needs no more values.
    const auto drained = [this] {
      links_.drain(group_.pass());
      return false;
    };
    const MessageBytes message = wait ? KTX_TRY(group_.wait(other, {.until = drained}, pick))
                                      : KTX_TRY(group_.take(other, pick));
    if (message.empty()) return {};
    HostForwardOver now = KTX_TRY(HostForwardOver::read(message));
    if (counts_ != nullptr) *counts_->cpu_pairs() += now.expert_pairs - over.last.expert_pairs;
    over = {group_.pass(), std::move(now)};
    return {};
  }

  Error damaged(int other) const {
    return Error{fmt::format("{}: its answer is damaged", group_.name(other))};
  }

  Status copy_answer(int other, const MessageBytes& answer, std::span<std::byte> out) const {
    MessageReader in(answer);
    const std::string error = in.get_text();
    if (in.ok() && !error.empty()) return Error{fmt::format("{}: {}", group_.name(other), error)};
    const auto bytes = in.get_bytes(out.size());
    if (!in.at_end()) return damaged(other);
    if (!out.empty()) std::memcpy(out.data(), bytes.data(), out.size());
    return {};
  }

  // The slots of a host in pools that have the block.
  std::vector<int32_t> slots_of(int other, const KvBlock& block) const {
    std::vector<int32_t> theirs;
    for (int32_t slot = 0; slot < kv_.slots(); ++slot) {
      const bool here = slot_hosts_[static_cast<size_t>(slot)] == other;
      if (here && block[kv_.kind_of(slot)]) theirs.push_back(slot);
    }
    return theirs;
  }

  MessageWriter block_message(MessageKind kind, const KvBlock& block) const {
    MessageWriter out({kind, 0, 0});
    for (const SequenceKind kind : kBlockKinds) {
      const std::byte* const place = block[kind];
      out.put(place ? kv_.of(kind).block_number(place) : int64_t{-1});
    }
    return out;
  }

  KvPools& kv_;
  ExpertCounts* const counts_;
  int64_t begun_, finished_;                          // the last passes that have
  std::vector<Over> over_;                            // by host
  std::vector<std::vector<plan::StatePart>> states_;  // by host
  std::vector<int> slot_hosts_;                       // by slot
  std::vector<std::vector<std::byte>> slot_copies_;   // by slot, of the block at hand
  std::vector<std::string> notes_;
};

}  // namespace

Result<std::unique_ptr<HostBoundaries>> create_host_backend(const BackendSetup& setup,
                                                            const BoundParts& parts,
                                                            const HostArena& arena) {
  if (setup.plan.host > 0) {
    return std::make_unique<HostBoundaries>(setup, parts, arena);
  }
  auto leader = std::make_unique<HostLeader>(setup, parts, arena);
  KTX_TRY(leader->start(setup));
  return std::unique_ptr<HostBoundaries>(std::move(leader));
}

}  // namespace ktx::runtime
