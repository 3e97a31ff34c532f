#include "lib/plan_cache/plan_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "lib/plan_cache/cache_folder.h"
#include "lib/plan_cache/entry.h"
#include "lib/plan_cache/model_files.h"

namespace ktx::plan_cache {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostSeen = 16;  // places that a model was in

// Who lists plans holds their locks for a moment: that is not worth a message.
constexpr int kQuietTries = 10;
constexpr std::chrono::milliseconds kBetweenTries{20};

bool is_file(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

bool has_seen(const CachedPlan& plan, const std::string& quick) {
  return std::ranges::find(plan.seen, quick) != plan.seen.end();
}

bool before(const CachedPlan& a, const CachedPlan& b) {
  return a.last_use != b.last_use ? a.last_use > b.last_use : a.id < b.id;
}

}  // namespace

Result<PlanCache> PlanCache::open() {
  const std::string folder = KTX_TRY(cache_folder());
  KTX_TRY(make_private_folder(folder));
  KTX_TRY(make_private_folder(folder + "/plans"));
  return PlanCache(folder + "/plans");
}

// Under a lock of this process, of either kind.
Result<std::optional<KeptPlan>> PlanCache::use(const CachedPlan& plan,
                                               const std::string& quick) const {
  const std::string folder = path_of(plan.id);
  auto lock = KTX_TRY(EntryLock::take(folder, EntryLock::Kind::Shared, EntryLock::Wait::No));
  if (!lock) return std::optional<KeptPlan>();
  auto now = read_entry(folder, plan.id);
  if (!now || !now->complete) return std::optional<KeptPlan>();
  lock->touch();
  if (!has_seen(*now, quick)) {
    now->seen.push_back(quick);
    if (now->seen.size() > kMostSeen) now->seen.erase(now->seen.begin());
    (void)write_entry(folder, *now);  // only spares the next start some reading
  }
  return std::optional<KeptPlan>(KeptPlan(plan_path(folder, *now), std::move(*lock)));
}

Status PlanCache::make(const CachedPlan& plan, const WantedPlan& wanted, const MakePlan& make,
                       const EntryLock& lock) const {
  const std::string folder = path_of(plan.id);
  KTX_TRY(write_entry(folder, plan));
  const std::string path = plan_path(folder, plan);
  if (const Status made = make(path, lock.fd()); !made) {
    // Nothing to continue from: no reason to be listed.
    if (!is_file(path + ".work")) (void)remove_entry(folder);
    return made;
  }
  if (!is_file(path)) return Error{fmt::format("{}: the compiler has written no plan", path)};
  if (KTX_TRY(content_key(wanted.files)) == plan.content) return {};
  KTX_TRY(remove_entry(folder));
  return Error{fmt::format("{}: the file was changed while it was compiled; start again",
                           wanted.files.front())};
}

Result<KeptPlan> PlanCache::get(const WantedPlan& wanted, const MakePlan& make,
                                const std::function<void(const std::string&)>& tell) const {
  const std::string quick = KTX_TRY(quick_key(wanted.files));
  for (const CachedPlan& plan : list()) {
    const bool same = plan.recipe == wanted.recipe && plan.compiler == wanted.compiler;
    if (!plan.complete || !same || !has_seen(plan, quick)) continue;
    if (auto found = KTX_TRY(use(plan, quick))) return std::move(*found);
  }
  CachedPlan plan;
  plan.content = KTX_TRY(content_key(wanted.files));
  plan.compiler = wanted.compiler;
  plan.recipe = wanted.recipe;
  plan.id = entry_name(plan.content, plan.compiler, plan.recipe);
  plan.name = wanted.name;
  plan.note = wanted.note;
  plan.seen = {quick};
  std::error_code unknown;
  plan.source = fs::absolute(wanted.files.front(), unknown).lexically_normal().string();

  using Kind = EntryLock::Kind;
  using Wait = EntryLock::Wait;
  const std::string folder = path_of(plan.id);
  for (int tries = 0;; ++tries) {
    if (auto found = KTX_TRY(use(plan, quick))) return std::move(*found);
    if (auto lock = KTX_TRY(EntryLock::take(folder, Kind::Exclusive, Wait::No))) {
      // The last owner of the lock may have made it.
      const auto there = read_entry(folder, plan.id);
      if (!there || !there->complete) {
        KTX_TRY(this->make(plan, wanted, make, *lock));
        remove_older(plan);
      }
      KTX_TRY(lock->share());
      if (auto found = KTX_TRY(use(plan, quick))) return std::move(*found);
    }
    if (tries == kQuietTries) {
      tell(fmt::format("another ktx-run compiles {}; waiting for its plan", wanted.name));
      // Its compiler holds the lock alone; those that run the plan then share it.
      KTX_TRY(EntryLock::take(folder, Kind::Shared, Wait::Yes));
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
}

void PlanCache::remove_older(const CachedPlan& than) const {
  for (const CachedPlan& plan : list()) {
    if (plan.id == than.id || plan.content != than.content || plan.recipe != than.recipe) continue;
    (void)remove(plan);
  }
}

std::vector<CachedPlan> PlanCache::list() const {
  std::vector<CachedPlan> plans;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, error)) {
    const std::string id = entry.path().filename().string();
    if (!is_entry_name(id) || !entry.is_directory(error) || entry.is_symlink(error)) continue;
    if (auto plan = read_entry(entry.path().string(), id)) plans.push_back(std::move(*plan));
  }
  std::ranges::sort(plans, before);
  return plans;
}

bool PlanCache::in_use(const CachedPlan& plan) const {
  const auto lock = EntryLock::take_existing(path_of(plan.id), EntryLock::Kind::Exclusive);
  return lock.ok() && !*lock;
}

Result<bool> PlanCache::remove(const CachedPlan& plan) const {
  const auto lock = KTX_TRY(EntryLock::take_existing(path_of(plan.id), EntryLock::Kind::Exclusive));
  if (!lock) return false;
  KTX_TRY(remove_entry(path_of(plan.id)));
  return true;
}

Result<std::vector<CachedPlan>> PlanCache::keep_below(uint64_t bytes) const {
  std::vector<CachedPlan> plans = list(), removed;
  uint64_t sum = 0;
  for (const CachedPlan& plan : plans) sum += plan.bytes;
  // What a killed compiler has left goes first.
  std::ranges::stable_partition(plans, [](const CachedPlan& plan) { return plan.complete; });
  for (auto plan = plans.rbegin(); plan != plans.rend() && sum > bytes; ++plan) {
    if (!KTX_TRY(remove(*plan))) continue;
    sum -= plan->bytes;
    removed.push_back(*plan);
  }
  return removed;
}

}  // namespace ktx::plan_cache
