// The plans of a ModelStore's folders: what is there, what is in them, copies and deletions.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "lib/server/models/model_store_core.h"
#include "lib/support/replace_all.h"

namespace ktx::server {
namespace {

namespace fs = std::filesystem;

constexpr auto kListKept = std::chrono::seconds(1);

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

void ModelStore::Core::look_again(bool at_once) {
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

void ModelStore::Core::let_go(const EntryPtr& entry) {
  entry->removed = true;
  if (last_used == entry) last_used = nullptr;
  if (entry->model) {
    entry->state = ModelState::Unloading;
    leaving.push_back(entry);
  }
  if (!entry->waiters.empty()) queue_load(entry);
  changed.notify_all();
}

Result<std::shared_ptr<const PlanSummary>> ModelStore::Core::summary(const OfferedPlan& plan) {
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

std::string without_path(std::string message, const OfferedPlan& plan) {
  return replace_all(std::move(message), plan.path, plan.name);
}

ApiStatus ModelStore::copy(const std::string& from, const std::string& to) {
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
  return {};
}

ApiStatus ModelStore::remove(const std::string& name) {
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
  return {};
}

}  // namespace ktx::server
