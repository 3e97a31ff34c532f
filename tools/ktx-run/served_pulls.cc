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
#include "lib/server/models/offered_plans.h"
#include "lib/server/models/requested_model.h"
#include "lib/support/lower_case.h"
#include "lib/support/replace_all.h"
#include "lib/support/strings.h"
#include "tools/child_program.h"
#include "tools/hub_model.h"
#include "tools/ktx-run/first_compile.h"
#include "tools/ktx-run/plan_recipe.h"
#include "tools/ktx-run/report.h"
#include "tools/ktx-run/shared_pulls.h"
#include "tools/pulled_models.h"

namespace ktx::tools {
namespace {

namespace fs = std::filesystem;
using server::ApiError;
using server::ApiResult;
using server::ApiStatus;
using server::FetchProgress;

using Tell = std::function<void(const FetchProgress&)>;

// So that it stands in messages as it is looked for there, and is no word of theirs.
std::string absolute(const std::string& folder) {
  std::error_code error;
  const fs::path path = fs::absolute(folder, error).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).string();
}

// The first one that holds plans.
std::string folder_of_pulls(const ServeFlags& flags) {
  std::error_code error;
  for (const std::string& source : flags.sources) {
    if (fs::is_directory(source, error)) return absolute(source);
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

// What ktx-pull reserves for a file that is not whole: the file and its journal.
bool is_file_of(const std::string& path, uint64_t bytes) {
  constexpr uint64_t kMostJournal = 1 << 20;
  struct stat info = {};
  if (stat(path.c_str(), &info) == 0 && static_cast<uint64_t>(info.st_size) == bytes) return true;
  if (stat((path + ".work").c_str(), &info) != 0) return false;
  const auto size = static_cast<uint64_t>(info.st_size);
  return size >= bytes && size - bytes <= kMostJournal;
}

// Bytes on the disk of a model that is partly fetched, not of others of its repository: a file is
// known by its size, shards by the name of their quantization.
uint64_t fetched_bytes(const std::string& folder, const HubModel& model, uint64_t bytes) {
  const std::string quant = in_lower_case(model.quant.empty() ? "Q4_K_M" : model.quant);
  for (const plan_cache::PulledModel& found : plan_cache::pulled_models(folder)) {
    const bool is_it = found.files.size() == 1 ? is_file_of(found.files[0], bytes)
                                               : in_lower_case(found.name).ends_with(quant);
    if (is_it) return std::min(bytes, found.bytes);
  }
  return 0;
}

// One pull, from a name to a plan.
class ServedPull {
 public:
  ServedPull(const Options& options, std::string compiler, SharedPulls& shared, const Tell& tell,
             const std::atomic<bool>& stop)
      : options_(options),
        folder_(folder_of_pulls(options.serve)),
        compiler_(std::move(compiler)),
        shared_(shared),
        tell_(tell),
        stop_(stop) {}
  ~ServedPull() { shared_.promise(promised_, 0, 0); }
  ServedPull(const ServedPull&) = delete;
  ServedPull& operator=(const ServedPull&) = delete;

  ApiStatus run(const std::string& name) {
    const Status done = pull(name);
    if (done) return {};
    return ApiError{500, without_paths(done.error().message), "model", "not_pulled"};
  }

 private:
  Status pull(const std::string& name) {
    model_ = KTX_TRY(parse_hub_model(name));
    const std::string repository = in_lower_case(model_.owner + "/" + model_.name);
    const auto waits = [&] { tell_({"waiting for another fetch of this repository"}); };
    const SharedPulls::Turn turn = shared_.take(repository, stop_, waits);
    if (!turn) return stopped();
    // One that has ended since the server looked into its folders.
    const auto offered = server::find_plans(options_.serve.sources);
    if (std::ranges::any_of(offered, [&](const server::OfferedPlan& plan) {
          return server::names_model(plan.name, name);
        })) {
      return {};
    }
    cache_ = absolute(KTX_TRY(plan_cache::cache_folder()));
    const PulledModels models = KTX_TRY(PulledModels::open(model_));
    fetched_into_ = models.folder();
    const std::string hub = models.as_written_first(model_).text();
    const std::string plan = fmt::format("{}/{}.ktxplan", folder_, name);
    status_ = "pulling";
    const std::string puller = KTX_TRY(find_program("ktx-pull"));
    const std::string printed = KTX_TRY(watch(puller, {hub, "--for-plan", "--or-plan"}));
    const std::vector<std::string_view> lines = split(trim(printed), '\n');
    const std::string_view state = lines.size() > 1 ? lines[1] : "";
    const std::string place(lines[0]);
    status_ = "compiling";
    if (state == "moved") return compile_of_plan({hub, sha256_of(models.noted(model_))}, plan);
    const Status compiled = compile(place, plan);
    // Fetched for this plan alone. Where none can be made of it, it would stay unseen.
    if (state == "move" && (compiled || !broken_off_)) {
      shared_.at_end(repository, [place] { remove_fetched(place); });
    }
    return compiled;
  }

  // One that is in use stays, and goes with `plans --keep-below`.
  static void remove_fetched(const std::string& place) {
    const auto cache = plan_cache::PlanCache::open();
    if (!cache) return;
    plan_cache::PulledModel fetched;
    fetched.files = plan_cache::files_of_model(place);
    // A first start that was killed has moved a part of it.
    const auto moves = [&](const std::string& file) {
      return cache->find_moving(file).has_value();
    };
    if (std::ranges::none_of(fetched.files, moves)) (void)cache->remove_model(fetched);
  }

  Status compile(const std::string& source, const std::string& plan) {
    broken_off_ = true;  // until a compiler has ended by itself
    // Each takes all of the server's threads.
    const auto waits = [&] { tell_({"waiting for another model to be compiled"}); };
    const SharedPulls::Turn turn = shared_.take("", stop_, waits);
    if (!turn) return stopped();
    tell_({status_});
    KTX_TRY(take_room(plan_cache::size_of(plan_cache::files_of_model(source)), 0));
    const PlanRecipe recipe = KTX_TRY(plan_recipe(options_, source, false));
    std::vector<std::string> arguments = {source, "-q", "--progress", "-o", plan};
    arguments.insert(arguments.end(), recipe.arguments.begin(), recipe.arguments.end());
    const fs::path folder = fs::path(plan).parent_path();
    std::error_code failed;
    fs::create_directories(folder, failed);
    if (failed) {
      return Error{fmt::format("{}: cannot make its folder: {}", plan, failed.message())};
    }
    const auto compiled = watch(compiler_, std::move(arguments));
    if (compiled) return {};
    for (const fs::path& made : {folder, folder.parent_path()}) {
      fs::remove(made, failed);  // where it is empty
    }
    return compiled.error();
  }

  // A first start has moved the model into its plan, in the cache of plans.
  Status compile_of_plan(const plan_cache::HubName& model, const std::string& plan) {
    const plan_cache::PlanCache cache = KTX_TRY(plan_cache::PlanCache::open());
    const Error gone{fmt::format("{}: its plan was removed just now; try again", model.text)};
    const auto found = cache.find_moved(model);
    if (!found) return gone;
    const auto none = [&](const std::string&, int) -> Status { return gone; };
    const plan_cache::KeptPlan held = KTX_TRY(cache.get(*found, none, note));
    return compile(absolute(held.path()), plan);
  }

  static Error stopped() { return Error{"the fetch was stopped"}; }

  // What the program prints; an error has the program's words.
  Result<std::string> watch(const std::string& program, std::vector<std::string> arguments) {
    const std::string name = fs::path(program).filename();
    const std::string mark = name + ": error: ";
    std::string error, no_room;
    const ChildEnd end = KTX_TRY(watch_child(
        {program, std::move(arguments), -1, true}, {"KTX_PROGRESS=json", "KTX_CACHE=" + cache_},
        [&] { return stop_ || !no_room.empty(); },
        [&](std::string_view line) {
          if (line.find(": error: ") != line.npos) {
            error = line.substr(line.starts_with(mark) ? mark.size() : 0);
          }
          if (no_room.empty()) no_room = see_progress(line);
        }));
    broken_off_ = stop_ || end.status > 128;
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
    const auto number = [&](const char* key) {
      const auto at = json.find(key);
      return at != json.end() && at->is_number_unsigned() ? at->get<uint64_t>() : 0;
    };
    const auto text = [&](const char* key) {
      const auto at = json.find(key);
      return at != json.end() && at->is_string() ? at->get<std::string>() : "";
    };
    FetchProgress progress;
    progress.total = number("total");
    if (const std::string hex = text("digest"); !hex.empty()) {
      digest_ = "sha256:" + hex;
      status_ = "pulling " + hex.substr(0, 12);
      const uint64_t bytes = progress.total;
      const Status room = take_room(bytes, bytes - fetched_bytes(fetched_into_, model_, bytes));
      if (!room) return room.error().message;
    }
    const bool checks = text("what") == "checking";
    progress.status = checks ? "verifying sha256 digest" : status_;
    progress.completed = number("done");
    // Clients show a bar for each digest: only the fetch has one.
    if (status_.starts_with("pulling ") && !checks) progress.digest = digest_;
    tell_(progress);
    return "";
  }

  // The plan is as large as the GGUF, which goes when the plan is there. Where the GGUF is fetched
  // to another disk, its room there is ktx-pull's to check. What the programs of other pulls have
  // taken by now counts twice: a disk is rather said to be full than filled.
  Status take_room(uint64_t plan_bytes, uint64_t fetch_bytes) {
    const uint64_t needed = plan_bytes + (on_one_disk(folder_, fetched_into_) ? fetch_bytes : 0);
    const uint64_t free = free_bytes(folder_);
    if (shared_.promise(promised_, needed, free)) return {};
    return Error{fmt::format("{} are needed for the model and its plan, and {} are free{}",
                             human_bytes(needed), human_bytes(free),
                             free < needed ? "" : ", for all models that are being fetched")};
  }

  // Where files lie is no business of clients.
  std::string without_paths(std::string text) const {
    for (const auto& [path, word] :
         {std::pair(folder_, "the models' folder"), std::pair(cache_, "the cache")}) {
      if (path != "/") text = replace_all(std::move(text), path, word);
    }
    return text;
  }

  const Options& options_;
  const std::string folder_, compiler_;
  SharedPulls& shared_;
  const Tell& tell_;
  const std::atomic<bool>& stop_;
  HubModel model_;
  std::string cache_, fetched_into_, status_, digest_;
  uint64_t promised_ = 0;
  bool broken_off_ = false;  // the last program did not end by itself
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
  fetches.fetch = [&options, compiler = KTX_TRY(find_compiler()),
                   shared = std::make_shared<SharedPulls>()](
                      const std::string& name, const Tell& tell, const std::atomic<bool>& stop) {
    return ServedPull(options, compiler, *shared, tell, stop).run(name);
  };
  return std::make_shared<server::ModelFetches>(std::move(fetches));
}

}  // namespace ktx::tools
