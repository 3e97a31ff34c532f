// ktx-run serve: a plan behind HTTP, until a signal ends it.
#include <fmt/format.h>
#include <malloc.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "lib/server/server.h"
#include "lib/support/mapped_file.h"
#include "lib/support/strings.h"
#include "lib/support/timer.h"
#include "tools/ktx-run/commands.h"
#include "tools/ktx-run/expert_record.h"
#include "tools/ktx-run/loaded_model.h"
#include "tools/ktx-run/serve_settings.h"
#include "tools/ktx-run/step_profile.h"
#include "tools/ktx-run/talk.h"

namespace ktx::tools {
namespace {

// Default numbers of sequences of a server: the largest of these that fits.
constexpr int64_t kBatches[] = {8, 4, 2, 1};

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

// Of the command line and of the file, as it is now.
Result<std::vector<server::ApiKey>> read_keys(const ServeFlags& flags) {
  std::vector<server::ApiKey> keys(flags.api_keys.begin(), flags.api_keys.end());
  if (!flags.api_key_file.empty()) {
    const std::string text = KTX_TRY(read_text_file(flags.api_key_file));
    KTX_TRY(server::read_api_keys(flags.api_key_file, text, keys));
  }
  std::erase_if(keys, [](const server::ApiKey& key) { return key.key.empty(); });
  return keys;
}

// Waits for the signal to end; until then SIGHUP means other keys.
void wait_for_end(const sigset_t& signals, const ServeFlags& flags, server::Server& server) {
  for (;;) {
    int signal = 0;
    sigwait(&signals, &signal);
    if (signal != SIGHUP) return;
    auto keys = read_keys(flags);
    if (keys) {
      note(fmt::format("{}: read again, {} keys", flags.api_key_file, keys->size()));
      server.set_keys(keys.take());
    } else {
      note(fmt::format("{}; the keys stay as they were", keys.error().message));
    }
  }
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
  options.slot_dir = flags.slot_dir;
  std::error_code error;
  if (!flags.slot_dir.empty() && !std::filesystem::is_directory(flags.slot_dir, error)) {
    return Error{fmt::format("{}: no such folder (--slot-dir)", flags.slot_dir)};
  }
  return options;
}

// `profile`, when there is one, must outlive the model.
Result<std::shared_ptr<server::ServedModel>> load(const Options& options,
                                                  std::unique_ptr<StepProfile>& profile) {
  const Timer timer;
  auto model = std::make_shared<server::ServedModel>();
  runtime::EngineOptions engine = engine_options(options.engine);
  // The mean of a text needs a row of logits for each of its tokens: some at a time.
  constexpr int64_t kMeanRows = 16;
  engine.sequence_logits =
      std::max(options.serve.lookup + 1, options.serve.pooling == "last" ? 1 : kMeanRows);
  if (engine.max_batch) {
    model->engine = KTX_TRY(runtime::Engine::open(options.plan, engine));
  } else {
    std::string why;
    for (const int64_t batch : kBatches) {
      engine.max_batch = batch;
      auto opened = runtime::Engine::open(options.plan, engine);
      if (opened) {
        model->engine = opened.take();
        break;
      }
      why = opened.error().message;
    }
    if (!model->engine) return Error{why};
  }
  std::optional<std::string> chat_template = options.serve.chat_template;
  if (options.serve.chat_template_file) {
    chat_template = KTX_TRY(read_text_file(*options.serve.chat_template_file));
  }
  KTX_TRY(server::complete_model(*model, options.plan, chat_template));
  if (options.serve.pooling == "mean") model->pooling = runtime::Pooling::Mean;
  if (options.serve.pooling == "none") model->pooling = runtime::Pooling::None;
  if (options.serve.reasoning != "auto") model->reasons_first = options.serve.reasoning == "on";
  model->sampling = sampling_options(options.sampling);
  model->seed = options.sampling.seed;
  model->max_tokens = options.max_tokens;
  model->verbose = options.serve.verbose;
  model->aliases = options.serve.aliases;
  model->reasoning_limit = {options.reasoning.budget, options.reasoning.message};
  model->id = !options.serve.name.empty() ? options.serve.name
                                          : std::filesystem::path(options.plan).stem().string();
  model->created = std::chrono::duration_cast<std::chrono::seconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  runtime::SchedulerOptions scheduler;
  scheduler.max_queue = options.serve.max_queue;
  scheduler.share_prefixes = options.serve.share_prefixes;
  scheduler.lookup_tokens = static_cast<int>(options.serve.lookup);
  if (!options.serve.profile.empty()) {
    profile = KTX_TRY(StepProfile::create(options.serve.profile, *model->engine));
    scheduler.after_step = [&profile](runtime::Engine& engine) { profile->add(engine); };
  }
  model->load_seconds = timer.seconds();
  model->scheduler = std::make_unique<runtime::BatchScheduler>(*model->engine, scheduler);
  return model;
}

Status serve(const Options& options) {
  // Memory of large bodies goes back to the system at once; by itself the C library keeps blocks
  // of up to 32 MiB for later once one was freed.
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  // Taken by sigwait below: all threads that are started from here on leave them alone.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  if (!options.serve.api_key_file.empty()) sigaddset(&signals, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  std::unique_ptr<StepProfile> profile;
  const server::ServerOptions server_settings = KTX_TRY(server_options(options.serve));
  server::Server server(server_settings);
  KTX_TRY(server.start());
  const std::string scheme = options.serve.tls_cert.empty() ? "http" : "https";
  const bool ipv6 = options.serve.host.find(':') != std::string::npos;
  const std::string host = ipv6 ? "[" + options.serve.host + "]" : options.serve.host;
  const std::string url = fmt::format("{}://{}:{}", scheme, host, server.port());
  note(fmt::format("listening on {}", url));
  if (!server_settings.access.loopback && server_settings.access.keys.empty()) {
    note("everybody who reaches this address may use the model; --api-key asks for a key");
  }
  ExpertRecord record = KTX_TRY(ExpertRecord::open(options.engine.record_experts));
  const std::shared_ptr<server::ServedModel> model = KTX_TRY(load(options, profile));
  for (const std::string& line : model->engine->notes()) note(line);
  server.set_model(model);  // before the line that says so: scripts wait for it
  note(
      fmt::format("{} is ready: {} sequences of {} tokens, {} threads, loaded in {:.1f} s; the "
                  "page is at {}/",
                  model->id, model->engine->max_batch(), model->engine->ctx(),
                  model->engine->threads(), model->load_seconds, url));

  wait_for_end(signals, options.serve, server);
  note(fmt::format("ending: waiting up to {} s for running answers; a second signal ends at once",
                   options.serve.drain_seconds));
  // A second signal kills as usual.
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  if (!server.drain(std::chrono::seconds(options.serve.drain_seconds))) {
    note("some answers took longer and were cut off");
  }
  Status recorded;
  model->scheduler->call([&](runtime::Engine& engine) { recorded = record.save(engine); });
  KTX_TRY(recorded);
  KTX_TRY(server.log_state());
  return profile ? profile->finish() : Status();
}

}  // namespace

int run_serve(const Options& options) {
  const Status status = serve(options);
  return status ? 0 : fail(status.error().message);
}

}  // namespace ktx::tools
