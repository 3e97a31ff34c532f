// Inside of ModelStore: its entries and what is done with them.
//
//   model_store.cc       the interface, and which entry a name means
//   model_loading.cc     the thread that loads and unloads
//   model_folder.cc      what the folders hold; copies and deletions
//
// Only these files include this one.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lib/server/models/model_store.h"
#include "lib/support/file_stamp.h"

namespace ktx::server {

ApiError no_such_model(const std::string& name);
ApiError store_ends();
// Clients know plans by name: where they lie is no business of theirs.
std::string without_path(std::string message, const OfferedPlan& plan);

struct ModelStore::Core : std::enable_shared_from_this<Core> {
  using Clock = std::chrono::steady_clock;
  struct Waiter {
    Then then;
    std::shared_ptr<std::atomic<bool>> gone;  // may be null
    bool left() const { return gone && gone->load(); }
  };
  struct Entry {
    OfferedPlan plan;
    ModelState state = ModelState::Unloaded;
    std::shared_ptr<ServedModel> model;  // the only owner; leases point to it
    int64_t leases = 0;
    Clock::time_point used{};
    bool makes_room = false;  // Unloading for another one, which nothing takes back
    bool queued = false;      // among `loads`
    bool wanted = false;      // by load(): also without a waiting request
    bool removed = false;     // not offered any more
    uint64_t bytes = 0;       // that it took when it was loaded last
    std::string error, full_error;
    Clock::time_point failed{};
    bool broken = false;  // loaded, and its file was changed meanwhile: it has to go
    bool lost = false;    // was broken and is not loaded again yet
    std::optional<FileStamp> tried, seen;  // its file at the last load, and at the last look
    std::string props;
    std::vector<Waiter> waiters;
  };
  using EntryPtr = std::shared_ptr<Entry>;
  struct KnownSummary {
    OfferedPlan plan;
    Result<std::shared_ptr<const PlanSummary>> summary = Error{""};
  };

  ModelStoreOptions options;
  Load load_plan;
  bool has_folder = false;

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<EntryPtr> entries;  // offered ones, in the order of the list
  std::vector<EntryPtr> leaving;  // removed ones that are still loaded
  std::deque<EntryPtr> loads;
  EntryPtr last_used;
  int64_t waiting = 0;
  Clock::time_point listed{};
  bool draining = false, stopping = false;
  std::mutex summary_mutex;
  std::map<std::string, KnownSummary> summaries;  // by path
  std::thread thread;

  bool several() const { return has_folder || entries.size() > 1; }
  bool needs_names() const { return several() || options.strict; }

  // With the mutex held (one that takes a lock gives it up meanwhile).

  // "" and, where names do not count, all of them are the one used last.
  EntryPtr find(const std::string& name) const;
  EntryPtr find_exactly(const std::string& name) const;
  // The entry, after a look into the folders where the name is unknown.
  EntryPtr look_up(const std::string& name, std::unique_lock<std::mutex>& lock);
  // `touch`: it counts as used.
  ModelLease lease(const EntryPtr& entry, bool touch);
  Found found(const EntryPtr& entry);
  // Why it could not be loaded; of one that was lost, for the time being.
  static ApiError not_loadable(const Entry& entry);
  void queue_load(const EntryPtr& entry);
  // Calls its waiters, without the mutex.
  void answer(const EntryPtr& entry, const std::optional<ApiError>& error,
              std::unique_lock<std::mutex>& lock);
  // No request gets a model any more.
  void answer_all(std::unique_lock<std::mutex>& lock);
  std::vector<EntryPtr> loaded() const;

  // model_loading.cc
  // What has to go first; null: nothing is loaded.
  EntryPtr oldest() const;
  bool fits(const Entry& entry) const;
  // Waits for the answers of the one that has to go, and ends it. False: the store ends.
  bool make_room(std::unique_lock<std::mutex>& lock);
  static std::optional<FileStamp> stamp_of(const std::string& path);
  // Whether the model's file was cut off or changed; if so, it is queued to be loaded again.
  bool breaks(const EntryPtr& entry);
  // Looks at the files of all models; true: again in a second.
  bool look_at_files();
  // Ends a model that no request uses.
  void take_down(const EntryPtr& entry, ModelState state, std::unique_lock<std::mutex>& lock);
  void do_load(const EntryPtr& entry, std::unique_lock<std::mutex>& lock);
  // One that is to go and has no users, or null. `next`: when one may have to sleep.
  EntryPtr due(ModelState& state, Clock::time_point& next);

  // Without it.

  void run();
  Result<std::shared_ptr<ServedModel>> load_guarded(const OfferedPlan& plan);
  void stop();
  std::vector<ModelLease> lease_loaded();

  // model_folder.cc; let_go() with the mutex held.
  // What the folders hold now. Files that have changed are other models.
  void look_again(bool at_once);
  // It is not offered any more; its answers go on.
  void let_go(const EntryPtr& entry);
  Result<std::shared_ptr<const PlanSummary>> summary(const OfferedPlan& plan);
};

}  // namespace ktx::server
