// A plan as the model that is compiled: packing is a bijection, so the plan holds its GGUF, and can
// be placed again, for another machine or by other rules, where the GGUF is gone.
//
//   ktx-compile old.ktxplan --target=rtx-4090 -o new.ktxplan
//
// The GGUF is rebuilt in the folder NEW.gguf.work for the time of the compilation (on the disk of
// the new plan, which needs its size twice then), without weights where none are read (--check,
// --emit). The plan stands for its GGUF alone: options, rules, config.json and tokenizer files are
// given again. Plans whose weights were rounded, or that left tensors out, are refused: they do not
// hold it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lib/support/result.h"
#include "tools/ktx-compile/options.h"

namespace ktx::tools {

// Removes its files when it goes.
class PlanInput {
 public:
  // `options.model` is the plan.
  static Result<std::unique_ptr<PlanInput>> rebuild(const Options& options);
  ~PlanInput();
  PlanInput(const PlanInput&) = delete;
  PlanInput& operator=(const PlanInput&) = delete;

  const std::string& gguf() const { return gguf_; }                   // of shards the first
  const std::vector<std::string>& merged() const { return merged_; }  // adapters in its weights

 private:
  PlanInput() = default;
  std::string folder_, gguf_;
  std::vector<std::string> merged_;
};

}  // namespace ktx::tools
