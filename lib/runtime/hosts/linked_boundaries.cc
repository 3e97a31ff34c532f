#include "lib/runtime/hosts/linked_boundaries.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "lib/plan/plan_hosts.h"
#include "lib/support/timer.h"

namespace ktx::runtime {
namespace {

constexpr double kConnectSeconds = 20;

}  // namespace

LinkedBoundaries::LinkedBoundaries(const BackendSetup& setup, const BoundParts& parts)
    : plan_(setup.plan),
      group_(*setup.hosts),
      parts_(parts),
      shape_(setup.shape),
      gpus_(setup.gpus) {
  if (setup.gpu_links != GpuLinks::Off) boundaries_ = gpu_boundaries(plan_, parts_);
  group_.set_dropped([this](const MessageBytes& message) { forget(message); });
}

LinkedBoundaries::~LinkedBoundaries() {
  group_.set_dropped({});
}

bool LinkedBoundaries::can_connect() const {
  return std::ranges::all_of(
      boundary_values(plan_, parts_, boundaries_),
      [&](const BoundaryValue& boundary) { return place(boundary.value).gpu != nullptr; });
}

uint64_t LinkedBoundaries::most_bytes(const Part& part) const {
  uint64_t bytes = 0;
  for (const program::Step& step : part.steps(*plan_.program)) {
    bytes += most_value_bytes(plan_.program->values[step.inputs[0].value], shape_);
  }
  return bytes;
}

Status LinkedBoundaries::connect() {
  Status all;
  const int here = group_.rank();
  std::map<Link*, uint64_t> most;
  for (const GpuBoundary& boundary : boundaries_) {
    const auto from = static_cast<int>(plan::host_of(plan_, boundary.sender));
    const auto to = static_cast<int>(plan::host_of(plan_, boundary.receiver));
    if (from != here && to != here) continue;
    const auto same = std::ranges::find_if(
        links_, [&](const auto& link) { return link->from == from && link->to == to; });
    Link* link = same == links_.end() ? nullptr : same->get();
    if (link == nullptr) {
      link = links_.emplace_back(std::make_unique<Link>()).get();
      link->from = from;
      link->to = to;
    }
    const program::Step& step = parts_.parts[boundary.part].steps(*plan_.program)[0];
    link->gpu = place((from == here ? step.inputs : step.outputs)[0].value).gpu;
    most[link] = std::max(most[link], most_bytes(parts_.parts[boundary.part]));
    by_part_[boundary.part] = link;
  }
  // In the order of the plan, which is that of all hosts.
  for (const auto& link : links_) {
    if (link->gpu == nullptr) return Error{"a GPU of this host has no links"};
    auto buffer = link->gpu->allocate(most[link.get()], "values of other hosts");
    if (buffer) link->buffer = buffer.take();
    const Status made = make(*link);
    if (!buffer && all) all = buffer.error();
    if (!made && all) all = made;
  }
  return all;
}

Status LinkedBoundaries::make(Link& link) {
  const Timer timer;
  const auto gives_up = [&] { return group_.failed().load() || timer.seconds() > kConnectSeconds; };
  const bool sends = link.from == group_.rank();
  GpuLinkId id;
  if (sends) {
    const auto made = link.gpu->new_link_id();
    MessageWriter out({MessageKind::LinkId, 0, 0});
    out.put(made.ok()).put(made.ok() ? *made : id);
    KTX_TRY(group_.send(link.to, out.take()));
    id = KTX_TRY(made);
  } else {
    const MessageBytes message =
        KTX_TRY(group_.wait(link.from, {.until = gives_up}, [](const MessageHead& head) {
          return head.kind == MessageKind::LinkId ? HostGroup::Pick::Take : HostGroup::Pick::Leave;
        }));
    MessageReader in(message);
    const bool there = in.get<bool>();
    id = in.get<GpuLinkId>();
    if (!in.at_end() || !there) {
      return Error{fmt::format("{} has named no link", group_.name(link.from))};
    }
  }
  link.link = KTX_TRY(link.gpu->link(id, sends, gives_up));
  return {};
}

void LinkedBoundaries::use(bool on) {
  on_ = on;
  if (on) return;
  if (gpus_ != nullptr) gpus_->leave_boundaries();
  by_part_.clear();
  links_.clear();
}

// The other end would wait for what does not come.
Error LinkedBoundaries::end_run(const Error& error) {
  group_.fail(
      fmt::format("{}: {}; --nccl off leaves NCCL out", group_.name(group_.rank()), error.message));
  return Error{group_.failure()};
}

Status LinkedBoundaries::await(Link& link, bool drains) {
  for (;;) {
    const auto done = link.link->done();
    if (group_.failed().load()) return Error{group_.failure()};
    if (!done) return end_run(done.error());
    if (*done) return {};
    if (drains) drain(group_.pass() - 1);
    std::this_thread::yield();
  }
}

Result<uint64_t> LinkedBoundaries::prepare(size_t part, const std::vector<Piece>& pieces) {
  Link& link = *link_of(part);
  // What others send is taken meanwhile: they may have to take this one.
  KTX_TRY(await(link, true));
  uint64_t bytes = 0;
  for (const Piece& piece : pieces) {
    KTX_TRY(link.gpu->copy(link.buffer.data() + bytes, piece.data, piece.bytes));
    bytes += piece.bytes;
  }
  KTX_TRY(link.gpu->finish());
  return bytes;
}

Status LinkedBoundaries::send(size_t part, uint64_t bytes) {
  Link& link = *link_of(part);
  const Status sent = link.link->send(link.buffer.data(), bytes);
  return sent ? Status{} : Status{end_run(sent.error())};
}

Status LinkedBoundaries::receive(Link& link, uint64_t bytes) {
  KTX_TRY(link.gpu->finish());  // what came before has left the buffer
  const Status begun = link.link->receive(link.buffer.data(), bytes);
  if (!begun) return end_run(begun.error());
  return await(link, false);
}

Status LinkedBoundaries::receive(size_t part, const std::vector<Piece>& pieces) {
  Link& link = *link_of(part);
  uint64_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.bytes;
  KTX_TRY(receive(link, bytes));
  uint64_t offset = 0;
  for (const Piece& piece : pieces) {
    KTX_TRY(link.gpu->copy(piece.data, link.buffer.data() + offset, piece.bytes));
    offset += piece.bytes;
  }
  return {};
}

void LinkedBoundaries::drain(int64_t pass) {
  if (!on_ || links_.empty()) return;
  const auto old = [&](const MessageHead& head) {
    const bool over = head.kind == MessageKind::Values && head.pass <= pass;
    return over ? HostGroup::Pick::Drop : HostGroup::Pick::Leave;
  };
  for (int other = 0; other < group_.ranks(); ++other) {
    // A failure is one of the run, which all waits report.
    if (other != group_.rank()) (void)group_.take(other, old).ok();
  }
}

void LinkedBoundaries::forget(const MessageBytes& message) {
  MessageReader in(message);
  Link* const link = on_ && in.ok() ? link_of(in.head().part) : nullptr;
  if (in.head().kind != MessageKind::Values || link == nullptr) return;
  // Values themselves are more than their number of bytes.
  const auto bytes = in.get<uint64_t>();
  if (!in.at_end() || bytes > link->buffer.size() || link->to != group_.rank()) return;
  (void)receive(*link, bytes).ok();  // a failure is one of the run
}

}  // namespace ktx::runtime
