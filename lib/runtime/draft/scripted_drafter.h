// Draft tokens from answers that are known in advance, right with a given probability: what
// `bench --draft-accept` measures with, and what tests call a good and a bad drafter.
//
//   ScriptedDrafter drafter({.acceptance = 0.7, .vocab_size = vocab, .cost_of = &small});
//   drafter.set_answers({answer});        // whole texts: a text that is the beginning of one goes
//   on so
//
// `cost_of` (may be null) drafts too and takes its time; its draft tokens are thrown away.
#pragma once

#include <memory>
#include <vector>

#include "lib/runtime/draft/drafter.h"
#include "lib/runtime/sampling/random.h"

namespace ktx::runtime {

struct ScriptedDraft {
  double acceptance = 1;  // of each draft token behind right ones
  int64_t vocab_size = 1;
  uint64_t seed = 1;
  Drafter* cost_of = nullptr;  // outlives it
};

class ScriptedDrafter : public Drafter {
 public:
  explicit ScriptedDrafter(const ScriptedDraft& options)
      : options_(options), random_(options.seed) {}
  void set_answers(std::vector<std::vector<int32_t>> answers) { answers_ = std::move(answers); }

  std::string_view name() const override { return "script"; }
  std::unique_ptr<DraftText> begin(const std::string& owner,
                                   const SamplingOptions& sampling) override;
  bool reads_hidden() const override {
    return options_.cost_of && options_.cost_of->reads_hidden();
  }
  Status take_hidden(DraftText& text, std::span<const int32_t> tokens, int64_t begin,
                     std::span<const float> rows) override;
  int64_t behind(DraftText& text, std::span<const int32_t> tokens) override;
  Status read(std::span<DraftItem> items, int64_t tokens) override;
  Status draft(std::span<DraftItem> items) override;
  double first_seconds() const override {
    return options_.cost_of ? options_.cost_of->first_seconds() : 0;
  }

 private:
  std::vector<int32_t> script(std::span<const int32_t> tokens, int64_t most);

  const ScriptedDraft options_;
  Random random_;
  std::vector<std::vector<int32_t>> answers_;
};

}  // namespace ktx::runtime
