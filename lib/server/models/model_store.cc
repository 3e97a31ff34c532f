#include "lib/server/models/model_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <utility>

#include "lib/server/models/model_props.h"
#include "lib/server/models/model_store_core.h"
#include "lib/server/models/requested_model.h"

namespace ktx::server {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// A plan that failed to load is not tried again for so long: each try holds up the others.
constexpr auto kFailureKept = std::chrono::seconds(10);

}  // namespace

ApiError no_such_model(const std::string& name) {
  return {404,
          fmt::format("the model '{}' does not exist; GET /v1/models lists those of this server",
                      name.substr(0, 200)),
          "model", "model_not_found"};
}

ApiError store_ends() {
  return {503, "the server is shutting down", "", "shutdown", 5};
}

const char* name(ModelState state) {
  constexpr const char* kNames[] = {"unloaded", "loading", "loaded", "unloading", "sleeping"};
  return kNames[static_cast<size_t>(state)];
}

ModelStore::Core::EntryPtr ModelStore::Core::find(const std::string& name) const {
  if (!name.empty() && needs_names()) return find_exactly(name);
  if (last_used) return last_used;
  return entries.empty() ? nullptr : entries.front();
}

ModelStore::Core::EntryPtr ModelStore::Core::find_exactly(const std::string& name) const {
  for (const EntryPtr& entry : entries) {
    if (names_model(entry->plan.name, name)) return entry;
  }
  const auto is = [&](const std::string& alias) { return names_model(alias, name); };
  if (entries.size() == 1 && std::any_of(options.aliases.begin(), options.aliases.end(), is)) {
    return entries.front();
  }
  return nullptr;
}

ModelStore::Core::EntryPtr ModelStore::Core::look_up(const std::string& name,
                                                     std::unique_lock<std::mutex>& lock) {
  if (EntryPtr entry = find(name)) return entry;
  lock.unlock();
  look_again(false);
  lock.lock();
  return find(name);
}

ModelLease ModelStore::Core::lease(const EntryPtr& entry, bool touch) {
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

ApiError ModelStore::Core::not_loadable(const Entry& entry) {
  ApiError error{entry.lost ? 503 : 500, entry.error, "model", "model_not_loadable"};
  if (entry.lost) error.retry_after_seconds = 2;
  return error;
}

ModelStore::Found ModelStore::Core::found(const EntryPtr& entry) {
  const bool broken = breaks(entry);
  if (!broken && entry->state == ModelState::Unloading && !entry->makes_room && !entry->removed) {
    entry->state = ModelState::Loaded;  // a request that comes meanwhile keeps it
  }
  if (!broken && entry->state == ModelState::Loaded) return {lease(entry, true), false, {}};
  if (draining) return {nullptr, false, store_ends()};
  const bool asleep = entry->state == ModelState::Sleeping;
  if (!options.load_on_demand && !asleep && !broken && !entry->lost &&
      entry->state != ModelState::Loading) {
    return {nullptr, false,
            ApiError{400,
                     fmt::format("the model '{}' is not loaded; POST /models/load loads it",
                                 entry->plan.name),
                     "model", "model_not_loaded"}};
  }
  if (!entry->error.empty() && Clock::now() - entry->failed < kFailureKept &&
      entry->tried == stamp_of(entry->plan.path)) {
    return {nullptr, false, not_loadable(*entry)};
  }
  return {nullptr, true, {}};
}

void ModelStore::Core::queue_load(const EntryPtr& entry) {
  if (entry->queued) return;
  entry->queued = true;
  loads.push_back(entry);
  changed.notify_all();
}

void ModelStore::Core::answer(const EntryPtr& entry, const std::optional<ApiError>& error,
                              std::unique_lock<std::mutex>& lock) {
  std::vector<Waiter> waiters = std::exchange(entry->waiters, {});
  waiting -= static_cast<int64_t>(waiters.size());
  std::vector<std::pair<Then, Found>> calls;
  for (Waiter& waiter : waiters) {
    if (waiter.left()) continue;
    calls.emplace_back(std::move(waiter.then),
                       error ? Found{nullptr, false, error} : Found{lease(entry, true), false, {}});
  }
  lock.unlock();
  for (auto& [then, result] : calls) then(std::move(result));
  calls.clear();  // leases go without the mutex
  waiters.clear();
  lock.lock();
}

void ModelStore::Core::answer_all(std::unique_lock<std::mutex>& lock) {
  std::vector<EntryPtr> all = entries;
  all.insert(all.end(), loads.begin(), loads.end());
  for (const EntryPtr& entry : all) answer(entry, store_ends(), lock);
}

std::vector<ModelStore::Core::EntryPtr> ModelStore::Core::loaded() const {
  std::vector<EntryPtr> list;
  for (const auto* from : {&entries, &leaving}) {
    for (const EntryPtr& entry : *from) {
      if (entry->model) list.push_back(entry);
    }
  }
  return list;
}

std::vector<ModelLease> ModelStore::Core::lease_loaded() {
  const std::lock_guard lock(mutex);
  std::vector<ModelLease> leases;
  for (const EntryPtr& entry : loaded()) leases.push_back(lease(entry, false));
  return leases;
}

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
  const bool full = core_->waiting >= core_->options.most_waiting;
  if (found.must_wait && full && !entry->waiters.empty()) {
    ApiError error{429,
                   fmt::format("{} requests wait for models already; try again later",
                               core_->options.most_waiting),
                   "", "queue_full"};
    error.retry_after_seconds = 2;
    found = {nullptr, false, std::move(error)};
  }
  if (!found.must_wait) {
    lock.unlock();
    return then(std::move(found));
  }
  ++core_->waiting;
  entry->waiters.push_back({std::move(then), std::move(gone)});
  core_->queue_load(entry);
}

ApiStatus ModelStore::load(const std::string& name) {
  std::unique_lock lock(core_->mutex);
  const Core::EntryPtr entry = core_->look_up(name, lock);
  if (!entry) return no_such_model(name);
  if (core_->draining) return store_ends();
  entry->error.clear();
  entry->wanted = true;
  core_->queue_load(entry);
  return {};
}

ApiStatus ModelStore::unload(const std::string& name) {
  std::unique_lock lock(core_->mutex);
  const Core::EntryPtr entry = core_->look_up(name, lock);
  if (!entry) return no_such_model(name);
  if (entry->state == ModelState::Loaded) entry->state = ModelState::Unloading;
  if (entry->state == ModelState::Sleeping) entry->state = ModelState::Unloaded;
  core_->changed.notify_all();
  return {};
}

Status ModelStore::load_now(const std::string& name) {
  std::promise<bool> done;
  wait_for(name, [&](const Found& found) { done.set_value(found.model != nullptr); });
  if (done.get_future().get()) return {};
  const std::lock_guard lock(core_->mutex);
  const Core::EntryPtr entry = core_->find(name);
  return Error{entry ? entry->full_error : fmt::format("{}: no such plan", name)};
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
  if (!core_->several()) {
    out.aliases = core_->options.aliases;
    out.tags = core_->options.tags;
  }
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

std::string ModelStore::failure() {
  const std::lock_guard lock(core_->mutex);
  if (core_->several() || core_->entries.empty()) return "";
  const Core::Entry& entry = *core_->entries.front();
  if (!entry.broken && !entry.lost) return "";
  return fmt::format(
      "the file of the model '{}' was cut off or written to while it was in use; it is loaded "
      "again when the file is whole",
      entry.plan.name);
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
