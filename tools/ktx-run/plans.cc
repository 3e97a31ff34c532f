// ktx-run plans: what first starts have compiled, and its end.
//
//   ktx-run plans                      names, sizes, last use, sources
//   ktx-run plans rm llama             removes one
//   ktx-run plans --keep-below 200GB   removes the least recently used
#include <fmt/format.h>
#include <sys/statvfs.h>

#include <ctime>
#include <map>
#include <nlohmann/json.hpp>

#include "lib/plan_cache/cache_folder.h"
#include "lib/plan_cache/plan_cache.h"
#include "lib/support/strings.h"
#include "lib/support/text_table.h"
#include "tools/ktx-run/commands.h"
#include "tools/ktx-run/report.h"

namespace ktx::tools {
namespace {

using plan_cache::CachedPlan;
using plan_cache::PlanCache;

constexpr size_t kIdShown = 6;

// A plan and what it is called here: "llama", or "llama@3f2a91" where several are called llama.
struct Named {
  CachedPlan plan;
  std::string name;
};

std::vector<Named> named_plans(const PlanCache& cache) {
  std::map<std::string, int> count;
  std::vector<Named> plans;
  for (CachedPlan& plan : cache.list()) {
    ++count[plan.name];
    plans.push_back({std::move(plan), ""});
  }
  for (Named& one : plans) {
    const bool alone = count[one.plan.name] == 1;
    one.name = alone ? one.plan.name : one.plan.name + "@" + one.plan.id.substr(0, kIdShown);
  }
  return plans;
}

std::string ago(int64_t seconds) {
  struct Unit {
    int64_t seconds;
    const char* name;
  };
  constexpr Unit kUnits[] = {{86400, "day"}, {3600, "hour"}, {60, "minute"}};
  for (const Unit& unit : kUnits) {
    const int64_t count = seconds / unit.seconds;
    if (count > 0) return fmt::format("{} {}{} ago", count, unit.name, count == 1 ? "" : "s");
  }
  return "just now";
}

std::string use_of(const PlanCache& cache, const CachedPlan& plan) {
  const bool used = cache.in_use(plan);
  if (!plan.complete) return used ? "being compiled" : "not finished";
  return used ? "in use" : ago(std::time(nullptr) - plan.last_use);
}

std::string source_of(const CachedPlan& plan) {
  if (plan.source.empty()) return "unknown";
  const std::string& source = plan.moved ? plan.hub : plan.source;
  return plan.note.empty() ? source : fmt::format("{} ({})", source, plan.note);
}

uint64_t sum_of(const std::vector<Named>& plans) {
  uint64_t sum = 0;
  for (const Named& one : plans) sum += one.plan.bytes;
  return sum;
}

// The bytes of the models that ktx-pull keeps beside the plans.
uint64_t pulled_bytes(const PlanCache& cache) {
  uint64_t sum = 0;
  for (const plan_cache::PulledModel& model : plan_cache::pulled_models(cache.models_folder())) {
    sum += model.bytes;
  }
  return sum;
}

void print_json(const PlanCache& cache, const std::vector<Named>& plans) {
  nlohmann::ordered_json json = {{"folder", cache.folder()},
                                 {"bytes", sum_of(plans)},
                                 {"pulled_bytes", pulled_bytes(cache)},
                                 {"plans", nlohmann::ordered_json::array()}};
  for (const auto& [plan, name] : plans) {
    json["plans"].push_back({{"name", name},
                             {"id", plan.id},
                             {"bytes", plan.bytes},
                             {"last_use", plan.last_use},
                             {"in_use", cache.in_use(plan)},
                             {"complete", plan.complete},
                             {"source", plan.source},
                             {"hub", plan.hub},
                             {"options", plan.note},
                             {"compiler", plan.compiler}});
  }
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

void print_table(const PlanCache& cache, const std::vector<Named>& plans) {
  TextTable table({{"name", TextTable::Left},
                   {"size"},
                   {"last use", TextTable::Left},
                   {"source", TextTable::Left}});
  for (const auto& [plan, name] : plans) {
    table.add({printable(name, 60), human_bytes(plan.bytes), use_of(cache, plan),
               printable(source_of(plan), 200)});
  }
  if (!plans.empty()) fmt::print("{}", table.plain());
  struct statvfs space = {};
  const bool known = statvfs(cache.folder().c_str(), &space) == 0;
  const std::string free =
      known ? fmt::format("; {} are free", human_bytes(uint64_t{space.f_bavail} * space.f_frsize))
            : "";
  const uint64_t pulled = pulled_bytes(cache);
  std::fflush(stdout);
  note(fmt::format("{} plan{}, {} in {}{}{}", plans.size(), plans.size() == 1 ? "" : "s",
                   human_bytes(sum_of(plans)), cache.folder(),
                   pulled == 0 ? "" : fmt::format("; pulled models: {}", human_bytes(pulled)),
                   free));
}

// By its shown name, by the name alone where one plan has it, or by the beginning of its id.
Result<Named> find(const std::vector<Named>& plans, const std::string& name) {
  std::vector<std::string> names;
  std::vector<const Named*> alike;
  for (const Named& one : plans) {
    if (one.name == name || one.plan.id == name) return one;
    names.push_back(one.name);
    if (one.plan.name == name) alike.push_back(&one);
  }
  if (!alike.empty()) {
    names.clear();
    for (const Named* one : alike) names.push_back(one->name);
    return Error{fmt::format("{} plans are called '{}'; name one: {}", alike.size(),
                             printable(name), join(names, ", "))};
  }
  return Error{fmt::format("no plan '{}'{}; `ktx-run plans` lists them", printable(name),
                           did_you_mean(name, names))};
}

// Nothing is removed where one of the names is wrong.
Status remove(const PlanCache& cache, const std::vector<std::string>& names) {
  const std::vector<Named> plans = named_plans(cache);
  std::vector<Named> chosen;
  for (const std::string& name : names) chosen.push_back(KTX_TRY(find(plans, name)));
  for (const auto& [plan, name] : chosen) {
    if (!KTX_TRY(cache.remove(plan))) {
      return Error{
          fmt::format("{} is in use by another ktx-run; end that one first", printable(name))};
    }
    note(fmt::format("removed {} ({})", printable(name), human_bytes(plan.bytes)));
  }
  return {};
}

Status keep_below(const PlanCache& cache, uint64_t limit) {
  for (const plan_cache::Removed& one : KTX_TRY(cache.keep_below(limit))) {
    note(fmt::format("removed {} ({})", printable(one.name), human_bytes(one.bytes)));
  }
  const uint64_t left = sum_of(named_plans(cache)) + pulled_bytes(cache);
  if (left <= limit) {
    note(fmt::format("{} are left in {}", human_bytes(left), cache.folder()));
    return {};
  }
  return Error{fmt::format("{} are left, more than {}: plans that are in use are not removed",
                           human_bytes(left), human_bytes(limit))};
}

Status plans(const Options& options) {
  // Not made for a list: where it is missing, the list is empty.
  const PlanCache cache(KTX_TRY(plan_cache::cache_folder()) + "/plans");
  if (!options.plans.remove.empty()) return remove(cache, options.plans.remove);
  if (options.plans.keep_bytes >= 0) {
    return keep_below(cache, static_cast<uint64_t>(options.plans.keep_bytes));
  }
  const std::vector<Named> all = named_plans(cache);
  options.json ? print_json(cache, all) : print_table(cache, all);
  return {};
}

}  // namespace

int run_plans(const Options& options) {
  const Status done = plans(options);
  return done ? 0 : fail(done.error().message);
}

}  // namespace ktx::tools
