#include "lib/runtime/hosts/followed_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "lib/plan/device_memory.h"
#include "lib/plan/plan_hosts.h"
#include "lib/plan/state_layout.h"
#include "lib/runtime/engine/fit.h"
#include "lib/runtime/engine/open_parts.h"
#include "lib/runtime/hosts/host_boundaries.h"
#include "lib/support/strings.h"
#include "lib/target/host_device.h"
#include "lib/target/target.h"

namespace ktx::runtime {
namespace {

const Error kDamagedQuestion{"the first host has sent a message that does not fit the plan"};

// Sizes of this host alone, for check_fit().
Result<Sizes> own_sizes(const plan::PlanView& plan, const HostStart& start) {
  Sizes sizes;
  sizes.shape = start.shape;
  sizes.precision = static_cast<Precision>(start.precision);
  sizes.kv_blocks = start.kv_blocks;
  const plan::DeviceMemory own = KTX_TRY(plan::memory_by_device(plan, start.shape)).front();
  sizes.memory.weight_bytes = own.weight_bytes;
  sizes.memory.arena_bytes = own.arena_bytes;
  sizes.memory.kv_token = own.kv_token;
  sizes.memory.kv_bytes = own.kv_token.times(start.kv_blocks).value_or(UINT64_MAX);
  sizes.memory.state_bytes = own.state_slot_bytes * start.kv_blocks.states;
  sizes.memory.total_bytes = sizes.memory.weight_bytes + sizes.memory.arena_bytes +
                             sizes.memory.kv_bytes + sizes.memory.state_bytes;
  return sizes;
}

}  // namespace

Result<std::unique_ptr<FollowedPlan>> FollowedPlan::open(HostGroup& group, const std::string& path,
                                                         const EngineOptions& options,
                                                         const HostStart& start) {
  if (start.version != KTX_VERSION) {
    return Error{
        fmt::format("this ktx-run is {}, the first host's {}; install the same on all hosts",
                    KTX_VERSION, printable(start.version))};
  }
  const auto host = static_cast<size_t>(group.rank());
  // Opened first: an error within the arguments of `new` would leave its memory behind.
  plan::PlanFile file = KTX_TRY(plan::PlanFile::open(path, {.verify_weights = options.verify,
                                                            .huge_pages = options.huge_pages,
                                                            .threads = options.threads,
                                                            .host = host,
                                                            .own_weights = true}));
  std::unique_ptr<FollowedPlan> plan(new FollowedPlan(group, std::move(file)));
  if (!(plan->plan_->identity == start.plan_hash)) {
    return Error{
        fmt::format("{} has the hash {}, the first host's plan {}; copy the same file to all "
                    "hosts",
                    path, to_hex(plan->plan_->identity), to_hex(start.plan_hash))};
  }
  const Status built = plan->build(options, start);
  if (!built) return Error{fmt::format("{}: {}", path, built.error().message)};
  return plan;
}

Status FollowedPlan::build(const EngineOptions& options, const HostStart& start) {
  const plan::PlanView& plan = plan_.view();
  group_.set_names(plan::host_names(plan));
  Sizes sizes = KTX_TRY(own_sizes(plan, start));
  const std::optional<uint64_t> available = target::available_memory();
  const target::Target host = target::detect_host();
  if (available) KTX_TRY(check_fit(*available, host.cpu.memory_bytes, sizes));
  shape_ = sizes.shape;
  weight_bytes_ = sizes.memory.weight_bytes;
  isa_ = KTX_TRY(isa_of_run(plan, options));
  kv_ = KTX_TRY(open_pools(plan, sizes));
  OpenedThreads threads = open_threads(options, host);
  pool_ = threads.pool;
  runner_ = KTX_TRY(PlanRunner::create({.plan = plan,
                                        .kv = kv_,
                                        .pool = *pool_,
                                        .shape = shape_,
                                        .kv_blocks = sizes.kv_blocks,
                                        .isa = isa_,
                                        .precision = sizes.precision,
                                        .open_gpu = options.open_gpu,
                                        .gpu_graphs = options.gpu_graphs,
                                        .check_finite = options.check_finite,
                                        .count_experts = start.count_experts,
                                        .on_result = {},
                                        .hosts = &group_,
                                        .gpu_links = options.gpu_links}));
  // Weights of GPUs have been read by now.
  const bool wanted = !plan::uses_gpus(plan) || threads.places.nodes.size() > 1;
  if (wanted && sizes.memory.total_bytes <= available.value_or(0)) {
    warm_up_ = open_warm_up(plan_, threads.places, sizes.notes);
  }
  return {};
}

std::string FollowedPlan::note() const {
  std::string text =
      fmt::format("{} thread{}, {}, {} of weights", pool_->threads(),
                  pool_->threads() == 1 ? "" : "s", name(isa_), human_bytes(weight_bytes_));
  for (const std::string& note : runner_->notes()) text += "; " + note;
  return text;
}

const FollowedPlan::Answer FollowedPlan::kAnswers[] = {
    {MessageKind::Forward, &FollowedPlan::answer_forward},
    {MessageKind::CopyBlock, &FollowedPlan::copy_block},
    {MessageKind::MapBlock, &FollowedPlan::give_block},
    {MessageKind::UnmapBlock, &FollowedPlan::take_block},
    {MessageKind::ReadStates, &FollowedPlan::give_states},
    {MessageKind::WriteStates, &FollowedPlan::take_states},
    {MessageKind::ReadValue, &FollowedPlan::give_value},
    {MessageKind::CountExperts, &FollowedPlan::give_counts},
    {MessageKind::EnableTimes, &FollowedPlan::enable_times},
    {MessageKind::GiveTimes, &FollowedPlan::give_times},
    {MessageKind::Connect, &FollowedPlan::connect},
    {MessageKind::UseLinks, &FollowedPlan::use_links},
};

Status FollowedPlan::answer(const MessageBytes& message) {
  MessageReader in(message);
  for (const Answer& row : kAnswers) {
    if (in.ok() && row.kind == in.head().kind) return (this->*row.answer)(in);
  }
  return kDamagedQuestion;
}

Status FollowedPlan::answer_forward(MessageReader& in) {
  const int64_t pass = in.head().pass;
  group_.begin_forward(pass);
  const Result<bool> done = run_forward(in);
  const HostForwardOver over{done ? "" : done.error().message, runner_->weight_bytes(),
                             runner_->expert_use().cpu};
  return group_.send(0, over.message(pass));
}

Result<bool> FollowedPlan::run_forward(MessageReader& in) {
  KTX_TRY(batch_.read(in, shape_, plan_->facts.vocab_size, kv_));
  const ForwardWatch watch{.stop = &group_.stopped(), .progress = {}};
  const Result<bool> done = runner_->run(batch_.batch(), &watch);
  KTX_TRY(plan_.check());
  return done;
}

Status FollowedPlan::copy_block(MessageReader& in) {
  const auto kind = in.get<SequenceKind>();
  const auto to = in.get<int64_t>(), from = in.get<int64_t>();
  if (!in.at_end() || !std::ranges::count(kBlockKinds, kind)) return kDamagedQuestion;
  KvCache& cache = kv_.of(kind);
  const int64_t blocks = cache.total_blocks();
  if (to < 0 || to >= blocks || from < 0 || from >= blocks || to == from) return kDamagedQuestion;
  cache.copy(cache.block(to), cache.block(from));
  return {};
}

Result<KvBlock> FollowedPlan::read_block(MessageReader& in) {
  KvBlock block;
  for (const SequenceKind kind : kBlockKinds) {
    const auto number = in.get<int64_t>();
    const KvCache& cache = kv_.of(kind);
    if (!in.ok() || number < -1 || number >= cache.total_blocks()) return kDamagedQuestion;
    if (number >= 0) block[kind] = cache.block(number);
  }
  return block;
}

Status FollowedPlan::answer_block(MessageReader& in, bool write) {
  const KvBlock block = KTX_TRY(read_block(in));
  MessageWriter out({MessageKind::Block, 0, 0});
  KTX_TRY(runner_->visit_block(block, write, [&](std::span<std::byte> slot) -> Status {
    if (!write) {
      out.put_bytes(slot);
      return {};
    }
    const auto bytes = in.get_bytes(slot.size());
    if (!in.ok()) return kDamagedQuestion;
    std::memcpy(slot.data(), bytes.data(), slot.size());
    return {};
  }));
  if (!in.at_end()) return kDamagedQuestion;
  return write ? Status{} : group_.send(0, out.take());
}

Status FollowedPlan::answer_states(MessageReader& in, bool write) {
  const auto slot = in.get<StateSlot>();
  StatePool& pool = kv_.states();
  if (!in.ok() || slot < 0 || slot >= pool.slots()) return kDamagedQuestion;
  if (!pool.give_memory(slot)) return Error{"there is no memory for states"};
  const plan::PlanView& plan = plan_.view();
  const std::vector<plan::StatePart> parts = plan::state_parts_of_host(plan, plan.host);
  std::vector<std::byte> all(plan::state_layout(plan).bytes());
  for (const plan::StatePart& part : parts) {
    if (!write) break;
    const auto bytes = in.get_bytes(part.bytes);
    if (in.ok()) std::memcpy(all.data() + part.among_all, bytes.data(), bytes.size());
  }
  if (!in.at_end()) return kDamagedQuestion;
  KTX_TRY(runner_->copy_states(slot, write, all));
  if (write) return {};
  MessageWriter out({MessageKind::States, 0, 0});
  for (const plan::StatePart& part : parts) {
    out.put_bytes(std::span(all).subspan(part.among_all, part.bytes));
  }
  return group_.send(0, out.take());
}

Status FollowedPlan::give_value(MessageReader& in) {
  const auto value = in.get<uint32_t>();
  const auto row = in.get<int64_t>();
  const auto count = in.get<uint64_t>();
  const program::Program& program = *plan_->program;
  if (!in.at_end() || value >= program.values.size()) return kDamagedQuestion;
  const program::Value& record = program.values[value];
  const int64_t rows = batch_.batch().rows(record.rows);
  const uint64_t row_floats = static_cast<uint64_t>(program::row_bytes(record)) / sizeof(float);
  const std::string device = program::buffer_devices(program)[record.buffer];
  const bool there = row >= 0 && row < rows && row_floats > 0 && record.type == ValueType::F32 &&
                     count / row_floats <= static_cast<uint64_t>(rows - row) &&
                     count <= static_cast<uint64_t>(rows - row) * row_floats &&
                     target::is_first_host(device);
  std::vector<float> floats(there ? count : 0);
  const ValueRead own{device, value, row, floats};
  const Status read = there ? runner_->read({&own, 1}) : Status{kDamagedQuestion};
  MessageWriter out({MessageKind::Value, 0, 0});
  out.put_text(read ? "" : read.error().message);
  return group_.send(0, out.put_bytes(std::as_bytes(std::span(floats))).take());
}

bool FollowedPlan::has_links() const {
  return runner_->boundaries()->links().can_connect();
}

void FollowedPlan::drain() {
  runner_->boundaries()->links().drain(group_.pass());
}

Status FollowedPlan::connect(MessageReader&) {
  const Status made = runner_->boundaries()->links().connect();
  MessageWriter out({MessageKind::Connected, 0, 0});
  return group_.send(0, out.put_text(made ? "" : made.error().message).take());
}

Status FollowedPlan::use_links(MessageReader& in) {
  runner_->boundaries()->links().use(in.get<bool>());
  return in.at_end() ? Status{} : Status{kDamagedQuestion};
}

Status FollowedPlan::give_counts(MessageReader&) {
  std::vector<uint64_t> counts(runner_->expert_counters());
  KTX_TRY(runner_->add_expert_counts(counts));
  MessageWriter out({MessageKind::Counts, 0, 0});
  return group_.send(0, out.put_list(std::span<const uint64_t>(counts)).take());
}

Status FollowedPlan::enable_times(MessageReader& in) {
  runner_->enable_times(in.get<bool>());
  return in.at_end() ? Status{} : Status{kDamagedQuestion};
}

Status FollowedPlan::give_times(MessageReader&) {
  const std::vector<StepTotals> times = runner_->times();
  MessageWriter out({MessageKind::Times, 0, 0});
  return group_.send(0, out.put_list(std::span<const StepTotals>(times)).take());
}

}  // namespace ktx::runtime
