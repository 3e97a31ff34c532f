// The models of a server: which there are, which are loaded, and that they are not unloaded under
// an answer.
//
//   ModelStore models(options, load);
//   auto found = models.use("qwen3");            // the model, "it must be loaded", or an error
//   models.wait_for("qwen3", then);              // loads it; `then` is called when that is done
//   models.unload("qwen3");                      // when its answers have ended
//
// A ModelLease is a model in use: as long as one is held, the model stays. One thread loads and
// unloads, one model at a time, in the order of the requests. To make room it takes those first
// that have been idle for the longest time, and waits for the answers of one that is in use;
// requests for that one meanwhile wait for their turn, so that two models in demand alternate.
//
// A model whose file is cut off or written to is of no use any more: it is taken down, and loaded
// again as soon as its file has stayed the same for a second.
//
// Thread-safe. `then` is called on any thread, also on the caller's.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/server/http/api_error.h"
#include "lib/server/models/offered_plans.h"
#include "lib/server/models/served_model.h"

namespace ktx::server {

struct ModelStoreOptions {
  std::vector<std::string> sources;   // plans and folders
  std::vector<std::string> aliases;   // more names of the only plan
  std::vector<std::string> tags;      // words about it, for lists
  std::string name;                   // its name; "": the plan's
  bool strict = false;                // its name must be right, too
  bool load_on_demand = true;         // else only load() loads
  int64_t most_loaded = 0;            // at once; 0: as many as fit
  uint64_t memory_bytes = 0;          // of all that are loaded; 0: no limit
  std::chrono::seconds idle_limit{};  // unload what has had no request for so long; 0: never
  // Requests that wait for a model, beside the first one of each.
  int64_t most_waiting = 256;
  // Reports to the operator of the server; may be empty. The mutex is held.
  std::function<void(const std::string&)> tell;
};

enum class ModelState { Unloaded, Loading, Loaded, Unloading, Sleeping };
const char* name(ModelState state);

using ModelLease = std::shared_ptr<ServedModel>;

struct ModelStatus {
  OfferedPlan plan;
  std::vector<std::string> aliases, tags;
  ModelState state = ModelState::Unloaded;
  std::string error;  // why the last load failed
  ModelLease model;   // where it is loaded; held as long as this
  std::string props;  // JSON of GET /props, of one that is or was loaded
  std::optional<std::chrono::system_clock::time_point> sleeps_at;  // without another request
};

class ModelStore {
 public:
  // Loads a plan; messages begin with its path. Called on the store's thread.
  using Load = std::function<Result<std::shared_ptr<ServedModel>>(const OfferedPlan&)>;

  ModelStore(ModelStoreOptions options, Load load);
  // A store of one model that is there already and stays.
  explicit ModelStore(std::shared_ptr<ServedModel> model);
  ~ModelStore();  // ends what still runs
  ModelStore(const ModelStore&) = delete;
  ModelStore& operator=(const ModelStore&) = delete;

  // More than one plan, or a folder: names of requests count.
  bool several() const;
  bool needs_names() const;

  struct Found {
    ModelLease model;
    bool must_wait = false;
    std::optional<ApiError> error;
  };
  // "" and, of one plan that is not strict, any name is the model used last.
  Found use(const std::string& name);
  // Not for the work of a request: neither loads it nor keeps it awake.
  Found peek(const std::string& name);

  using Then = std::function<void(Found found)>;
  // `gone` (may be null) says that no request waits any more.
  void wait_for(const std::string& name, Then then, std::shared_ptr<std::atomic<bool>> gone = {});

  // Starts to load it, or to unload it.
  ApiStatus load(const std::string& name);
  ApiStatus unload(const std::string& name);
  // Loads it and returns when that is done.
  Status load_now(const std::string& name);
  // Another name for a plan of a folder; removes one from its folder. Answers that run go on.
  ApiStatus copy(const std::string& from, const std::string& to);
  ApiStatus remove(const std::string& name);

  // All that are offered. Looks into the folders again, when the last time was a second ago or
  // `reload` says so.
  std::vector<ModelStatus> list(bool reload = false);
  std::optional<ModelStatus> status(const std::string& name);
  // Why the only model cannot answer although it once did; "": it can, or has only to be loaded.
  std::string failure();
  // Exactly this name, or an alias.
  bool knows(const std::string& name);
  // What a plan's tables say; read once for each file.
  Result<std::shared_ptr<const PlanSummary>> summary(const OfferedPlan& plan);

  const ModelStoreOptions& options() const;

  // As BatchScheduler's, for all models. A request that waits for a model gets an error.
  void drain();
  bool wait_idle(std::chrono::milliseconds limit);
  void cancel_all();
  void stop();

 private:
  struct Core;  // leases hold it, too
  std::shared_ptr<Core> core_;
};

// The summary of a model; that of a loaded one is there at once.
Result<std::shared_ptr<const PlanSummary>> summary_of(ModelStore& models,
                                                      const ModelStatus& status);

}  // namespace ktx::server
