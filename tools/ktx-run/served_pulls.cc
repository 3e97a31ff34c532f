#include "tools/ktx-run/served_pulls.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lib/plan_cache/cache_folder.h"
#include "lib/plan_cache/model_files.h"
#include "lib/plan_cache/plan_cache.h"
#include "lib/plan_cache/pulled_files.h"
#include "lib/support/strings.h"
#include "tools/child_program.h"
#include "tools/hub_model.h"
#include "tools/ktx-run/first_compile.h"
#include "tools/ktx-run/plan_recipe.h"
#include "tools/ktx-run/report.h"
#include "tools/pulled_models.h"

namespace ktx::tools {
namespace {

namespace fs = std::filesystem;
using server::ApiError;
using server::ApiResult;
using server::ApiStatus;
using server::FetchProgress;

using Tell = std::function<void(const FetchProgress&)>;

// The first one that holds plans.
std::string folder_of_pulls(const ServeFlags& flags) {
  std::error_code error;
  for (const std::string& source : flags.sources) {
    if (fs::is_directory(source, error)) return source;
  }
  return "";
}

ApiResult<HubModel> model_of(std::string_view typed) {
  constexpr std::string_view kLatest = ":latest";  // which Ollama's clients add
  if (typed.ends_with(kLatest)) typed.remove_suffix(kLatest.size());
  auto model = parse_hub_model(typed);
  if (!model) return ApiError{400, model.error().message, "model", ""};
  if (!model->revision.empty()) {
    return ApiError{400, "a revision cannot be pulled over HTTP, only what a model is now", "model",
                    ""};
  }
  return model.take();
}

uint64_t free_bytes(const std::string& folder) {
  struct statvfs space = {};
  return statvfs(folder.c_str(), &space) == 0 ? uint64_t{space.f_bavail} * space.f_frsize
                                              : UINT64_MAX;
}

bool on_one_disk(const std::string& a, const std::string& b) {
  struct stat one = {}, other = {};
  return stat(a.c_str(), &one) == 0 && stat(b.c_str(), &other) == 0 && one.st_dev == other.st_dev;
}

// Bytes of a model that is partly fetched, and of others of its repository.
uint64_t fetched_bytes(const std::string& folder) {
  uint64_t sum = 0;
  for (const plan_cache::PulledModel& model : plan_cache::pulled_models(folder)) sum += model.bytes;
  return sum;
}

// One pull, from a name to a plan.
class ServedPull {
 public:
  ServedPull(const Options& options, std::string compiler, const Tell& tell,
             const std::atomic<bool>& stop)
      : options_(options),
        folder_(folder_of_pulls(options.serve)),
        compiler_(std::move(compiler)),
        tell_(tell),
        stop_(stop) {}

  ApiStatus run(const std::string& name) {
    const Status done = pull(name);
    if (done) return {};
    return ApiError{500, without_paths(done.error().message), "model", "not_pulled"};
  }

 private:
  Status pull(const std::string& name) {
    const HubModel model = KTX_TRY(parse_hub_model(name));
    cache_ = KTX_TRY(plan_cache::cache_folder());
    const PulledModels models = KTX_TRY(PulledModels::open(model));
    fetched_into_ = models.folder();
    const std::string hub = models.as_written_first(model).text();
    const std::string plan = fmt::format("{}/{}.ktxplan", folder_, name);
    std::error_code failed;
    fs::create_directories(fs::path(plan).parent_path(), failed);
    if (failed) return Error{fmt::format("{}: cannot make its folder: {}", name, failed.message())};
    status_ = "pulling";
    const std::string puller = KTX_TRY(find_program("ktx-pull"));
    const std::string printed = KTX_TRY(watch(puller, {hub, "--for-plan", "--or-plan"}));
    const std::vector<std::string_view> lines = split(trim(printed), '\n');
    const std::string_view state = lines.size() > 1 ? lines[1] : "";
    const std::string place(lines[0]);
    status_ = "compiling";
    tell_({status_});
    if (state == "moved") return compile_of_plan({hub, sha256_of(models.noted(model))}, plan);
    KTX_TRY(compile(place, plan));
    // Fetched for this plan alone. One that is in use stays, and goes with `plans --keep-below`.
    plan_cache::PulledModel fetched;
    fetched.files = plan_cache::files_of_model(place);
    if (state == "move") (void)plan_cache::remove_pulled(fetched);
    return {};
  }

  Status compile(const std::string& source, const std::string& plan) {
    const PlanRecipe recipe = KTX_TRY(plan_recipe(options_, source, false));
    std::vector<std::string> arguments = {source, "-q", "--progress", "-o", plan};
    arguments.insert(arguments.end(), recipe.arguments.begin(), recipe.arguments.end());
    KTX_TRY(watch(compiler_, std::move(arguments)));
    return {};
  }

  // A first start has moved the model into its plan, in the cache of plans.
  Status compile_of_plan(const plan_cache::HubName& model, const std::string& plan) {
    const plan_cache::PlanCache cache = KTX_TRY(plan_cache::PlanCache::open());
    const Error gone{fmt::format("{}: its plan was removed just now; try again", model.text)};
    const auto found = cache.find_moved(model);
    if (!found) return gone;
    const auto none = [&](const std::string&, int) -> Status { return gone; };
    const plan_cache::KeptPlan held = KTX_TRY(cache.get(*found, none, note));
    return compile(held.path(), plan);
  }

  // What the program prints; an error has the program's words.
  Result<std::string> watch(const std::string& program, std::vector<std::string> arguments) {
    const std::string name = fs::path(program).filename();
    const std::string mark = name + ": error: ";
    std::string error, no_room;
    const ChildEnd end = KTX_TRY(watch_child(
        {program, std::move(arguments), -1, true}, {"KTX_PROGRESS=json"},
        [&] { return stop_ || !no_room.empty(); },
        [&](std::string_view line) {
          if (line.find(": error: ") != line.npos) {
            error = line.substr(line.starts_with(mark) ? mark.size() : 0);
          }
          if (no_room.empty()) no_room = see_progress(line);
        }));
    if (!no_room.empty()) return Error{no_room};
    if (end.status == 0) return end.output;
    if (!error.empty()) return Error{error};
    return Error{
        fmt::format("{} ended with status {}; what has arrived is kept, and the next pull "
                    "continues",
                    name, end.status)};
  }

  // A message where there is no room for the model; else "".
  std::string see_progress(std::string_view line) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object()) return "";
    FetchProgress progress;
    progress.total = json.value("total", uint64_t{0});
    if (json.contains("digest")) {
      const std::string hex = json.value("digest", "");
      digest_ = "sha256:" + hex;
      status_ = "pulling " + hex.substr(0, 12);
      if (std::string problem = room_problem(progress.total); !problem.empty()) return problem;
    }
    const bool checks = json.value("what", "") == "checking";
    progress.status = checks ? "verifying sha256 digest" : status_;
    progress.completed = json.value("done", uint64_t{0});
    // Clients show a bar for each digest: only the fetch has one.
    if (status_.starts_with("pulling ") && !checks) progress.digest = digest_;
    tell_(progress);
    return "";
  }

  // The plan is as large as the GGUF, which goes when the plan is there. That the GGUF has room
  // where it is fetched to is ktx-pull's to check.
  std::string room_problem(uint64_t bytes) const {
    uint64_t needed = bytes;
    if (on_one_disk(folder_, fetched_into_)) {
      needed += bytes - std::min(bytes, fetched_bytes(fetched_into_));
    }
    const uint64_t free = free_bytes(folder_);
    if (free >= needed) return "";
    return fmt::format("{} are needed for the model and its plan, and {} are free",
                       human_bytes(needed), human_bytes(free));
  }

  // Where files lie is no business of clients.
  std::string without_paths(std::string text) const {
    for (const auto& [path, word] : {std::pair(folder_, std::string("the models' folder")),
                                     std::pair(cache_, std::string("the cache"))}) {
      for (size_t at; !path.empty() && (at = text.find(path)) != text.npos;) {
        text.replace(at, path.size(), word);
      }
    }
    return text;
  }

  const Options& options_;
  const std::string folder_, compiler_;
  const Tell& tell_;
  const std::atomic<bool>& stop_;
  std::string cache_, fetched_into_, status_, digest_;
};

}  // namespace

std::string pulls_mistake(const ServeFlags& flags) {
  if (!flags.allow_pull) return "";
  if (folder_of_pulls(flags).empty()) {
    return "--allow-pull puts models into a folder: name one, ktx-run serve FOLDER --allow-pull";
  }
  if (flags.sandbox)
    return "--allow-pull starts programs, and --sandbox allows none: leave one out";
  if (!flags.require_signature.empty()) {
    return "--allow-pull makes plans without a signature: leave it or --require-signature out";
  }
  return "";
}

Result<std::shared_ptr<server::ModelFetches>> open_pulls(const Options& options) {
  if (!options.serve.allow_pull) return std::shared_ptr<server::ModelFetches>();
  signal(SIGCHLD, SIG_DFL);  // ignored by a parent, no end would be seen
  KTX_TRY(find_program("ktx-pull"));
  server::FetchOptions fetches;
  fetches.name = [](const std::string& typed) -> ApiResult<std::string> {
    const HubModel model = KTX_TRY(model_of(typed));
    return fmt::format("hf.co/{}/{}{}{}", model.owner, model.name, model.quant.empty() ? "" : ":",
                       model.quant);
  };
  fetches.fetch = [&options, compiler = KTX_TRY(find_compiler())](
                      const std::string& name, const Tell& tell, const std::atomic<bool>& stop) {
    return ServedPull(options, compiler, tell, stop).run(name);
  };
  return std::make_shared<server::ModelFetches>(std::move(fetches));
}

}  // namespace ktx::tools
