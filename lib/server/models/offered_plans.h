// The plans that a server offers: files that were named, and what folders hold.
//
//   ktx-run serve models/ extra/llama.ktxplan
//     models/qwen3.ktxplan         -> "qwen3"
//     models/org/qwen3:q4.ktxplan  -> "org/qwen3:q4"
//     extra/llama.ktxplan          -> "llama"
//
// Names are made of paths, so that no name of a request becomes a path. Nothing but the plans'
// tables is read, and only when a request needs what a plan holds.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/plan/plan_reader.h"
#include "lib/support/result.h"
#include "lib/text/answers/tool_calls.h"

namespace ktx::server {

// The name of a plan's second template, for requests with tools, as transformers calls it.
inline constexpr const char* kToolUse = "tool_use";
// The form of calls of a plan's templates; where they know none, it is the generic one.
text::ToolCallFormat tool_format_of(const plan::PlanChatTemplate& templates);

// What a plan's tables hold, without its weights.
struct PlanSummary {
  plan::PlanFacts facts;
  std::string quantization;  // "Q4_K_M"
  std::string digest;        // 64 hexadecimal digits that stand for the weights
  uint64_t file_bytes = 0;
  uint64_t weight_bytes = 0;
  std::string chat_template;
  text::ToolCallFormat tool_format = text::ToolCallFormat::None;
};
PlanSummary summarize(const plan::PlanView& plan);

struct OfferedPlan {
  std::string name, path;
  std::string folder;  // of the command line, that it was found in; "": it was named itself
  uint64_t file_bytes = 0;
  int64_t modified = 0;  // seconds since 1970
  bool same_file(const OfferedPlan& other) const {
    return path == other.path && file_bytes == other.file_bytes && modified == other.modified;
  }
};

// In the order of `sources`, those of a folder by name; of two with one name the first. Folders
// are followed three deep, up to 10,000 entries.
std::vector<OfferedPlan> find_plans(std::span<const std::string> sources);

// Whether a plan of a folder may get this name: parts of letters, digits, '.', '-', '_' and ':',
// joined by '/'; none begins with a dot.
bool is_plan_name(const std::string& name);

}  // namespace ktx::server
