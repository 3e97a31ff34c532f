#include "lib/server/model_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <future>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "lib/server/model_props.h"

namespace ktx::server {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// A plan that failed to load is not tried again for so long: each try holds up the others.
constexpr auto kFailureKept = std::chrono::seconds(10);
constexpr auto kListKept = std::chrono::seconds(1);

ApiError no_such_model(const std::string& name) {
  return {404,
          fmt::format("the model '{}' does not exist; GET /v1/models lists those of this server",
                      name.substr(0, 200)),
          "model", "model_not_found"};
}

ApiError ending() {
  return {503, "the server is shutting down", "", "shutdown", 5};
}

// Clients know plans by name: where they lie is no business of theirs.
std::string without_path(std::string message, const OfferedPlan& plan) {
  for (size_t at; (at = message.find(plan.path)) != std::string::npos;) {
    message.replace(at, plan.path.size(), plan.name);
    if (plan.name.find(plan.path) != std::string::npos) break;
  }
  return message;
}

// Fit errors of the host and those of GPUs name what is short.
bool is_about_memory(const std::string& message) {
  return message.find("memory") != std::string::npos;
}

bool same_name(const std::string& own, const std::string& asked) {
  return asked == own || asked == own + ":latest" || asked + ":latest" == own;
}

}  // namespace

const char* name(ModelState state) {
  constexpr const char* kNames[] = {"unloaded", "loading", "loaded", "unloading", "sleeping"};
  return kNames[static_cast<size_t>(state)];
}

struct ModelStore::Core : std::enable_shared_from_this<Core> {
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

  // With the mutex held:

  bool several() const { return has_folder || entries.size() > 1; }
  bool needs_names() const { return several() || options.strict; }

  // "" and, where names do not count, all of them are the one used last.
  EntryPtr find(const std::string& name) const {
    if (!name.empty() && needs_names()) return find_exactly(name);
    if (last_used) return last_used;
    return entries.empty() ? nullptr : entries.front();
  }

  EntryPtr find_exactly(const std::string& name) const {
    for (const EntryPtr& entry : entries) {
      if (same_name(entry->plan.name, name)) return entry;
    }
    const auto is = [&](const std::string& alias) { return same_name(alias, name); };
    if (entries.size() == 1 && std::any_of(options.aliases.begin(), options.aliases.end(), is)) {
      return entries.front();
    }
    return nullptr;
  }

  // `touch`: it counts as used.
  ModelLease lease(const EntryPtr& entry, bool touch) {
    ++entry->leases;
    if (touch) {
      entry->used = Clock::now();
      last_used = entry;
    }
    // Does not own the model: the last holder may be the model's own thread, which cannot end
    // itself.
    return {entry->model.get(), [core = shared_from_this(), entry, touch](ServedModel*) {
              const std::lock_guard lock(core->mutex);
              if (touch) entry->used = Clock::now();
              if (--entry->leases == 0) core->changed.notify_all();
            }};
  }

  Found found(const EntryPtr& entry) {
    if (entry->state == ModelState::Unloading && !entry->makes_room && !entry->removed) {
      entry->state = ModelState::Loaded;  // a request that comes meanwhile keeps it
    }
    if (entry->state == ModelState::Loaded) return {lease(entry, true), false, {}};
    if (draining) return {nullptr, false, ending()};
    const bool asleep = entry->state == ModelState::Sleeping;
    if (!options.load_on_demand && !asleep && entry->state != ModelState::Loading) {
      return {nullptr, false,
              ApiError{400,
                       fmt::format("the model '{}' is not loaded; POST /models/load loads it",
                                   entry->plan.name),
                       "model", "model_not_loaded"}};
    }
    if (!entry->error.empty() && Clock::now() - entry->failed < kFailureKept) {
      return {nullptr, false, ApiError{500, entry->error, "model", "model_not_loadable"}};
    }
    return {nullptr, true, {}};
  }

  void queue_load(const EntryPtr& entry) {
    if (entry->queued) return;
    entry->queued = true;
    loads.push_back(entry);
    changed.notify_all();
  }

  // Calls those who wait for it, without the mutex.
  void answer(const EntryPtr& entry, const std::optional<ApiError>& error,
              std::unique_lock<std::mutex>& lock) {
    std::vector<Waiter> waiters = std::exchange(entry->waiters, {});
    waiting -= static_cast<int64_t>(waiters.size());
    std::vector<std::pair<Then, Found>> calls;
    for (Waiter& waiter : waiters) {
      if (waiter.left()) continue;
      calls.emplace_back(std::move(waiter.then), error ? Found{nullptr, false, error}
                                                       : Found{lease(entry, true), false, {}});
    }
    lock.unlock();
    for (auto& [then, result] : calls) then(std::move(result));
    calls.clear();  // leases go without the mutex
    waiters.clear();
    lock.lock();
  }

  // Ends a model that no request uses.
  void take_down(const EntryPtr& entry, ModelState state, std::unique_lock<std::mutex>& lock) {
    std::shared_ptr<ServedModel> model = std::move(entry->model);
    entry->state = ModelState::Unloading;
    lock.unlock();
    model.reset();
    lock.lock();
    entry->state = state;
    entry->makes_room = false;
    std::erase(leaving, entry);
  }

  std::vector<EntryPtr> loaded() const {
    std::vector<EntryPtr> list;
    for (const auto* from : {&entries, &leaving}) {
      for (const EntryPtr& entry : *from) {
        if (entry->model) list.push_back(entry);
      }
    }
    return list;
  }

  // What has to go first; null: nothing is loaded.
  EntryPtr oldest() const {
    EntryPtr out;
    const auto before = [](const Entry& a, const Entry& b) {
      return std::pair(a.leases > 0, a.used) < std::pair(b.leases > 0, b.used);
    };
    for (const EntryPtr& entry : loaded()) {
      if (!out || before(*entry, *out)) out = entry;
    }
    return out;
  }

  bool fits(const Entry& entry) const {
    const std::vector<EntryPtr> others = loaded();
    if (others.empty()) return true;
    if (options.most_loaded > 0 && static_cast<int64_t>(others.size()) >= options.most_loaded) {
      return false;
    }
    uint64_t bytes = entry.bytes > 0 ? entry.bytes : entry.plan.file_bytes;
    for (const EntryPtr& other : others) bytes += other->bytes;
    return options.memory_bytes == 0 || bytes <= options.memory_bytes;
  }

  // Waits for the answers of the one that has to go, and ends it. False: the store ends.
  bool make_room(std::unique_lock<std::mutex>& lock) {
    const EntryPtr victim = oldest();
    victim->state = ModelState::Unloading;
    victim->makes_room = true;
    changed.wait(lock, [&] { return stopping || victim->leases == 0; });
    if (stopping) return false;
    take_down(victim, ModelState::Unloaded, lock);
    return true;
  }

  void do_load(const EntryPtr& entry, std::unique_lock<std::mutex>& lock) {
    entry->queued = false;
    const bool wanted = std::exchange(entry->wanted, false);
    if (entry->removed) return answer(entry, no_such_model(entry->plan.name), lock);
    if (entry->state == ModelState::Unloading && entry->model) entry->state = ModelState::Loaded;
    if (entry->state == ModelState::Loaded) return answer(entry, std::nullopt, lock);
    const bool unwaited = std::all_of(entry->waiters.begin(), entry->waiters.end(),
                                      [](const Waiter& waiter) { return waiter.left(); });
    if (unwaited && !wanted) return answer(entry, ending(), lock);
    const ModelState before = entry->state;
    entry->state = ModelState::Loading;
    const OfferedPlan plan = entry->plan;
    Result<std::shared_ptr<ServedModel>> model = Error{"not loaded"};
    for (bool again = true; again;) {
      if (!fits(*entry)) {
        // No model has to go for a damaged one.
        lock.unlock();
        const auto readable = summary(plan);
        lock.lock();
        if (!readable) model = Error{readable.error().message};
        if (!readable) break;
      }
      while (!fits(*entry)) {
        if (!make_room(lock)) return;
      }
      lock.unlock();
      model = load_guarded(plan);
      lock.lock();
      if (stopping) return;
      again = !model && is_about_memory(model.error().message) && !loaded().empty();
      if (again && !make_room(lock)) return;
    }
    if (!model) {
      entry->state = before == ModelState::Sleeping ? before : ModelState::Unloaded;
      entry->full_error = model.error().message;
      entry->error = without_path(entry->full_error, entry->plan);
      entry->failed = Clock::now();
      return answer(entry, ApiError{500, entry->error, "model", "model_not_loadable"}, lock);
    }
    entry->error.clear();
    entry->model = model.take();
    if (entry->model->engine) entry->bytes = entry->model->engine->memory().total_bytes;
    entry->props = props_of(*entry->model);
    entry->state = ModelState::Loaded;
    entry->used = Clock::now();
    if (draining && entry->model->scheduler) entry->model->scheduler->drain();
    answer(entry, std::nullopt, lock);
    // It may have taken more than its file. At least this one stays.
    while (!stopping && loaded().size() > 1 && options.memory_bytes > 0) {
      uint64_t bytes = 0;
      for (const EntryPtr& other : loaded()) bytes += other->bytes;
      const EntryPtr victim = oldest();
      if (bytes <= options.memory_bytes || victim == entry || victim->leases > 0) break;
      take_down(victim, ModelState::Unloaded, lock);
    }
  }

  Result<std::shared_ptr<const PlanSummary>> summary(const OfferedPlan& plan) {
    const std::lock_guard lock(summary_mutex);
    KnownSummary& known = summaries[plan.path];
    if (known.plan.same_file(plan)) return known.summary;
    known.plan = plan;
    auto file = plan::PlanFile::open(plan.path);
    if (file) {
      known.summary = std::make_shared<const PlanSummary>(summarize(file->view()));
    } else {
      known.summary = Error{without_path(file.error().message, plan)};
    }
    return known.summary;
  }

  Result<std::shared_ptr<ServedModel>> load_guarded(const OfferedPlan& plan) {
    try {
      return load_plan(plan);
    } catch (const std::exception& error) {
      return Error{fmt::format("{}: not enough memory, or a fault: {}", plan.path, error.what())};
    }
  }

  // One that is to go and has no users, or null. `next`: when one may have to sleep.
  EntryPtr due(ModelState& state, Clock::time_point& next) {
    next = Clock::time_point::max();
    for (const EntryPtr& entry : loaded()) {
      if (entry->leases > 0) continue;
      if (entry->state == ModelState::Unloading) {
        state = ModelState::Unloaded;
        return entry;
      }
      if (options.idle_limit.count() == 0) continue;
      const Clock::time_point end = entry->used + options.idle_limit;
      if (end <= Clock::now()) {
        state = ModelState::Sleeping;
        return entry;
      }
      next = std::min(next, end);
    }
    return nullptr;
  }

  void run() {
    std::unique_lock lock(mutex);
    while (!stopping) {
      if (!loads.empty()) {
        const EntryPtr entry = loads.front();
        loads.pop_front();
        do_load(entry, lock);
        continue;
      }
      ModelState state{};
      Clock::time_point next;
      if (const EntryPtr entry = due(state, next)) {
        take_down(entry, state, lock);
      } else if (next == Clock::time_point::max()) {
        changed.wait(lock);
      } else {
        changed.wait_until(lock, next);
      }
    }
    answer_all(lock);
  }

  // Nobody gets a model any more.
  void answer_all(std::unique_lock<std::mutex>& lock) {
    std::vector<EntryPtr> all = entries;
    all.insert(all.end(), loads.begin(), loads.end());
    for (const EntryPtr& entry : all) answer(entry, ending(), lock);
  }

  std::vector<ModelLease> lease_loaded() {
    const std::lock_guard lock(mutex);
    std::vector<ModelLease> leases;
    for (const EntryPtr& entry : loaded()) leases.push_back(lease(entry, false));
    return leases;
  }

  // What the folders hold now. Files that have changed are other models.
  void look_again(bool at_once) {
    {
      const std::lock_guard lock(mutex);
      if (!several() || (!at_once && Clock::now() - listed < kListKept)) return;
      listed = Clock::now();
    }
    std::vector<OfferedPlan> plans = find_plans(options.sources);
    const std::lock_guard lock(mutex);
    std::vector<EntryPtr> now;
    for (OfferedPlan& plan : plans) {
      const auto old = std::find_if(entries.begin(), entries.end(), [&](const EntryPtr& entry) {
        return entry->plan.name == plan.name && entry->plan.same_file(plan);
      });
      if (old != entries.end()) {
        now.push_back(*old);
        continue;
      }
      now.push_back(std::make_shared<Entry>());
      now.back()->plan = std::move(plan);
    }
    for (const EntryPtr& entry : entries) {
      if (std::find(now.begin(), now.end(), entry) == now.end()) let_go(entry);
    }
    entries = std::move(now);
  }

  // It is not offered any more; its answers go on.
  void let_go(const EntryPtr& entry) {
    entry->removed = true;
    if (last_used == entry) last_used = nullptr;
    if (entry->model) {
      entry->state = ModelState::Unloading;
      leaving.push_back(entry);
    }
    if (!entry->waiters.empty()) queue_load(entry);
    changed.notify_all();
  }

  // The entry, after a look into the folders where the name is unknown.
  EntryPtr look_up(const std::string& name, std::unique_lock<std::mutex>& lock) {
    if (EntryPtr entry = find(name)) return entry;
    lock.unlock();
    look_again(false);
    lock.lock();
    return find(name);
  }

  void stop() {
    {
      const std::lock_guard lock(mutex);
      if (stopping) return;
      stopping = draining = true;
      changed.notify_all();
    }
    if (thread.joinable()) thread.join();
    // Their callbacks give leases back.
    for (const EntryPtr& entry : loaded()) {
      if (entry->model->scheduler) entry->model->scheduler->stop();
    }
  }
};

ModelStore::ModelStore(ModelStoreOptions options, Load load) : core_(std::make_shared<Core>()) {
  Core& core = *core_;
  core.options = std::move(options);
  core.load_plan = std::move(load);
  std::error_code ignored;
  core.has_folder =
      std::any_of(core.options.sources.begin(), core.options.sources.end(),
                  [&](const std::string& source) { return fs::is_directory(source, ignored); });
  for (OfferedPlan& plan : find_plans(core.options.sources)) {
    core.entries.push_back(std::make_shared<Core::Entry>());
    core.entries.back()->plan = std::move(plan);
  }
  if (!core.several() && !core.options.name.empty() && !core.entries.empty()) {
    core.entries.front()->plan.name = core.options.name;
  }
  core.thread = std::thread([&core] { core.run(); });
}

ModelStore::ModelStore(std::shared_ptr<ServedModel> model) : core_(std::make_shared<Core>()) {
  Core& core = *core_;
  core.options.aliases = model->aliases;
  core.entries.push_back(std::make_shared<Core::Entry>());
  Core::Entry& entry = *core.entries.back();
  entry.plan.name = model->id;
  entry.plan.path = model->path;
  entry.plan.modified = model->created;
  entry.state = ModelState::Loaded;
  entry.props = props_of(*model);
  entry.model = std::move(model);
  core.thread = std::thread([&core] { core.run(); });
}

ModelStore::~ModelStore() {
  core_->stop();
  // Without it a lease that somebody still holds would keep the models, too.
  const std::lock_guard lock(core_->mutex);
  for (const auto& entry : core_->loaded()) {
    if (entry->leases == 0) entry->model.reset();
  }
}

bool ModelStore::several() const {
  const std::lock_guard lock(core_->mutex);
  return core_->several();
}

bool ModelStore::needs_names() const {
  const std::lock_guard lock(core_->mutex);
  return core_->needs_names();
}

bool ModelStore::knows(const std::string& name) {
  core_->look_again(false);
  const std::lock_guard lock(core_->mutex);
  return core_->find_exactly(name) != nullptr;
}

ModelStore::Found ModelStore::use(const std::string& name) {
  std::unique_lock lock(core_->mutex);
  const Core::EntryPtr entry = core_->look_up(name, lock);
  if (!entry) return {nullptr, false, no_such_model(name)};
  return core_->found(entry);
}

ModelStore::Found ModelStore::peek(const std::string& name) {
  std::unique_lock lock(core_->mutex);
  const Core::EntryPtr entry = core_->look_up(name, lock);
  if (!entry) return {nullptr, false, no_such_model(name)};
  if (!entry->model) return {nullptr, true, {}};
  return {core_->lease(entry, false), false, {}};
}

void ModelStore::wait_for(const std::string& name, Then then,
                          std::shared_ptr<std::atomic<bool>> gone) {
  std::unique_lock lock(core_->mutex);
  const Core::EntryPtr entry = core_->look_up(name, lock);
  Found found = entry ? core_->found(entry) : Found{nullptr, false, no_such_model(name)};
  if (found.must_wait && core_->waiting >= core_->options.most_waiting) {
    ApiError full{429,
                  fmt::format("{} requests wait for models already; try again later",
                              core_->options.most_waiting),
                  "", "queue_full"};
    full.retry_after_seconds = 2;
    found = {nullptr, false, std::move(full)};
  }
  if (!found.must_wait) {
    lock.unlock();
    return then(std::move(found));
  }
  ++core_->waiting;
  entry->waiters.push_back({std::move(then), std::move(gone)});
  core_->queue_load(entry);
}

std::optional<ApiError> ModelStore::load(const std::string& name) {
  std::unique_lock lock(core_->mutex);
  const Core::EntryPtr entry = core_->look_up(name, lock);
  if (!entry) return no_such_model(name);
  if (core_->draining) return ending();
  entry->error.clear();
  entry->wanted = true;
  core_->queue_load(entry);
  return std::nullopt;
}

std::optional<ApiError> ModelStore::unload(const std::string& name) {
  std::unique_lock lock(core_->mutex);
  const Core::EntryPtr entry = core_->look_up(name, lock);
  if (!entry) return no_such_model(name);
  if (entry->state == ModelState::Loaded) entry->state = ModelState::Unloading;
  if (entry->state == ModelState::Sleeping) entry->state = ModelState::Unloaded;
  core_->changed.notify_all();
  return std::nullopt;
}

Status ModelStore::load_now(const std::string& name) {
  std::promise<bool> done;
  wait_for(name, [&](const Found& found) { done.set_value(found.model != nullptr); });
  if (done.get_future().get()) return {};
  const std::lock_guard lock(core_->mutex);
  const Core::EntryPtr entry = core_->find(name);
  return Error{entry ? entry->full_error : fmt::format("{}: no such plan", name)};
}

namespace {

ApiError not_of_a_folder(const OfferedPlan& plan) {
  return {403,
          fmt::format("the plan of '{}' was named when the server was started; only those of a "
                      "folder can be copied and deleted",
                      plan.name),
          "model", "not_of_a_folder"};
}

ApiError file_error(const char* what, const std::string& name, const std::error_code& error) {
  return {500, fmt::format("{}: cannot be {}: {}", name, what, error.message()), "model", ""};
}

}  // namespace

std::optional<ApiError> ModelStore::copy(const std::string& from, const std::string& to) {
  core_->look_again(true);
  std::unique_lock lock(core_->mutex);
  const Core::EntryPtr entry = core_->find_exactly(from);
  if (!entry) return no_such_model(from);
  const OfferedPlan plan = entry->plan;
  if (plan.folder.empty()) return not_of_a_folder(plan);
  std::string name = to;
  if (name.ends_with(":latest")) name.resize(name.size() - std::string_view(":latest").size());
  if (!is_plan_name(name)) {
    return ApiError{
        400,
        "'destination' must have letters, digits, '.', '-', '_', ':' and '/' alone, and "
        "none of its parts begins with a dot",
        "destination", ""};
  }
  if (core_->find_exactly(name)) {
    return ApiError{409, fmt::format("the model '{}' exists; delete it first", name), "destination",
                    "exists"};
  }
  lock.unlock();
  // The same file under another name, which takes no memory; a link stays a link.
  const fs::path target = fs::path(plan.folder) / (name + ".ktxplan");
  std::error_code error;
  if (fs::is_symlink(plan.path, error)) {
    fs::create_symlink(fs::canonical(plan.path, error), target, error);
  } else {
    fs::create_hard_link(plan.path, target, error);
  }
  if (error) return file_error("copied", plan.name, error);
  core_->look_again(true);
  return std::nullopt;
}

std::optional<ApiError> ModelStore::remove(const std::string& name) {
  core_->look_again(true);
  std::unique_lock lock(core_->mutex);
  const Core::EntryPtr entry = core_->find_exactly(name);
  if (!entry) return no_such_model(name);
  const OfferedPlan plan = entry->plan;
  if (plan.folder.empty()) return not_of_a_folder(plan);
  lock.unlock();
  std::error_code error;
  fs::remove(plan.path, error);
  if (error) return file_error("deleted", plan.name, error);
  core_->look_again(true);
  return std::nullopt;
}

std::vector<ModelStatus> ModelStore::list(bool reload) {
  core_->look_again(reload);
  std::vector<std::string> names;
  std::vector<ModelStatus> out;
  {
    const std::lock_guard lock(core_->mutex);
    for (const auto& entry : core_->entries) names.push_back(entry->plan.name);
  }
  for (const std::string& name : names) {
    if (auto one = status(name)) out.push_back(std::move(*one));
  }
  return out;
}

std::optional<ModelStatus> ModelStore::status(const std::string& name) {
  std::unique_lock lock(core_->mutex);
  const Core::EntryPtr entry = core_->look_up(name, lock);
  if (!entry) return std::nullopt;
  ModelStatus out;
  out.plan = entry->plan;
  out.state = entry->state;
  if (entry->model) out.model = core_->lease(entry, false);
  if (!core_->several()) out.aliases = core_->options.aliases;
  out.error = entry->error;
  out.props = entry->props;
  if (core_->options.idle_limit.count() > 0 && entry->model) {
    const auto left = entry->leases > 1 ? core_->options.idle_limit
                                        : entry->used + core_->options.idle_limit - Clock::now();
    out.sleeps_at = std::chrono::system_clock::now() +
                    std::chrono::duration_cast<std::chrono::system_clock::duration>(left);
  }
  return out;
}

Result<std::shared_ptr<const PlanSummary>> ModelStore::summary(const OfferedPlan& plan) {
  return core_->summary(plan);
}

const ModelStoreOptions& ModelStore::options() const {
  return core_->options;
}

void ModelStore::drain() {
  {
    std::unique_lock lock(core_->mutex);
    core_->draining = true;
    core_->answer_all(lock);
  }
  for (const ModelLease& model : core_->lease_loaded()) model->scheduler->drain();
}

bool ModelStore::wait_idle(std::chrono::milliseconds limit) {
  const Clock::time_point end = Clock::now() + limit;
  bool all = true;
  for (const ModelLease& model : core_->lease_loaded()) {
    const auto left = std::max(end - Clock::now(), Clock::duration::zero());
    all &= model->scheduler->wait_idle(std::chrono::duration_cast<std::chrono::milliseconds>(left));
  }
  return all;
}

void ModelStore::cancel_all() {
  for (const ModelLease& model : core_->lease_loaded()) model->scheduler->cancel_all();
}

void ModelStore::stop() {
  core_->stop();
}

Result<std::shared_ptr<const PlanSummary>> summary_of(ModelStore& models,
                                                      const ModelStatus& status) {
  if (status.model && status.model->summary) return status.model->summary;
  return models.summary(status.plan);
}

}  // namespace ktx::server
