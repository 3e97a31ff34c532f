// A pass: one function, one file, one row in passes.def. It reads and changes the
// compilation's state; it has no header of its own.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/input/hf_config.h"
#include "lib/ir/module_graph.h"
#include "lib/passes/stream_trial.h"
#include "lib/passes/team_trial.h"
#include "lib/plan/expert_profile.h"
#include "lib/plan/memory.h"
#include "lib/program/launch_choice.h"
#include "lib/program/program.h"
#include "lib/rules/match.h"
#include "lib/rules/rule.h"
#include "lib/support/diag.h"
#include "lib/support/result.h"
#include "lib/target/target.h"

namespace ktx::passes {

enum class Fact {
#define KTX_FACT(id, name) id,
#include "lib/passes/facts.def"
#undef KTX_FACT
};
std::string_view name(Fact fact);  // "built", "matched", ...

// Options of the checking passes.
struct CheckOptions {
  // No plan will be made: devices stay as placed, also those that cannot be
  // executed here or now.
  bool only = false;
  // `target` was described by the user, so that what it lacks is a finding.
  bool target_given = false;
  // A plan is made for that target: its GPUs' generations and all memory are checked too.
  bool for_target = false;
  bool has_gguf = true;  // false: tensor types are assumed
  rules::Dialect dialect = rules::Dialect::Ktx;
  plan::RunShape shape;          // context, batch and so on that memory is checked for
  bool largest_ctx = false;      // choose-context sets shape.ctx
  int64_t kv_budget_bytes = 0;   // at most so much for keys and values; 0: as needed
  bool strict_numerics = false;  // no answer may depend on what ran before it
  double disk_gbps = 0;          // at which experts are read from disk; 0: as the target says
};

// A hidden state that is kept for each token of a pass, for a drafter: of the stream, what this
// layer reads (the number of layers: what the last one gives), or what the final norm gives.
using Tap = int32_t;
inline constexpr Tap kBehindFinalNorm = -1;
std::string tap_value(size_t tap);  // the name of its value: "hidden0"

struct CompileState {
  ir::ModuleGraph modules;
  program::Program program;
  rules::RuleSet rules;
  rules::MatchResult matched;  // of the rules above, from match-rules on
  bool wrong_model = false;    // a rule file is for another model, says check-rules
  target::Target target;
  CheckOptions check;
  // In fast precision quantised products take BF16 activations instead of int8 ones where
  // their weights allow it.
  bool bf16_inputs = false;
  program::Preferences prefer;  // among launches of GPUs
  std::vector<Tap> taps;        // what its drafter reads, in this order
  // How many parts a row of the tower beside it has: the first takes the place of a token, the
  // others are added behind the first layers. 0: there is no tower.
  int32_t image_parts = 0;
  // The slots of streamed experts; none: the largest that fit.
  std::optional<plan::StreamSlots> stream_slots;
  std::vector<StreamTrial> stream_trials;  // the best for each slots; empty: there was no choice
  std::vector<TeamTrial> team_trials;      // what GPUs would divide; empty: there was no choice
  // How often experts are chosen; null: all alike. Its layers fit the model's.
  std::shared_ptr<const plan::ExpertProfile> expert_profile;
  const input::HfConfig* config = nullptr;  // may be null: its keys are then not checked
  DiagSink* diags = nullptr;                // not null
  Fact fact = Fact::Built;
};

struct Pass {
  std::string_view name;
  std::string_view sentence;
  Fact needs;
  Fact gives;
  Status (*run)(CompileState&);
};

std::span<const Pass> all_passes();
const Pass* find_pass(std::string_view name);  // null when there is none

struct PassOptions {
  // Run these passes alone, in this order; absent: all, in their default order.
  std::optional<std::vector<std::string>> only;
  std::string stop_after;                // a pass name, or "" for all
  std::vector<std::string> print_after;  // pass names, or "all"
  bool verify_each = true;
  // Called with the pass's name and the graph's text for each of print_after.
  std::function<void(std::string_view pass, const std::string& text)> print;
  // Called after each pass with its wall time.
  std::function<void(std::string_view pass, double seconds)> timing;
};

// Whether the passes that the options name exist.
Status check_pass_names(const PassOptions& options);

// Runs the passes in order. Stops with an error when a pass fails, when the
// diagnostics hold errors, when a pass needs a fact that the state does not have, or when a
// verifier finds a pass's output broken. A state that begins with a step graph may have an
// empty module graph.
Status run_passes(CompileState& state, const PassOptions& options);

// The text of the level that the state has reached: steps once lowered.
std::string print_state(const CompileState& state);

}  // namespace ktx::passes
