#include "tools/ktx-run/first_compile.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/statvfs.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "lib/plan_cache/cache_folder.h"
#include "lib/plan_cache/model_files.h"
#include "lib/support/strings.h"
#include "lib/support/timer.h"
#include "tools/build_facts.h"
#include "tools/child_program.h"
#include "tools/finish.h"
#include "tools/hub_model.h"
#include "tools/ktx-run/plan_recipe.h"
#include "tools/ktx-run/report.h"
#include "tools/pulled_models.h"

namespace ktx::tools {
namespace {

constexpr const char* kStopped = "stopped; the next start continues from here";

// An exit status other than 1, for the compiler's own ends.
struct CompilerEnd {
  int status = 1;
  int signal = 0;
};

bool is_gguf(const std::string& path) {
  char bytes[4] = {};
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  std::ifstream(path, std::ios::binary).read(bytes, sizeof bytes);
  return std::string_view(bytes, sizeof bytes) == "GGUF";
}

// "OWNER/NAME:QUANT", as other programs take it: no network is asked for a name that may be a
// file's.
Status check_name(const std::string& path) {
  std::error_code error;
  const bool is_file =
      std::filesystem::exists(path, error) || path.ends_with(".gguf") || path.ends_with(".ktxplan");
  if (is_file || !parse_hub_model("hf:" + path).ok()) return {};
  return Error{fmt::format("{0}: no such file; a model of a hub is written hf:{0}", path)};
}

// The version of both programs: they are built together.
std::string own_version() {
  return fmt::format("{} {}", KTX_VERSION, build_commit());
}

// A hint where the disk is the reason, which the compiler has named.
std::string about_room(const std::string& folder, uint64_t needed) {
  struct statvfs space = {};
  if (statvfs(folder.c_str(), &space) != 0) return "";
  const uint64_t free = uint64_t{space.f_bavail} * space.f_frsize;
  if (free >= needed) return "";
  return fmt::format(
      "; {} are free where plans are kept ({}): `ktx-run plans --keep-below SIZE` removes the least recently used ones, KTX_CACHE=FOLDER keeps them elsewhere",
      human_bytes(free), folder);
}

// What is compiled, into which plan.
struct FirstCompile {
  std::string model;  // or a plan that has it
  uint64_t bytes = 0;
  bool moves = false;  // the model goes into its plan
  const PlanRecipe* recipe = nullptr;
};

Status compile(const FirstCompile& what, const std::string& plan, int lock, CompilerEnd& ended) {
  const std::string compiler = KTX_TRY(find_compiler());
  note(fmt::format("compiling {} ({}); the plan is kept for the next time (ktx-run plans)",
                   what.model, human_bytes(what.bytes)));
  std::vector<std::string> arguments = {what.model, "-q", "--progress", "-o", plan};
  if (what.moves) arguments.emplace_back("--consume-if-possible");
  const std::vector<std::string>& more = what.recipe->arguments;
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Timer timer;
  const ChildEnd end = KTX_TRY(run_child({compiler, arguments, lock, false}));
  if (end.status == 0 && end.signal == 0) {
    note(fmt::format("compiled in {:.1f} s", timer.seconds()));
    return {};
  }
  ended = {end.status == 2 ? 2 : 1, end.signal};
  if (end.signal != 0) return Error{kStopped};
  if (end.status > 128) {
    return Error{fmt::format("{}: ktx-compile was ended by signal {}; the next start continues",
                             what.model, end.status - 128)};
  }
  const auto plans = std::filesystem::path(plan).parent_path().parent_path();
  return Error{fmt::format("{}: not compiled; the lines above say why{}", what.model,
                           about_room(plans.string(), what.bytes))};
}

// A model of a hub, with what is noted of it.
struct NotedModel {
  PulledModels models;
  plan_cache::HubName name;
  std::vector<HubFile> files;
  bool moves = false;  // into its plan
};

Result<NotedModel> noted_model(const std::string& word) {
  const HubModel typed = KTX_TRY(parse_hub_model(word));
  PulledModels models = KTX_TRY(PulledModels::open(typed));
  const HubModel model = models.as_written_first(typed);
  std::vector<HubFile> files = models.noted(model);
  const std::string sha256 = sha256_of(files);
  return NotedModel{std::move(models), {model.text(), sha256}, std::move(files)};
}

Error removed_now(const std::string& model) {
  return Error{fmt::format("{}: its plan was removed just now; start again", model)};
}

class Models {
 public:
  Models(Options& options, std::vector<plan_cache::KeptPlan>& kept)
      : options_(options), kept_(kept) {}

  const CompilerEnd& end() const { return end_; }
  bool any() const { return any_; }

  // `path`: a file from now on, where it was a hub's name; a plan, where it has the model alone,
  // with the drafter in it where it `drafts`.
  Status pull(std::string& path, bool drafts = false) {
    if (!is_hub_model(path)) return {};
    const std::string word = path;
    if (KTX_TRY(take_moved(KTX_TRY(noted_model(word)).name, path, drafts))) return {};
    std::vector<std::string> more = {"--or-plan"};
    if (moves()) more.emplace_back("--for-plan");
    const PullEnd pulled = KTX_TRY(pull_model(path, std::move(more)));
    if (pulled.path.empty()) {
      end_ = {pulled.status == 2 ? 2 : 1, pulled.signal};
      if (pulled.signal != 0) return Error{kStopped};
      return Error{fmt::format("{}: not pulled; the lines above say why", path)};
    }
    // The same file, under another name.
    NotedModel model = KTX_TRY(noted_model(word));
    if (pulled.moved && KTX_TRY(take_moved(model.name, path, drafts))) return {};
    if (pulled.moved) return removed_now(model.name.text);
    path = pulled.path;
    model.moves = pulled.moves;
    pulled_.insert_or_assign(path, std::move(model));
    return {};
  }

  // `path`: a plan from now on, where it was a GGUF.
  Status put(std::string& path, bool drafts = false) {
    if (path.ends_with(".safetensors")) {
      return Error{
          fmt::format("{} is a safetensors file, and weights are read from a GGUF; make "
                      "one with llama.cpp's convert_hf_to_gguf.py",
                      printable(path))};
    }
    if (!is_gguf(path)) return check_name(path);
    any_ = true;
    const PlanRecipe recipe = KTX_TRY(plan_recipe(options_, path, drafts));
    plan_cache::WantedPlan wanted;
    wanted.files = plan_cache::files_of_model(path);
    wanted.name = plan_cache::name_of_model(path);
    wanted.compiler = own_version();
    wanted.recipe = recipe.text;
    wanted.note = recipe.note;
    wanted.whole = recipe.whole;
    const auto pulled = pulled_.find(path);
    FirstCompile what = {path, plan_cache::size_of(wanted.files), false, &recipe};
    if (pulled != pulled_.end()) {
      // Other models may have been fetched since.
      KTX_TRY(pulled->second.models.check_places(pulled->second.files));
      wanted.hub = pulled->second.name.text;
      wanted.sha256 = pulled->second.name.sha256;
      what.moves = pulled->second.moves && !drafts;
    }
    const plan_cache::PlanCache cache = KTX_TRY(plan_cache::PlanCache::open());
    kept_.push_back(KTX_TRY(cache.get(
        wanted, [&](const std::string& plan, int lock) { return compile(what, plan, lock, end_); },
        note)));
    path = kept_.back().path();
    return {};
  }

 private:
  // With these options the model may be read again, or must stay as it is.
  bool moves() const { return options_.draft.plan.empty() && keeps_model(options_); }

  // The plan of a hub's model that is nowhere else; one of an older ktx is compiled anew from it.
  Result<bool> take_moved(const plan_cache::HubName& model, std::string& path, bool drafts) {
    const plan_cache::PlanCache cache = KTX_TRY(plan_cache::PlanCache::open());
    Status failed;
    const auto recipe_of = [&](const std::string& source) -> std::string {
      const auto recipe = plan_recipe(options_, source, drafts);
      if (!recipe) failed = recipe.error();
      return recipe ? recipe->text : "";
    };
    auto plan = cache.find_of_model(model, own_version(), recipe_of);
    const auto old = plan ? std::nullopt : cache.find_moved(model);
    KTX_TRY(std::move(failed));
    if (!plan && !old) return false;
    const std::string source = plan ? plan->source : old->source;
    const PlanRecipe recipe = KTX_TRY(plan_recipe(options_, source, drafts));
    FirstCompile what = {source, plan ? plan->bytes : old->bytes, true, &recipe};
    std::vector<plan_cache::KeptPlan> held;
    if (old) {
      const auto gone = [&](const std::string&, int) -> Status { return removed_now(model.text); };
      held.push_back(KTX_TRY(cache.get(*old, gone, note)));
      plan = plan_cache::renewed(*old, own_version(), recipe.text, recipe.note, recipe.whole);
      what.model = held.back().path();
      what.moves = false;
    }
    any_ = true;
    kept_.push_back(KTX_TRY(cache.get(
        *plan,
        [&](const std::string& to, int lock) {
          const Status compiled = compile(what, to, lock, end_);
          held.clear();  // may be removed
          return compiled;
        },
        note)));
    path = kept_.back().path();
    return true;
  }

  Options& options_;
  std::vector<plan_cache::KeptPlan>& kept_;
  std::map<std::string, NotedModel> pulled_;  // by path
  CompilerEnd end_;
  bool any_ = false;
};

Status put_all(Options& options, Models& models) {
  // First the drafter: its content is in the recipe of the model's plan.
  KTX_TRY(models.pull(options.draft.plan));
  const std::string main =
      options.command == Command::Serve ? options.serve.sources[0] : options.plan;
  const bool drafts = (is_gguf(main) || is_hub_model(main)) && !options.draft.plan.empty() &&
                      (is_gguf(options.draft.plan) || options.draft.plan == "mtp");
  for (std::string& source : options.serve.sources) KTX_TRY(models.pull(source, drafts));
  if (options.command == Command::Serve) options.plan = options.serve.sources[0];
  KTX_TRY(models.pull(options.plan, drafts));
  for (std::string* path : {&options.score.other_plan, &options.diff}) {
    KTX_TRY(models.pull(*path));
  }
  // The name that clients see is that of the file which was given.
  if (options.serve.sources.size() == 1 && options.serve.name.empty() &&
      is_gguf(options.serve.sources[0])) {
    options.serve.name = plan_cache::name_of_model(options.serve.sources[0]);
  }
  for (std::string& source : options.serve.sources) KTX_TRY(models.put(source, drafts));
  if (options.command == Command::Serve) options.plan = options.serve.sources[0];
  KTX_TRY(models.put(options.plan, drafts));
  KTX_TRY(models.put(options.score.other_plan));
  KTX_TRY(models.put(options.diff));
  if (drafts) {
    options.draft.plan = "on";
  } else {
    KTX_TRY(models.put(options.draft.plan));
  }
  return {};
}

}  // namespace

Result<std::string> find_compiler() {
  const std::string compiler = KTX_TRY(find_program("ktx-compile"));
  // One that is not beside ktx-run may be older, and its plans would pass for this version's.
  const ChildEnd end = KTX_TRY(run_child({compiler, {"--version"}, -1, true}));
  const std::string first = end.output.substr(0, end.output.find('\n'));
  const std::string expected = fmt::format("ktx-compile {}", KTX_VERSION);
  if (first == expected) return compiler;
  return Error{fmt::format("{} is '{}', and this ktx-run needs '{}'; install both of one version",
                           compiler, printable(first), expected)};
}

std::optional<int> compile_models(Options& options, std::vector<plan_cache::KeptPlan>& kept) {
  Models models(options, kept);
  const Status put = put_all(options, models);
  const bool compiles = models.any() || options.serve.allow_pull;
  if (put && (compiles || !options.compile.given())) return std::nullopt;
  if (put) {
    say_error("ktx-run", "--rules, --target, --vram and --compile are for a GGUF, and " +
                             printable(options.plan) +
                             " is none; a plan is placed again by: ktx-compile OLD.ktxplan "
                             "RULES.yaml -o NEW.ktxplan");
    return 2;
  }
  say_error("ktx-run", put.error().message);
  if (models.end().signal == 0) return models.end().status;
  signal(models.end().signal, SIG_DFL);
  raise(models.end().signal);
  return 128 + models.end().signal;
}

}  // namespace ktx::tools
