// Writes the compiled state to a plan file.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lib/input/model_source.h"
#include "lib/lora/merge.h"
#include "lib/passes/pass.h"
#include "lib/plan/plan_contents.h"
#include "lib/plan/reuse_blobs.h"
#include "lib/support/moved_file.h"
#include "lib/support/result.h"

namespace ktx::passes {

// What the user may set that ends up in the plan.
struct EmitOptions {
  int64_t default_ctx = 0;  // 0: the smaller of 4096 and the model's context
  int64_t max_batch = 1;
  int64_t kv_budget_bytes = 0;         // 0: no limit but memory
  std::string isa;                     // of the machine packed for
  bool carry_unused = true;            // keep tensors that no step reads, for --export-gguf
  std::span<const std::byte> drafter;  // a whole plan that drafts tokens for this one; not copied
  std::span<const std::byte> tower;    // a whole plan that reads images for this one; not copied
  plan::ImageFacts image;              // of a tower, or of that one
  std::vector<int32_t> given_taps;     // of a drafter that reads a model's hidden states: which
  std::vector<int32_t> draft_tokens;   // the model's token of each logit, where they are fewer
  const lora::Merge* merge = nullptr;  // adapters that are added to weights; null: none
  std::vector<std::string> merged;     // those that the source has in its weights already
  std::vector<std::string> options;    // those that change bytes, for provenance
  std::vector<plan::PlanProvenance::Input> inputs;
  std::string tokenizer;  // serialised
  plan::PlanChatTemplate chat_template;
  int64_t bos_id = -1;
  int64_t eos_id = -1;
};

// The plan's tables; emit_plan() packs the weights.
Result<plan::PlanContents> make_contents(const CompileState& state,
                                         const input::ModelSource& source,
                                         const EmitOptions& options);

struct PackWeights {
  int threads = 0;                                   // 0: all cores
  std::function<void(uint64_t, uint64_t)> progress;  // gets bytes done and in all
  const plan::PlanFile* reuse = nullptr;  // has packed weights (reuse_blobs.h); may be null
  const lora::Merge* merge = nullptr;     // that of EmitOptions
  // The source's shards, which are moved into the plan and removed (move_blobs.h); empty: none are.
  std::span<MovedFile> move = {};
  bool move_if_possible = false;  // a model that cannot be moved is copied
};

// The weights that were rounded to another format, or to their own with adapters in them.
struct RoundedWeights {
  std::string name, to;
  bool merged = false, keeps_format = false;
  double relative_rms = 0;  // of the error, to the rms of the weights
  double largest_error = 0;
};
struct PackedWeights {
  std::vector<RoundedWeights> rounded;
  plan::ReusedBlobs reused;
  bool moved = false;
};

// Writes the whole plan to `path`: tables, weights on all cores, rename. A failure of a move leaves
// what the next one needs to go on.
Result<PackedWeights> emit_plan(const std::string& path, plan::PlanContents contents,
                                const input::ModelSource& source, const PackWeights& how);

}  // namespace ktx::passes
