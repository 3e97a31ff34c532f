#include "tools/ktx-run/host_run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lib/plan/plan_hosts.h"
#include "lib/plan/plan_reader.h"
#include "lib/runtime/hosts/follow_host.h"
#include "lib/runtime/hosts/host_group.h"
#include "lib/runtime/hosts/open_mpi.h"
#include "tools/finish.h"
#include "tools/ktx-run/commands.h"
#include "tools/ktx-run/loaded_model.h"
#include "tools/ktx-run/probe_hosts.h"
#include "tools/ktx-run/required_signature.h"

namespace ktx::tools {
namespace {

// MPI's own start and end wait for all processes, without end where one stands still. Ends this one
// with a message when that takes too long.
class WaitLimit {
 public:
  WaitLimit(int seconds, std::string what)
      : thread_([this, seconds, what = std::move(what)] {
          std::unique_lock lock(mutex_);
          if (over_.wait_for(lock, std::chrono::seconds(seconds), [this] { return done_; })) return;
          say_error("ktx-run",
                    fmt::format("{} for {} s; a process was killed or hangs", what, seconds));
          std::fflush(stdout);
          _exit(1);
        }) {}
  ~WaitLimit() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    over_.notify_all();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable over_;
  bool done_ = false;
  std::thread thread_;
};

constexpr int kStartSeconds = 60, kEndSeconds = 15;
constexpr std::chrono::milliseconds kTurnToSpeak{500};

Result<std::unique_ptr<runtime::Network>> start_mpi(const std::vector<std::string>& names) {
  const WaitLimit limit(kStartSeconds, "MPI has not connected all processes");
  return runtime::open_mpi([&](const std::vector<int>& ranks) {
    std::vector<std::string> missing;
    for (const int rank : ranks) missing.push_back(runtime::host_text(names, rank));
    say_error("ktx-run",
              fmt::format("{} did not start with the others, or {} ended or stopped meanwhile",
                          fmt::join(missing, ", "), ranks.size() > 1 ? "were" : "was"));
    std::fflush(stdout);
  });
}

bool runs_plan(Command command) {
  constexpr Command kRun[] = {Command::Generate, Command::Chat,       Command::Serve,
                              Command::Bench,    Command::Perplexity, Command::Score};
  return std::ranges::find(kRun, command) != std::end(kRun);
}

// The one plan of the command, if it has one.
std::string plan_of(const Options& options) {
  const bool of_serve = options.plan.empty() && options.serve.sources.size() == 1;
  return of_serve ? options.serve.sources.front() : options.plan;
}

// What follows leaves by its exit status alone: the first host talks, unless it is gone itself.
int follow(runtime::HostGroup& group, const std::string& plan, const EngineFlags& flags) {
  // What ends the run is the first host's to answer: it may still have requests to finish.
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  const Status followed = runtime::follow_host(group, plan, engine_options(flags));
  std::signal(SIGTERM, SIG_DFL);
  if (followed) return 0;
  if (group.first_host_lost()) {
    // The second host speaks, and ends all; the next one where it is gone as well.
    std::this_thread::sleep_for(kTurnToSpeak * (group.rank() - 1));
    say_error("ktx-run", followed.error().message);
  }
  return 1;
}

// Whether mpirun, or what stands in its place, has started this process: Open MPI, what speaks PMIx
// (Slurm), MPICH.
bool is_of_mpi() {
  return std::ranges::any_of(
      std::initializer_list<const char*>{"OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE", "PMI_SIZE"},
      [](const char* key) { return std::getenv(key) != nullptr; });
}

// A probe of several machines needs no plan.
std::optional<int> join_probe(Options& options) {
  if (!is_of_mpi()) return std::nullopt;
  auto network = start_mpi({});
  if (!network) {
    say_error("ktx-run", fmt::format("probe of several hosts: {}", network.error().message));
    return 1;
  }
  if ((*network)->ranks() == 1) {
    (*network)->close(true);
    return std::nullopt;
  }
  options.engine.hosts = runtime::HostGroup::start(network.take());
  if (options.engine.hosts->rank() == 0) return std::nullopt;
  const Status followed = follow_probe(*options.engine.hosts, measure_machine);
  leave_hosts(options);
  return followed ? 0 : 1;
}

Status require_signature(const Options& options, const std::string& path) {
  auto required = KTX_TRY(RequiredSignature::create(options.serve, options.engine.threads));
  KTX_TRY(required->verify({path}));
  return {};
}

}  // namespace

std::optional<int> join_hosts(Options& options) {
  if (options.command == Command::Probe) return join_probe(options);
  const std::string path = plan_of(options);
  if (!runs_plan(options.command) || path.empty()) return std::nullopt;
  std::vector<std::string> names;
  {
    // A file that is no plan, or a folder of plans, is the command's to report.
    const auto plan = plan::PlanFile::open(path);
    if (!plan || !plan::has_hosts(plan->view())) return std::nullopt;
    names = plan::host_names(plan->view());
  }
  // Each host has a file of its own.
  if (const Status status = require_signature(options, path); !status) {
    say_error("ktx-run", status.error().message);
    return 1;
  }
  auto network = start_mpi(names);
  if (!network) {
    say_error("ktx-run",
              fmt::format("{}: the plan is for several hosts: {}", path, network.error().message));
    return 1;
  }
  options.engine.hosts = runtime::HostGroup::start(network.take());
  if (options.engine.hosts->rank() == 0) return std::nullopt;
  if (!options.bench_threads.empty()) {
    options.engine.threads = static_cast<int>(options.bench_threads.front());
  }
  const int status = follow(*options.engine.hosts, path, options.engine);
  leave_hosts(options);
  return status;
}

void leave_hosts(Options& options) {
  if (!options.engine.hosts) return;
  const WaitLimit limit(kEndSeconds, "MPI has not ended");
  options.engine.hosts.reset();
}

}  // namespace ktx::tools
