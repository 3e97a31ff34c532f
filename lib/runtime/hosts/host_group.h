// The hosts of a run, seen from one of them: messages in order, bounded waits, and a watch that
// notices lost hosts.
//
//   auto group = HostGroup::start(KTX_TRY(open_mpi(say_missing)));
//   group->set_names({"a", "b"});
//   KTX_TRY(group->send(1, message));
//   const MessageBytes answer = KTX_TRY(group->wait(1, {}));
//
// Every host gives signs of life, the first one to all, the others to the first one, from a thread
// of its own: also while it computes, or waits for a user. A host that is silent for too long is
// lost, and with it the run: failure() names it on every host, and every wait ends.
//
// send(), take() and wait() are for the thread that runs the engine; all else may be called by any.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "lib/runtime/hosts/host_message.h"
#include "lib/runtime/hosts/network.h"
#include "lib/support/timer.h"

namespace ktx::runtime {

// In seconds.
struct HostTimes {
  double sign_of_life = 0.5;  // one in so many
  double silence = 4;         // after which a host is lost
  double longest_wait = 900;  // for one message of a host that lives: a pass of a slow machine
};

// "host b (rank 1)"; "rank 1" where no name is known.
std::string host_text(const std::vector<std::string>& names, int rank);

class HostGroup {
 public:
  static std::shared_ptr<HostGroup> start(std::unique_ptr<Network> network,
                                          const HostTimes& times = {});
  // Leaves the run; where nothing has failed, the others hear that this host ends in order.
  ~HostGroup();

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  // By rank; until then hosts are named by rank alone.
  void set_names(std::vector<std::string> names);
  std::string name(int rank) const;  // host_text()

  Status send(int to, MessageBytes message);
  Status send_to_others(const MessageBytes& message);

  struct Wait {
    // For ever: while nothing is wanted of this host.
    bool idle = false;
    // Ends the wait where it says so, with an empty message.
    std::function<bool()> until = {};
  };
  // The next message of `from`. Fails when a host is lost, the run has failed, or it takes too
  // long.
  Result<MessageBytes> wait(int from, const Wait& how);
  // The same, of a message of this kind; another one is an error, but for those of passes on their
  // way, which wait on.
  Result<MessageBytes> wait_for(int from, MessageKind kind);
  // The first one that `pick` takes; those that it leaves wait on, those that it drops are gone.
  enum class Pick { Take, Leave, Drop };
  using Picker = std::function<Pick(const MessageHead&)>;
  Result<MessageBytes> wait(int from, const Wait& how, const Picker& pick);
  // What becomes of messages that are dropped; for the thread that runs the engine.
  using Dropped = std::function<void(const MessageBytes&)>;
  void set_dropped(Dropped dropped) { dropped_ = std::move(dropped); }
  // The first one that has arrived and that `pick` takes, without a wait; empty: none.
  Result<MessageBytes> take(int from, const Picker& pick);

  // A pass begins on this host, or goes on: what it does is of this pass, and stopped() too.
  void begin_forward(int64_t pass);
  int64_t pass() const { return pass_.load(); }
  // Ends a pass on all other hosts, which notice it while they compute and while they wait.
  void stop_forward(int64_t pass);
  const std::atomic<bool>& stopped() const { return stopped_; }  // the pass at hand

  // Ends the run on all hosts with this message. The first failure counts.
  void fail(const std::string& why);
  std::string failure() const;  // "": none
  const std::atomic<bool>& failed() const { return failed_; }
  bool first_host_lost() const { return first_lost_.load(); }

 private:
  HostGroup(std::unique_ptr<Network> network, const HostTimes& times);
  void watch();
  void hear(int from, const MessageBytes& message);
  void note_failure(const std::string& why);
  void look_for_silence();
  void note_stand(double seconds);
  Status pump();  // puts what has arrived in the senders' queues
  std::vector<int> watched() const;

  const std::unique_ptr<Network> network_;
  const HostTimes times_;
  const int rank_, ranks_;
  const Timer clock_;

  mutable std::mutex mutex_;  // of what follows
  std::vector<std::string> names_;
  std::vector<double> heard_;  // by rank: when, by the clock
  std::vector<bool> left_;     // by rank: it has ended in order
  std::string failure_;
  bool sent_ = false;  // something, since the watch looked
  std::condition_variable wake_;
  std::set<int64_t> stops_;  // passes that have been stopped and not begun here

  std::atomic<bool> failed_ = false, first_lost_ = false, ending_ = false;
  std::atomic<bool> stopped_ = false;
  std::atomic<int64_t> pass_ = 0;
  Dropped dropped_;
  std::vector<std::deque<MessageBytes>> arrived_;  // by sender; of the engine's thread
  std::thread watch_;
};

// The head of a message; for an empty or damaged one, the head of no message.
MessageHead head_of(const MessageBytes& message);

}  // namespace ktx::runtime
