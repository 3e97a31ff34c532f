// The thread of a ModelStore: loads what is waited for, makes room, unloads what is idle.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "lib/server/models/model_props.h"
#include "lib/server/models/model_store_core.h"

namespace ktx::server {
namespace {

// How often the files of models in use are looked at.
constexpr auto kFileLook = std::chrono::seconds(1);

// Fit errors of the host and those of GPUs name what is short.
bool is_about_memory(const std::string& message) {
  return message.find("memory") != std::string::npos;
}

}  // namespace

std::optional<FileStamp> ModelStore::Core::stamp_of(const std::string& path) {
  const Result<FileStamp> stamp = stamp_file(path);
  return stamp ? std::optional(*stamp) : std::nullopt;
}

bool ModelStore::Core::breaks(const EntryPtr& entry) {
  if (entry->broken || !entry->model || !entry->model->engine || !load_plan) return entry->broken;
  const Status plan = entry->model->engine->check_plan();
  if (plan) return false;
  entry->broken = entry->lost = true;
  entry->state = ModelState::Unloading;
  entry->wanted = !entry->removed;
  if (options.tell) options.tell(plan.error().message);
  queue_load(entry);
  return true;
}

bool ModelStore::Core::look_at_files() {
  bool any = false;
  for (const EntryPtr& entry : entries) {
    any |= entry->model != nullptr || entry->lost;
    if (breaks(entry) || !entry->lost || entry->queued) continue;
    // A copy that is under way grows.
    const auto before = std::exchange(entry->seen, stamp_of(entry->plan.path));
    if (entry->seen != before || entry->seen == entry->tried) continue;
    entry->wanted = true;
    queue_load(entry);
  }
  return any && load_plan;
}

ModelStore::Core::EntryPtr ModelStore::Core::oldest() const {
  EntryPtr out;
  const auto before = [](const Entry& a, const Entry& b) {
    return std::pair(a.leases > 0, a.used) < std::pair(b.leases > 0, b.used);
  };
  for (const EntryPtr& entry : loaded()) {
    if (!out || before(*entry, *out)) out = entry;
  }
  return out;
}

bool ModelStore::Core::fits(const Entry& entry) const {
  const std::vector<EntryPtr> others = loaded();
  if (others.empty()) return true;
  if (options.most_loaded > 0 && static_cast<int64_t>(others.size()) >= options.most_loaded) {
    return false;
  }
  uint64_t bytes = entry.bytes > 0 ? entry.bytes : entry.plan.file_bytes;
  for (const EntryPtr& other : others) bytes += other->bytes;
  return options.memory_bytes == 0 || bytes <= options.memory_bytes;
}

bool ModelStore::Core::make_room(std::unique_lock<std::mutex>& lock) {
  const EntryPtr victim = oldest();
  victim->state = ModelState::Unloading;
  victim->makes_room = true;
  changed.wait(lock, [&] { return stopping || victim->leases == 0; });
  if (stopping) return false;
  take_down(victim, ModelState::Unloaded, lock);
  return true;
}

void ModelStore::Core::take_down(const EntryPtr& entry, ModelState state,
                                 std::unique_lock<std::mutex>& lock) {
  std::shared_ptr<ServedModel> model = std::move(entry->model);
  entry->state = ModelState::Unloading;
  lock.unlock();
  model.reset();
  lock.lock();
  entry->state = state;
  entry->makes_room = false;
  std::erase(leaving, entry);
}

Result<std::shared_ptr<ServedModel>> ModelStore::Core::load_guarded(const OfferedPlan& plan) {
  try {
    return load_plan(plan);
  } catch (const std::exception& error) {
    return Error{fmt::format("{}: not enough memory, or a fault: {}", plan.path, error.what())};
  }
}

void ModelStore::Core::do_load(const EntryPtr& entry, std::unique_lock<std::mutex>& lock) {
  entry->queued = false;
  const bool wanted = std::exchange(entry->wanted, false);
  if (entry->broken) {
    changed.wait(lock, [&] { return stopping || entry->leases == 0; });
    if (stopping) return;
    take_down(entry, ModelState::Unloaded, lock);
    entry->broken = false;
  }
  if (entry->removed) return answer(entry, no_such_model(entry->plan.name), lock);
  if (entry->state == ModelState::Unloading && entry->model) entry->state = ModelState::Loaded;
  if (entry->state == ModelState::Loaded) return answer(entry, std::nullopt, lock);
  const bool unwaited = std::all_of(entry->waiters.begin(), entry->waiters.end(),
                                    [](const Waiter& waiter) { return waiter.left(); });
  if (unwaited && !wanted) return answer(entry, store_ends(), lock);
  const ModelState before = entry->state;
  entry->state = ModelState::Loading;
  entry->tried = stamp_of(entry->plan.path);
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
    if (entry->lost && options.tell) options.tell(entry->full_error);
    return answer(entry, not_loadable(*entry), lock);
  }
  if (entry->lost) {
    if (entry->tried) {
      entry->plan.file_bytes = entry->tried->size;
      entry->plan.modified = entry->tried->modified_ns / 1'000'000'000;
    }
    if (options.tell) options.tell(fmt::format("{}: loaded again", entry->plan.path));
  }
  entry->lost = false;
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

ModelStore::Core::EntryPtr ModelStore::Core::due(ModelState& state, Clock::time_point& next) {
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

void ModelStore::Core::run() {
  std::unique_lock lock(mutex);
  while (!stopping) {
    if (!loads.empty()) {
      const EntryPtr entry = loads.front();
      loads.pop_front();
      do_load(entry, lock);
      continue;
    }
    const bool again = look_at_files();
    if (!loads.empty()) continue;
    ModelState state{};
    Clock::time_point next;
    const EntryPtr entry = due(state, next);
    if (again) next = std::min(next, Clock::now() + kFileLook);
    if (entry) {
      take_down(entry, state, lock);
    } else if (next == Clock::time_point::max()) {
      changed.wait(lock);
    } else {
      changed.wait_until(lock, next);
    }
  }
  answer_all(lock);
}

void ModelStore::Core::stop() {
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

}  // namespace ktx::server
