// ktx-run serve: plans behind HTTP, until a signal ends it.
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "lib/plan/device_memory.h"
#include "lib/plan/plan_reader.h"
#include "lib/runtime/hosts/host_group.h"
#include "lib/server/models/served_model.h"
#include "lib/server/server.h"
#include "lib/support/mapped_file.h"
#include "lib/support/sandbox.h"
#include "lib/support/strings.h"
#include "lib/support/timer.h"
#include "lib/target/target.h"
#include "lib/text/chat_template/known_templates.h"
#include "tools/build_facts.h"
#include "tools/ktx-run/adapters.h"
#include "tools/ktx-run/commands.h"
#include "tools/ktx-run/drafting.h"
#include "tools/ktx-run/expert_record.h"
#include "tools/ktx-run/image_files.h"
#include "tools/ktx-run/loaded_model.h"
#include "tools/ktx-run/report.h"
#include "tools/ktx-run/required_signature.h"
#include "tools/ktx-run/self_test_outcome.h"
#include "tools/ktx-run/serve_settings.h"
#include "tools/ktx-run/serve_signals.h"
#include "tools/ktx-run/served_pulls.h"
#include "tools/ktx-run/step_profile.h"

namespace ktx::tools {
namespace {

// Default numbers of sequences of a server: the largest of these that fits.
constexpr int64_t kBatches[] = {8, 4, 2, 1};

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

Result<server::ServerOptions> server_options(const ServeFlags& flags) {
  server::ServerOptions options;
  options.http.host = flags.host;
  options.http.port = static_cast<uint16_t>(flags.port);
  options.http.tls_certificate = flags.tls_cert;
  options.http.tls_key = flags.tls_key;
  options.http.body_bytes = static_cast<uint64_t>(flags.max_body_bytes);
  options.http.connections = flags.max_connections;
  options.access.keys = KTX_TRY(read_keys(flags));
  options.access.origins = flags.cors;
  options.access.hosts = flags.hosts;
  options.access.loopback = is_loopback(flags.host);
  options.request_seconds = flags.request_seconds;
  options.access_log = flags.access_log;
  options.web_ui = flags.web_ui;
  options.show_slots = flags.show_slots;
  options.public_models = flags.public_models;
  options.edit_models = flags.edit_models;
  options.slot_dir = flags.slot_dir;
  options.commit = build_commit();
  std::error_code error;
  if (!flags.slot_dir.empty() && !std::filesystem::is_directory(flags.slot_dir, error)) {
    return Error{fmt::format("{}: no such folder (--slot-dir)", flags.slot_dir)};
  }
  return options;
}

// What all models have in common; outlives them.
struct Common {
  explicit Common(const Options& given) : options(given) {}

  const Options& options;
  bool several = false;
  Adapters adapters;  // of the only one, as at the start
  std::shared_ptr<server::ServedAdapters::Scales> scales =
      std::make_shared<server::ServedAdapters::Scales>();
  runtime::StepTurns turns;
  std::unique_ptr<StepProfile> profile;             // of the only one
  std::shared_ptr<images::DecoderProcess> decoder;  // null until a model sees, but in a sandbox
  std::unique_ptr<RequiredSignature> signature;
};

// As the option says, else the plan.
Result<runtime::Pooling> pooling_for(const std::string& option, const std::string& path) {
  if (option == "last") return runtime::Pooling::Last;
  if (option == "cls") return runtime::Pooling::First;
  if (option == "mean") return runtime::Pooling::Mean;
  if (option == "none") return runtime::Pooling::None;
  const plan::PlanFile file = KTX_TRY(plan::PlanFile::open(path));
  return server::pooling_of(file.view().facts);
}

// A model's plan, and the one that drafts for it.
std::vector<std::string> plans_of(const std::string& plan, const DraftFlags& draft) {
  std::vector<std::string> paths = {plan};
  if (draft.on() && !draft.within() && draft.lookup == 0) paths.push_back(draft.plan);
  return paths;
}

// Before the port opens: those that were named, their signatures and tables. What a folder holds is
// checked when it is loaded.
Status check_named_plans(Common& common) {
  for (const std::string& source : common.options.serve.sources) {
    std::error_code ignored;
    if (std::filesystem::is_directory(source, ignored)) continue;
    const std::vector<std::string> paths = plans_of(source, common.options.draft);
    KTX_TRY(common.signature->verify(paths));
    for (const std::string& path : paths) KTX_TRY(plan::PlanFile::open(path));
  }
  return {};
}

// --selftest
Status check_self_test(const std::string& path, runtime::Engine& engine) {
  const auto outcome = run_self_test(engine);
  if (!outcome) return Error{fmt::format("{}: {}", path, outcome.error().message)};
  if (outcome->passed()) return {};
  return Error{
      fmt::format("{} fails its self-test here and is not served: {}; `ktx-run selftest {}` "
                  "says more",
                  path, failure_text(*outcome), shell_word(path))};
}

// The engine, and what reads images for it, which may find no memory beside it.
Status open_model(const std::string& path, const runtime::EngineOptions& options, bool sees,
                  const Common& common, server::ServedModel& model) {
  model.engine = KTX_TRY(runtime::Engine::open(path, options));
  if (!sees) return {};
  auto viewer = vision::Viewer::open(path, options, *model.engine, common.decoder);
  if (viewer) {
    model.viewer = viewer.take();
    return {};
  }
  model.engine.reset();
  return Error{
      fmt::format("what reads images does not fit beside the model; {}", viewer.error().message)};
}

Result<std::shared_ptr<server::ServedModel>> load(const server::OfferedPlan& plan, Common& common) {
  const Timer timer;
  const Options& options = common.options;
  auto model = std::make_shared<server::ServedModel>();
  runtime::EngineOptions engine = engine_options(options.engine);
  // The mean of a text needs a row of logits for each of its tokens: some at a time. So do the
  // log-probabilities of a prompt, for which a GPU, whose memory is planned, has fewer.
  constexpr int64_t kMeanRows = 16, kPromptRows = 8;
  const VerifiedPlans verified =
      KTX_TRY(common.signature->verify(plans_of(plan.path, options.draft)));
  const runtime::Pooling pooling = KTX_TRY(pooling_for(options.serve.pooling, plan.path));
  const plan::PlanFile file = KTX_TRY(plan::PlanFile::open(plan.path));
  engine.sequence_logits = pooling != runtime::Pooling::Last       ? kMeanRows
                           : plan::any_host_uses_gpus(file.view()) ? 1
                                                                   : kPromptRows;
  engine.lora = KTX_TRY(read_adapters(options.engine.lora));  // which may be other files by now
  KTX_TRY(check_names(common.adapters, plan.name, options.serve.aliases));
  KTX_TRY(make_room_for_drafts(options.draft, plan.path, engine));
  const bool sees = file.view().facts.takes_images;
  if (sees && !common.decoder) {
    common.decoder = KTX_TRY(start_decoder());
    if (const std::string& why = common.decoder->unconfined(); !why.empty()) {
      note(fmt::format("warning: images are decoded with the rights of this user ({})", why));
    }
  }
  if (engine.max_batch) {
    KTX_TRY(open_model(plan.path, engine, sees, common, *model));
  } else {
    Status opened;
    for (const int64_t batch : kBatches) {
      engine.max_batch = batch;
      opened = open_model(plan.path, engine, sees, common, *model);
      if (opened) break;
    }
    KTX_TRY(opened);
  }
  if (options.serve.self_test) KTX_TRY(check_self_test(plan.path, *model->engine));
  server::ChatSettings chat;
  chat.chat_template = KTX_TRY(
      text::chosen_template(options.chat_template.name_or_text, options.chat_template.file));
  chat.tool_format = options.serve.tool_format;
  chat.allow_control_tokens = options.allow_control_tokens;
  KTX_TRY(server::complete_model(*model, plan.path, chat));
  model->pooling = pooling;
  if (options.serve.reasoning != "auto") model->reasons_first = options.serve.reasoning == "on";
  model->sampling = sampling_options(options.sampling);
  model->seed = options.sampling.seed;
  model->max_tokens = options.max_tokens;
  model->verbose = options.serve.verbose;
  model->context_shift = options.serve.context_shift;
  model->aliases = options.serve.aliases;
  model->adapters.open(model->engine->lora(), common.scales);
  model->reasoning_limit = {options.reasoning.budget, options.reasoning.message};
  model->id = plan.name;
  model->created = std::chrono::duration_cast<std::chrono::seconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  runtime::SchedulerOptions scheduler;
  scheduler.max_queue = options.serve.max_queue;
  scheduler.key_slots = options.serve.key_slots;
  scheduler.share_prefixes = options.serve.share_prefixes;
  std::vector<std::string> notes = model->engine->notes();
  scheduler.drafter = KTX_TRY(open_drafter(options.draft, plan.path, options.engine, *model->engine,
                                           *model->tokenizer, notes));
  scheduler.speculation = speculation_options(options.draft);
  KTX_TRY(verified.check());
  common.signature->check_weights(verified);
  if (common.several) scheduler.turns = &common.turns;
  if (!options.serve.profile.empty()) {
    common.profile = KTX_TRY(
        StepProfile::create(options.serve.profile, *model->engine,
                            {options.serve.profile_every, options.serve.profile_size_bytes}));
    scheduler.after_step = [&common](runtime::Engine& used) { common.profile->add(used); };
  }
  model->load_seconds = timer.seconds();
  model->scheduler = std::make_unique<runtime::BatchScheduler>(*model->engine, scheduler);
  for (const std::string& line : notes) {
    note(common.several ? fmt::format("{}: {}", plan.name, line) : line);
  }
  return model;
}

server::ModelStoreOptions store_options(const ServeFlags& flags, const Adapters& adapters) {
  server::ModelStoreOptions options;
  options.sources = flags.sources;
  options.name = flags.name;
  options.aliases = flags.aliases;
  for (const auto& adapter : adapters) options.aliases.push_back(adapter->name);
  options.tags = flags.tags;
  options.strict = flags.strict_model;
  options.load_on_demand = flags.models_autoload;
  options.most_loaded = flags.models_max;
  options.memory_bytes = flags.models_memory_bytes > 0
                             ? static_cast<uint64_t>(flags.models_memory_bytes)
                             : target::available_memory().value_or(0);
  options.idle_limit = std::chrono::seconds(flags.sleep_idle_seconds);
  options.most_waiting = flags.max_queue;
  options.tell = note;
  return options;
}

// The only plan is loaded now; of several, those that were named are looked at.
Result<std::string> prepare(server::ModelStore& models, const std::string& url) {
  const std::vector<server::ModelStatus> all = models.list();
  if (models.several()) {
    for (const server::ModelStatus& one : all) {
      if (one.plan.folder.empty()) KTX_TRY(models.summary(one.plan));
    }
    return fmt::format(
        "the server is ready: {} models, each loaded when a request names it; the "
        "page is at {}/",
        all.size(), url);
  }
  KTX_TRY(models.load_now(""));
  const server::ModelLease model = models.peek("").model;
  return fmt::format(
      "{} is ready: {} sequences of {} tokens, {} threads, loaded in {:.1f} s; the "
      "page is at {}/",
      model->id, model->engine->max_batch(), model->engine->ctx(), model->engine->threads(),
      model->load_seconds, url);
}

// What a server reads and writes after its start, and until then.
SandboxPaths paths_of(const Options& options, const Adapters& adapters) {
  const ServeFlags& flags = options.serve;
  SandboxPaths paths;
  std::error_code ignored;
  for (const std::string& source : flags.sources) {
    std::vector<std::string>& list = flags.edit_models ? paths.write : paths.read;
    if (std::filesystem::is_directory(source, ignored)) {
      list.push_back(source);
    } else {
      add_folders_of(source, list);
    }
  }
  for (const std::string& file :
       {options.draft.plan, flags.config, flags.api_key_file, flags.tls_cert, flags.tls_key,
        flags.require_signature, options.chat_template.file.value_or("")}) {
    add_folders_of(file, paths.read);
  }
  for (const auto& adapter : adapters) add_folders_of(adapter->path, paths.read);
  // Made anew when they are renamed.
  for (const std::string& file : {flags.access_log, flags.profile, options.engine.record_experts}) {
    add_folders_of(file == "-" ? "" : file, paths.write);
  }
  if (!flags.slot_dir.empty()) paths.write.push_back(flags.slot_dir);
  return paths;
}

Status serve(const Options& options) {
  // Memory of large bodies goes back to the system at once; by itself the C library keeps blocks
  // of up to 32 MiB for later once one was freed.
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  ServeSignals signals;  // before any thread

  std::error_code ignored;
  Common common(options);
  common.several = options.serve.sources.size() > 1 ||
                   std::filesystem::is_directory(options.serve.sources[0], ignored);
  common.adapters = KTX_TRY(read_adapters(options.engine.lora));
  if (common.several && !common.adapters.empty()) {
    return Error{
        "--lora: an adapter belongs to one model and this server has several; start a server with that model alone"};
  }
  server::ServerOptions server_settings = KTX_TRY(server_options(options.serve));
  if (const auto& hosts = options.engine.hosts) {
    server_settings.failure = [hosts] { return hosts->failure(); };
  }
  if (options.serve.sandbox && options.engine.hosts) {
    return Error{"--sandbox: hosts of a plan are connected while it runs; start without it"};
  }
  if (options.serve.sandbox) {
    common.decoder = KTX_TRY(start_decoder());  // no program can be started later
    if (const std::string& why = common.decoder->unconfined(); !why.empty()) return Error{why};
    KTX_TRY(restrict_files(paths_of(options, common.adapters)));
  }
  common.signature = KTX_TRY(RequiredSignature::create(options.serve, options.engine.threads));
  KTX_TRY(check_named_plans(common));
  const auto& access = server_settings.access;
  if (options.serve.allow_pull && !access.loopback && access.keys.empty()) {
    return Error{
        "--allow-pull: every client that reaches this address could fill the disk; require keys "
        "(--api-key, --api-key-file), or listen on 127.0.0.1"};
  }
  if (options.serve.allow_pull && access.keys.empty() &&
      std::ranges::find(access.origins, "*") != access.origins.end()) {
    return Error{
        "--allow-pull: with --cors '*' every web page could fill the disk; require keys "
        "(--api-key, --api-key-file), or name the pages"};
  }
  server_settings.fetches = KTX_TRY(open_pulls(options));  // before any thread: run_child()
  auto models = std::make_shared<server::ModelStore>(
      store_options(options.serve, common.adapters),
      [&common](const server::OfferedPlan& plan) { return load(plan, common); });
  if (options.serve.self_test && !models->several()) KTX_TRY(models->load_now(""));
  server::Server server(server_settings);
  KTX_TRY(server.start());
  const std::string scheme = options.serve.tls_cert.empty() ? "http" : "https";
  const bool ipv6 = options.serve.host.find(':') != std::string::npos;
  const std::string host = ipv6 ? "[" + options.serve.host + "]" : options.serve.host;
  const std::string url = fmt::format("{}://{}:{}", scheme, host, server.port());
  for (const std::string& line : unknown_serve_variables()) note("warning: " + line);
  note(fmt::format("listening on {}", url));
  if (!server_settings.access.loopback && server_settings.access.keys.empty()) {
    note("every client that reaches this address may use the model; --api-key requires a key");
  }
  ExpertRecord record = KTX_TRY(ExpertRecord::open(options.engine.record_experts));
  const std::string ready = KTX_TRY(prepare(*models, url));
  if (options.serve.sandbox) KTX_TRY(restrict_calls());
  server.set_models(models);  // before the line that says so: scripts wait for it
  note(ready);

  signals.wait_for_end(options.serve, server);
  note(fmt::format("ending: waiting up to {} s for running answers; a second signal ends at once",
                   options.serve.drain_seconds));
  signals.let_end();
  if (!server.drain(std::chrono::seconds(options.serve.drain_seconds))) {
    note("some answers took longer and were cut off");
  }
  const server::ModelLease used = models->peek("").model;
  if (used && !options.engine.record_experts.empty()) {
    Status recorded;
    used->scheduler->call([&](runtime::Engine& engine) { recorded = record.save(engine); });
    KTX_TRY(recorded);
  }
  KTX_TRY(server.log_state());
  return common.profile ? common.profile->finish() : Status();
}

}  // namespace

int run_serve(const Options& options) {
  const Status status = serve(options);
  return status ? 0 : fail(status.error().message);
}

}  // namespace ktx::tools
