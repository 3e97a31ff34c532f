// Plans that were compiled of models at their first start, kept for the next one.
//
//   PlanCache cache = KTX_TRY(PlanCache::open());
//   KeptPlan plan = KTX_TRY(cache.get({.files = ..., .name = "qwen3", .recipe = ...}, make));
//   plan.path()    // ~/.cache/ktx/plans/3f2a...91/qwen3.ktxplan, which stays as long as `plan`
//   lives
//
// A folder for each plan, named by what the plan is made of: content of the model (model_files.h;
// its SHA-256 as well where another model has that content), compiler, and the recipe: everything
// else that decides its bytes. In it:
//
//   entry.json        what it is made of; written first, so that every plan is explained
//   NAME.ktxplan      there when it is complete, and not before: the compiler renames it
//   NAME.ktxplan.*    of a compiler that runs, or was killed: the next one continues from it
//                     (NAME.ktxplan.moving: the model is being moved into it;
//                     NAME.ktxplan.gguf.work/: the GGUF of a plan that is compiled again)
//   lock              entry_lock.h; its time is that of the last use
//
// A model that a first start has fetched from a hub is moved into its plan: its GGUF is gone then,
// and the plan is found by its SHA-256, or by the model's name at the hub as long as nothing is
// known of what the name stands for (find_of_model).
//
// A process that is killed at any moment leaves nothing that the next one takes for a plan. Only
// files of these names in folders of such names are ever removed. Processes may use one cache at
// once; a PlanCache itself is for one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lib/plan_cache/entry_lock.h"
#include "lib/plan_cache/pulled_files.h"
#include "lib/support/result.h"

namespace ktx::plan_cache {

struct WantedPlan {
  std::vector<std::string> files;  // of the model
  std::string name;                // of the plan's file, without ".ktxplan"
  std::string compiler;            // its version
  std::string recipe;              // text
  std::string note;                // for people: the options, ""
  std::string hub = "";            // "hf:OWNER/NAME:QUANT", as which it was fetched; "": a file
  bool whole = false;              // the plan has all of the model, as it is
  std::string sha256 = "";         // of a hub's model, as its list has it; "": not known
};

// A model of a hub.
struct HubName {
  std::string text;    // "hf:OWNER/NAME:QUANT"
  std::string sha256;  // of the files that it stands for now; "": not known
};

// What a folder says of itself.
struct CachedPlan {
  std::string id;  // the folder's name
  std::string name, source, compiler, recipe, note, content;
  std::string hub;                // as which the model was fetched last; "": it is a file
  std::string sha256;             // of that model; "": not known
  bool whole = false;             // it has all of the model: nothing merged, rounded or left out
  bool moved = false;             // complete, of a hub's model whose files are gone
  std::vector<std::string> seen;  // quick keys of the files that it is known to be made of
  uint64_t bytes = 0;             // on the disk
  int64_t last_use = 0;           // seconds since 1970
  bool complete = false;          // else a compiler works on it, or was killed
  bool moving = false;            // by a compiler that moves the model into it
};

// What keep_below() has removed.
struct Removed {
  std::string name;
  uint64_t bytes = 0;
};

// That of the same model, by another compiler or recipe.
CachedPlan renewed(const CachedPlan& plan, const std::string& compiler, const std::string& recipe,
                   const std::string& note, bool whole);

class KeptPlan {
 public:
  KeptPlan(std::string path, EntryLock lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  EntryLock lock_;
};

// Writes the plan to `path`; `lock` is the file to leave open in a compiler.
using MakePlan = std::function<Status(const std::string& path, int lock)>;

class PlanCache {
 public:
  // The cache in cache_folder(), which is made where it is missing.
  static Result<PlanCache> open();
  explicit PlanCache(std::string folder) : folder_(std::move(folder)) {}

  // The plan, made where it is not there. One process makes it and the others wait, once `tell` has
  // said so. Plans of the same model and recipe by another compiler are removed, but for those in
  // use and the last one that has a model whose files are gone.
  Result<KeptPlan> get(const WantedPlan& wanted, const MakePlan& make,
                       const std::function<void(const std::string&)>& tell) const;

  // A plan of a model whose GGUF is not in its place any more, made or begun by this compiler;
  // `recipe` gives the recipe for that place. Nothing: there is none.
  std::optional<CachedPlan> find_of_model(
      const HubName& model, const std::string& compiler,
      const std::function<std::string(const std::string& source)>& recipe) const;
  // One that has its model whole, by another compiler or recipe. Nothing: there is none.
  std::optional<CachedPlan> find_moved(const HubName& model) const;
  // An unfinished one into which this file of a model was being moved. Nothing: there is none.
  std::optional<CachedPlan> find_moving(const std::string& file) const;
  // That plan, held; `make` finishes it where it was begun. Nothing where it is gone.
  Result<KeptPlan> get(const CachedPlan& plan, const MakePlan& make,
                       const std::function<void(const std::string&)>& tell) const;

  // The last used ones first.
  std::vector<CachedPlan> list() const;
  // A process runs it now, or compiles it.
  bool in_use(const CachedPlan& plan) const;
  // False where it is in use.
  Result<bool> remove(const CachedPlan& plan) const;
  // Removes plans, and models that were fetched from hubs, until no more than this is left, or all
  // that is left is in use: what was not used for longest first.
  Result<std::vector<Removed>> keep_below(uint64_t bytes) const;

  // A model that was fetched. False where it is in use.
  Result<bool> remove_model(const PulledModel& model) const;

  const std::string& folder() const { return folder_; }
  std::string models_folder() const;  // of what was fetched, beside it

 private:
  std::string path_of(const std::string& id) const { return folder_ + "/" + id; }
  Result<std::optional<KeptPlan>> use(const CachedPlan& plan, const std::string& quick) const;
  Status make(const CachedPlan& plan, const MakePlan& make, const EntryLock& lock) const;
  CachedPlan apart(CachedPlan plan) const;
  Result<KeptPlan> make_or_wait(const CachedPlan& wanted, const std::string& quick,
                                const MakePlan& make,
                                const std::function<void(const std::string&)>& tell) const;
  void remove_older(const CachedPlan& than) const;

  std::string folder_;
};

}  // namespace ktx::plan_cache
