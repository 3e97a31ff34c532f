#include "lib/runtime/hosts/host_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "lib/support/signal_block.h"

namespace ktx::runtime {
namespace {

using std::chrono::microseconds;

// How long a thread sleeps that has waited for so long: the next part of a pass comes soon, the
// next request may not.
microseconds nap_after(double seconds) {
  if (seconds < 0.001) return microseconds(0);
  if (seconds < 1) return microseconds(30);
  return microseconds(1000);
}

// Naps of the watch: short while messages wait for their receivers.
constexpr microseconds kBusyNap{200}, kQuietNap{10000};

}  // namespace

MessageHead head_of(const MessageBytes& message) {
  MessageReader in(message);
  return in.ok() ? in.head() : MessageHead{};
}

std::string host_text(const std::vector<std::string>& names, int rank) {
  const auto number = static_cast<size_t>(rank);
  return number < names.size() ? fmt::format("host {} (rank {})", names[number], rank)
                               : fmt::format("rank {}", rank);
}

std::shared_ptr<HostGroup> HostGroup::start(std::unique_ptr<Network> network,
                                            const HostTimes& times) {
  return std::shared_ptr<HostGroup>(new HostGroup(std::move(network), times));
}

HostGroup::HostGroup(std::unique_ptr<Network> network, const HostTimes& times)
    : network_(std::move(network)),
      times_(times),
      rank_(network_->rank()),
      ranks_(network_->ranks()),
      heard_(static_cast<size_t>(ranks_)),
      left_(static_cast<size_t>(ranks_)),
      arrived_(static_cast<size_t>(ranks_)) {
  const SignalBlock block;
  watch_ = std::thread([this] { watch(); });
}

HostGroup::~HostGroup() {
  const bool in_order = !failed_.load();
  const Timer timer;
  if (in_order) {
    for (const int other : watched()) {
      (void)network_->send(other, Channel::Watch, MessageWriter({MessageKind::Left, 0, 0}).take());
    }
  }
  // What was sent last should arrive, and the others should not see this host as lost.
  const auto all_left = [&] {
    const std::lock_guard lock(mutex_);
    return std::ranges::all_of(watched(),
                               [&](int other) { return left_[static_cast<size_t>(other)]; });
  };
  // Where the run has failed, the first host still has to say so.
  const double patience = in_order || rank_ > 0 ? times_.silence : 0.5;
  const auto done = [&] {
    if (in_order) return all_left() || failed_.load();
    return rank_ > 0 && first_host_lost();
  };
  while (timer.seconds() < patience && !done()) {
    std::this_thread::sleep_for(microseconds(1000));
  }
  ending_.store(true);
  watch_.join();
  network_->close(in_order && all_left());
}

void HostGroup::set_names(std::vector<std::string> names) {
  const std::lock_guard lock(mutex_);
  names_ = std::move(names);
}

std::string HostGroup::name(int rank) const {
  const std::lock_guard lock(mutex_);
  return host_text(names_, rank);
}

// The first host watches all others, and they watch it.
std::vector<int> HostGroup::watched() const {
  std::vector<int> others;
  for (int other = 0; other < ranks_; ++other) {
    if (other != rank_ && (rank_ == 0 || other == 0)) others.push_back(other);
  }
  return others;
}

void HostGroup::watch() {
  double next_sign = 0, last = clock_.seconds();
  while (!ending_.load()) {
    const double stood = clock_.seconds() - std::exchange(last, clock_.seconds());
    if (stood > 2 * times_.sign_of_life) note_stand(stood);
    if (clock_.seconds() >= next_sign && !failed_.load()) {
      next_sign = clock_.seconds() + times_.sign_of_life;
      for (const int other : watched()) {
        (void)network_->send(other, Channel::Watch,
                             MessageWriter({MessageKind::Alive, 0, 0}).take());
      }
    }
    int from = 0;
    MessageBytes message;
    Result<bool> there = false;
    while ((there = network_->receive(Channel::Watch, from, message)) && *there) {
      hear(from, message);
    }
    const Result<bool> busy = network_->progress();
    if (!there) note_failure(there.error().message);
    if (!busy) note_failure(busy.error().message);
    look_for_silence();
    std::unique_lock lock(mutex_);
    const microseconds nap = busy && *busy ? kBusyNap : kQuietNap;
    wake_.wait_for(lock, nap, [&] { return std::exchange(sent_, false); });
  }
}

void HostGroup::hear(int from, const MessageBytes& message) {
  MessageReader in(message);
  const MessageHead head = in.head();
  if (!in.ok() || from < 0 || from >= ranks_) return;
  {
    const std::lock_guard lock(mutex_);
    heard_[static_cast<size_t>(from)] = clock_.seconds();
    if (head.kind == MessageKind::Left) left_[static_cast<size_t>(from)] = true;
  }
  if (head.kind == MessageKind::Stop) {
    const std::lock_guard lock(mutex_);
    if (pass_.load() == head.pass) stopped_.store(true);
    if (pass_.load() < head.pass) stops_.insert(head.pass);
  }
  if (head.kind != MessageKind::Failed) return;
  if (head.part != 0) first_lost_.store(true);
  note_failure(in.get_text());
}

// The time that this host stood still itself (its machine was suspended) is not silence of the
// others.
void HostGroup::note_stand(double seconds) {
  const std::lock_guard lock(mutex_);
  for (double& heard : heard_) heard += seconds;
}

void HostGroup::look_for_silence() {
  for (const int other : watched()) {
    {
      const std::lock_guard lock(mutex_);
      const auto number = static_cast<size_t>(other);
      if (left_[number] || clock_.seconds() - heard_[number] <= times_.silence) continue;
    }
    if (failed_.load()) return;
    if (other == 0) first_lost_.store(true);
    fail(
        fmt::format("{} has given no sign of life for {:g} s: it was killed, it hangs, or the "
                    "network to it is down",
                    name(other), times_.silence));
  }
}

void HostGroup::fail(const std::string& why) {
  if (failed_.load()) return;
  note_failure(why);
  MessageWriter message({MessageKind::Failed, first_lost_.load() ? 1u : 0u, 0});
  const MessageBytes bytes = message.put_text(why).take();
  for (int other = 0; other < ranks_; ++other) {
    if (other != rank_) (void)network_->send(other, Channel::Watch, bytes);
  }
}

void HostGroup::note_failure(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (failed_.load()) return;
  failure_ = why;
  failed_.store(true);
}

std::string HostGroup::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void HostGroup::begin_forward(int64_t pass) {
  const std::lock_guard lock(mutex_);
  pass_.store(pass);
  stopped_.store(stops_.contains(pass));
  stops_.erase(stops_.begin(), stops_.upper_bound(pass));
}

void HostGroup::stop_forward(int64_t pass) {
  for (int other = 0; other < ranks_; ++other) {
    if (other == rank_) continue;
    (void)network_->send(other, Channel::Watch, MessageWriter({MessageKind::Stop, 0, pass}).take());
  }
}

Status HostGroup::send(int to, MessageBytes message) {
  if (failed_.load()) return Error{failure()};
  const Status sent = network_->send(to, Channel::Work, std::move(message));
  if (!sent) fail(fmt::format("{}: {}", name(to), sent.error().message));
  // The sender may compute from now on: the watch sees to it that the message leaves.
  {
    const std::lock_guard lock(mutex_);
    sent_ = true;
  }
  wake_.notify_one();
  return sent;
}

Status HostGroup::send_to_others(const MessageBytes& message) {
  for (int other = 0; other < ranks_; ++other) {
    if (other != rank_) KTX_TRY(send(other, message));
  }
  return {};
}

Status HostGroup::pump() {
  int from = 0;
  MessageBytes message;
  while (KTX_TRY(network_->receive(Channel::Work, from, message))) {
    if (from < 0 || from >= ranks_) continue;
    arrived_[static_cast<size_t>(from)].push_back(std::move(message));
  }
  return {};
}

Result<MessageBytes> HostGroup::take(int from, const Picker& pick) {
  KTX_TRY(pump());
  std::deque<MessageBytes>& queue = arrived_[static_cast<size_t>(from)];
  for (auto message = queue.begin(); message != queue.end();) {
    const Pick picked = pick(head_of(*message));
    if (picked == Pick::Leave) {
      ++message;
      continue;
    }
    MessageBytes taken = std::move(*message);
    message = queue.erase(message);
    if (picked == Pick::Take) return taken;
    if (dropped_) dropped_(taken);
  }
  return MessageBytes{};
}

Result<MessageBytes> HostGroup::wait(int from, const Wait& how) {
  return wait(from, how, [](const MessageHead&) { return Pick::Take; });
}

Result<MessageBytes> HostGroup::wait(int from, const Wait& how, const Picker& pick) {
  const Timer timer;
  for (;;) {
    MessageBytes message = KTX_TRY(take(from, pick));
    if (!message.empty()) return message;
    if (failed_.load()) return Error{failure()};
    if (how.until && how.until()) return MessageBytes{};
    const double seconds = timer.seconds();
    if (!how.idle && seconds > times_.longest_wait) {
      fail(fmt::format("{} has not answered {} for {:g} s", name(from), name(rank_), seconds));
      return Error{failure()};
    }
    {
      const std::lock_guard lock(mutex_);
      if (how.idle && left_[static_cast<size_t>(from)]) return MessageBytes{};
    }
    const microseconds nap = nap_after(seconds);
    nap.count() > 0 ? std::this_thread::sleep_for(nap) : std::this_thread::yield();
  }
}

Result<MessageBytes> HostGroup::wait_for(int from, MessageKind kind) {
  const auto pick = [kind](const MessageHead& head) {
    const bool of_forward =
        head.kind == MessageKind::Values || head.kind == MessageKind::ForwardOver;
    return of_forward && head.kind != kind ? Pick::Leave : Pick::Take;
  };
  MessageBytes message = KTX_TRY(wait(from, {}, pick));
  if (head_of(message).kind == kind) return message;
  const std::string why =
      fmt::format("{} sent message {} where {} was expected", name(from),
                  static_cast<int>(head_of(message).kind), static_cast<int>(kind));
  fail(why);
  return Error{why};
}

}  // namespace ktx::runtime
