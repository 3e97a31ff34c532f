// A rule: which modules it matches and what becomes of them.
//
// The language is a superset of KTransformers' rule files (docs/rules.md). A rule
// file is a YAML list of entries, or a map with `version`, `defaults` and `rules`:
//
//   - match:
//       name: "^model\\.layers\\..*\\.mlp\\.experts$"   # regex, searched in the path
//       class: torch.nn.ModuleList                      # class or base class
//     replace:
//       class: ktransformers.operators.experts.KTransformersExperts
//       kwargs: {generate_device: cpu}
//     recursive: false
//
//   - match: {kind: experts, layers: 0..3}              # ours
//     replace: {device: cuda:0}
//
// Safe for untrusted files: class names are looked up, never imported or run.
#pragma once

#include <climits>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/ir/module_graph.h"
#include "lib/rules/device_name.h"
#include "lib/rules/operators.h"
#include "lib/support/diag.h"
#include "lib/support/regex.h"
#include "lib/support/result.h"

namespace ktx::rules {

// Whom a rule file is checked for: ktx, or KTransformers itself.
enum class Dialect { Ktx, KTransformers };

// A text of a rule file and where it stands.
struct Located {
  std::string text;
  SourceLoc loc;
};

// Decoder layers, both ends included.
struct LayerRange {
  int32_t first = 0;
  int32_t last = INT32_MAX;  // INT32_MAX: open, up to the last layer
  SourceLoc loc;
};

struct Match {
  std::optional<Located> name;  // the pattern's text
  std::optional<Regex> name_regex;
  std::optional<Located> class_name;
  std::vector<LayerRange> layers;  // empty: any, also modules outside of layers
  std::optional<Located> kind_text;
  std::optional<ir::Kind> kind;  // one of these two when kind_text is there
  std::optional<ir::Role> role;
};

struct Kwarg {
  const KwargInfo* info = nullptr;  // not null
  Located key;
  Located value;         // of a scalar; "" for null
  bool is_null = false;  // YAML null, or the text None that KTransformers reads as none
  int64_t number = 0;    // of Int, and 0/1 of Bool
  std::vector<std::pair<int32_t, Located>> devices;  // of DeviceMap
};

// Some experts of a stack, on another device than the others: `experts: {cuda:0: 32}`.
struct ExpertsOn {
  Located device;  // cpu, cuda:N, or auto: that of the layer's attention
  SourceLoc loc;   // of what follows
  int32_t count = 0;
  std::vector<int32_t> experts = {};  // rising; empty: any `count` of them
  // They may be others in each pass, in `count` slots (ir::ExpertSet); 0: as many as fit.
  bool guests = false;
};

// What is divided of modules on several GPUs together: heads of attention and of layers with
// states, columns of feed-forward parts and of the head, whole experts.
enum class Split { Heads, Columns, Experts };
inline constexpr const char* kSplitNames[] = {"heads", "columns", "experts"};

struct Replace {
  SourceLoc loc;
  std::optional<Located> class_name;  // as written
  // Null: `default`, no class, or a class that is not known (an error was reported).
  const OperatorInfo* operator_info = nullptr;
  bool has_kwargs = false;
  std::vector<Kwarg> kwargs;

  // What these amount to, `defaults` of the file included.
  std::optional<Located> device;  // generate_device, or our `device`
  std::optional<DeviceSpec> place;
  std::vector<Split> splits;  // empty: whatever can be divided
  std::optional<Located> op;  // generate_op, or our `op`
  const OpInfo* op_info = nullptr;
  std::optional<Located> layout;
  bool layout_of_defaults = false;  // wanted where it can be had
  std::optional<Located> lossy;
  bool lossy_allowed = false;
  std::vector<ExpertsOn> experts;
  // How many of a token's experts on the CPU are added a layer later.
  std::optional<Located> deferred;
  int32_t deferred_experts = 0;

  const Kwarg* kwarg(std::string_view name) const;  // null when absent
};

struct Rule {
  SourceLoc loc;   // of the entry's first key
  int number = 0;  // in its file, from 1
  int file = 0;    // index in RuleSet::files
  Match match;
  Replace replace;
  bool recursive = true;
  bool optional = false;
  std::optional<Located> id;
  std::optional<Located> note;
};

// What a file says of modules that none of its rules decides.
struct Defaults {
  std::optional<Located> device;
  std::optional<DeviceSpec> place;
  std::optional<Located> layout;
  bool lossy_allowed = false;
};

struct RuleFile {
  std::string path;
  bool names_ktransformers = false;   // some class of it begins with "ktransformers."
  std::optional<SourceLoc> map_form;  // of a file that is a map: its first key
  Defaults defaults;
  int rules = 0;
};

// All rules in the order in which a module is matched with them: those of a later file come
// before those of an earlier one, which they refine; within a file, file order.
struct RuleSet {
  std::vector<RuleFile> files;  // as given
  std::vector<Rule> rules;

  bool empty() const { return rules.empty(); }
  const RuleFile& file_of(const Rule& rule) const { return files[static_cast<size_t>(rule.file)]; }
  // "rules.yaml:12", and the rule's id when it has one.
  std::string label(const Rule& rule) const;
};

// Adds a file; its mistakes go to `diags`, and what cannot be used of it is left
// out. The Status fails only when the file cannot be read at all.
Status add_rules(RuleSet& set, const std::string& path, DiagSink& diags);
// The same from text; `path` names it in messages.
void add_rules_text(RuleSet& set, const std::string& text, const std::string& path,
                    DiagSink& diags);

inline constexpr int kMaxRules = 2000;  // of all files
inline constexpr size_t kMaxPatternBytes = 2000;

}  // namespace ktx::rules
