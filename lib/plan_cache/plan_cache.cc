#include "lib/plan_cache/plan_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <thread>

#include "lib/plan_cache/cache_folder.h"
#include "lib/plan_cache/entry.h"
#include "lib/plan_cache/model_files.h"
#include "lib/support/moved_file.h"

namespace ktx::plan_cache {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostSeen = 16;  // places that a model was in

// A process that lists plans holds their locks for a moment: that is not worth a message.
constexpr int kQuietTries = 10;
constexpr std::chrono::milliseconds kBetweenTries{20};

bool is_file(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

bool has_seen(const CachedPlan& plan, const std::string& quick) {
  return std::ranges::find(plan.seen, quick) != plan.seen.end();
}

std::string normal_path(const std::string& path) {
  std::error_code unknown;
  return fs::absolute(path, unknown).lexically_normal().string();
}

// A name may stand for other files by now: the SHA-256 decides where it is known.
bool is_of(const CachedPlan& plan, const HubName& model) {
  return model.sha256.empty() ? plan.hub == model.text : plan.sha256 == model.sha256;
}

// Files of equal keys are two models where their SHA-256 says so: the keys are of samples, and an
// author can choose all else.
bool may_be_one(const std::string& sha256, const std::string& other) {
  return sha256.empty() || other.empty() || sha256 == other;
}

// The model can be had from this plan, and maybe from nothing else on this machine.
bool stands_for_model(const CachedPlan& plan) {
  return plan.moved && plan.whole;
}

// A plan gets its first bytes when nothing else is missing.
bool begins_as_plan(const std::string& path) {
  char bytes[7] = {};
  std::ifstream(path, std::ios::binary).read(bytes, sizeof bytes);
  return std::string_view(bytes, sizeof bytes) == "KTXPLAN";
}

// Without the rest of the model, only a plan that lacks nothing can be finished.
bool can_finish_move(const std::string& folder, const CachedPlan& plan) {
  if (plan.complete || !plan.whole) return false;
  return is_file(plan.source + kMovingSuffix) ||
         (plan.moving && begins_as_plan(plan_path(folder, plan) + kMovingSuffix));
}

bool before(const CachedPlan& a, const CachedPlan& b) {
  return a.last_use != b.last_use ? a.last_use > b.last_use : a.id < b.id;
}

}  // namespace

CachedPlan renewed(const CachedPlan& plan, const std::string& compiler, const std::string& recipe,
                   const std::string& note, bool whole) {
  CachedPlan next = plan;
  next.compiler = compiler;
  next.recipe = recipe;
  next.note = note;
  next.whole = whole;
  next.id = entry_name(plan.content, compiler, recipe);
  next.complete = next.moving = next.moved = false;
  return next;
}

Result<PlanCache> PlanCache::open() {
  const std::string folder = KTX_TRY(cache_folder());
  KTX_TRY(make_private_folder(folder));
  KTX_TRY(make_private_folder(folder + "/plans"));
  return PlanCache(folder + "/plans");
}

// Under a lock of this process, of either kind. `quick`, the hub's name and SHA-256 are noted.
Result<std::optional<KeptPlan>> PlanCache::use(const CachedPlan& plan,
                                               const std::string& quick) const {
  const std::string folder = path_of(plan.id);
  auto lock = KTX_TRY(EntryLock::take(folder, EntryLock::Kind::Shared, EntryLock::Wait::No));
  if (!lock) return std::optional<KeptPlan>();
  auto now = read_entry(folder, plan.id);
  if (!now || !now->complete || !may_be_one(now->sha256, plan.sha256)) {
    return std::optional<KeptPlan>();
  }
  lock->touch();
  const bool seen = quick.empty() || has_seen(*now, quick);
  if (!seen || now->hub != plan.hub || now->sha256 != plan.sha256) {
    if (!seen) now->seen.push_back(quick);
    if (now->seen.size() > kMostSeen) now->seen.erase(now->seen.begin());
    if (!plan.hub.empty()) now->hub = plan.hub;
    if (!plan.sha256.empty()) now->sha256 = plan.sha256;
    (void)write_entry(folder, *now);  // only spares the next start some reading
  }
  return std::optional<KeptPlan>(KeptPlan(plan_path(folder, *now), std::move(*lock)));
}

Status PlanCache::make(const CachedPlan& plan, const MakePlan& make, const EntryLock& lock) const {
  const std::string folder = path_of(plan.id);
  KTX_TRY(write_entry(folder, plan));
  const std::string path = plan_path(folder, plan);
  if (const Status made = make(path, lock.fd()); !made) {
    // Nothing to continue from: no reason to be listed.
    const bool begun = is_file(path + ".work") || is_file(path + kMovingSuffix);
    if (!begun && !is_file(plan.source + kMovingSuffix)) (void)remove_entry(folder);
    return made;
  }
  if (!is_file(path)) return Error{fmt::format("{}: the compiler has written no plan", path)};
  if (!is_file(plan.source)) return {};  // moved into it
  if (KTX_TRY(content_key(files_of_model(plan.source))) == plan.content) return {};
  KTX_TRY(remove_entry(folder));
  return Error{
      fmt::format("{}: the file was changed while it was compiled; start again", plan.source)};
}

Result<KeptPlan> PlanCache::get(const WantedPlan& wanted, const MakePlan& make,
                                const std::function<void(const std::string&)>& tell) const {
  const std::string quick = KTX_TRY(quick_key(wanted.files));
  for (CachedPlan& plan : list()) {
    const bool same = plan.recipe == wanted.recipe && plan.compiler == wanted.compiler;
    if (!plan.complete || !same || !has_seen(plan, quick)) continue;
    if (!may_be_one(plan.sha256, wanted.sha256)) continue;
    if (!wanted.hub.empty()) plan.hub = wanted.hub;
    if (!wanted.sha256.empty()) plan.sha256 = wanted.sha256;
    if (auto found = KTX_TRY(use(plan, quick))) return std::move(*found);
  }
  CachedPlan plan;
  plan.content = KTX_TRY(content_key(wanted.files));
  plan.compiler = wanted.compiler;
  plan.recipe = wanted.recipe;
  plan.id = entry_name(plan.content, plan.compiler, plan.recipe);
  plan.name = wanted.name;
  plan.note = wanted.note;
  plan.hub = wanted.hub;
  plan.sha256 = wanted.sha256;
  plan.whole = wanted.whole;
  plan.seen = {quick};
  plan.source = normal_path(wanted.files.front());
  return make_or_wait(plan, quick, make, tell);
}

Result<KeptPlan> PlanCache::get(const CachedPlan& plan, const MakePlan& make,
                                const std::function<void(const std::string&)>& tell) const {
  return make_or_wait(plan, "", make, tell);
}

// In a folder of its own where another model's plan has the one of this content: a model whose
// SHA-256 is known runs no plan of weights that may be others.
CachedPlan PlanCache::apart(CachedPlan plan) const {
  const auto there = read_entry(path_of(plan.id), plan.id);
  const bool same_content = there && there->content == plan.content;
  if (same_content && !plan.sha256.empty() && there->sha256 != plan.sha256) {
    plan.id = entry_name(plan.content + " " + plan.sha256, plan.compiler, plan.recipe);
  }
  return plan;
}

Result<KeptPlan> PlanCache::make_or_wait(
    const CachedPlan& wanted, const std::string& quick, const MakePlan& make,
    const std::function<void(const std::string&)>& tell) const {
  using Kind = EntryLock::Kind;
  using Wait = EntryLock::Wait;
  for (int tries = 0;; ++tries) {
    const CachedPlan plan = apart(wanted);
    const std::string folder = path_of(plan.id);
    if (auto found = KTX_TRY(use(plan, quick))) return std::move(*found);
    if (auto lock = KTX_TRY(EntryLock::take(folder, Kind::Exclusive, Wait::No))) {
      // The last owner of the lock may have made it.
      const auto there = read_entry(folder, plan.id);
      if (!there || !there->complete) {
        KTX_TRY(this->make(plan, make, *lock));
        remove_older(plan);
      }
      KTX_TRY(lock->share());
      if (auto found = KTX_TRY(use(plan, quick))) return std::move(*found);
    }
    if (tries == kQuietTries) {
      tell(fmt::format("another ktx-run compiles {}; waiting for its plan", plan.name));
      // Its compiler holds the lock alone; those that run the plan then share it.
      KTX_TRY(EntryLock::take(folder, Kind::Shared, Wait::Yes));
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
}

std::optional<CachedPlan> PlanCache::find_of_model(
    const HubName& model, const std::string& compiler,
    const std::function<std::string(const std::string& source)>& recipe) const {
  for (const CachedPlan& plan : list()) {
    if (!is_of(plan, model) || plan.compiler != compiler || is_file(plan.source)) continue;
    const bool usable = plan.complete || can_finish_move(path_of(plan.id), plan);
    if (usable && recipe(plan.source) == plan.recipe) return plan;
  }
  return std::nullopt;
}

std::optional<CachedPlan> PlanCache::find_moved(const HubName& model) const {
  for (const CachedPlan& plan : list()) {
    if (is_of(plan, model) && stands_for_model(plan)) return plan;
  }
  return std::nullopt;
}

std::optional<CachedPlan> PlanCache::find_moving(const std::string& file) const {
  const std::string path = normal_path(file);
  for (const CachedPlan& plan : list()) {
    if (plan.complete || !plan.moving) continue;
    const std::vector<std::string> files = files_of_model(plan.source);
    if (std::ranges::find(files, path) != files.end()) return plan;
  }
  return std::nullopt;
}

void PlanCache::remove_older(const CachedPlan& than) const {
  const std::vector<CachedPlan> plans = list();
  const auto made = std::ranges::find(plans, than.id, &CachedPlan::id);
  const bool has_model = made != plans.end() && stands_for_model(*made);
  for (const CachedPlan& plan : plans) {
    if (plan.id == than.id || plan.content != than.content || plan.recipe != than.recipe) continue;
    if (!may_be_one(plan.sha256, than.sha256)) continue;
    if (stands_for_model(plan) && !has_model) continue;
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

Result<std::vector<Removed>> PlanCache::keep_below(uint64_t bytes) const {
  std::vector<CachedPlan> plans = list();
  // What a killed compiler has left goes first, but for the one place that a model has.
  std::ranges::stable_partition(
      plans, [](const CachedPlan& plan) { return plan.complete || plan.moving; });
  const std::vector<PulledModel> models = pulled_models(models_folder());
  uint64_t sum = 0;
  for (const CachedPlan& plan : plans) sum += plan.bytes;
  for (const PulledModel& model : models) sum += model.bytes;
  std::vector<Removed> removed;
  const auto remove_one = [&](const std::string& name, uint64_t size, Result<bool> done) -> Status {
    if (!KTX_TRY(std::move(done))) return {};
    sum -= size;
    removed.push_back({name, size});
    return {};
  };
  auto model = models.rbegin();
  for (auto plan = plans.rbegin(); sum > bytes;) {
    const bool unfinished = plan != plans.rend() && !plan->complete && !plan->moving;
    const bool older = model != models.rend() && !unfinished &&
                       (plan == plans.rend() || model->last_use <= plan->last_use);
    if (older) {
      KTX_TRY(remove_one(model->name, model->bytes, remove_model(*model)));
      ++model;
    } else if (plan != plans.rend()) {
      KTX_TRY(remove_one(plan->name, plan->bytes, remove(*plan)));
      ++plan;
    } else {
      break;
    }
  }
  return removed;
}

// A model whose plan is being compiled is read.
Result<bool> PlanCache::remove_model(const PulledModel& model) const {
  const std::string path = normal_path(model.files.front());
  for (const CachedPlan& plan : list()) {
    if (plan.source == path && !plan.complete && in_use(plan)) return false;
  }
  return remove_pulled(model);
}

std::string PlanCache::models_folder() const {
  return (fs::path(folder_).parent_path() / "models").string();
}

}  // namespace ktx::plan_cache
