// Checks whether a pattern without matches would match a layer beyond the model's last.
#pragma once

#include <string>
#include <vector>

#include "lib/passes/pass.h"
#include "lib/rules/pattern_budget.h"

namespace ktx::passes {

class FurtherLayers {
 public:
  explicit FurtherLayers(const CompileState& state)
      : state_(state), budget_(state.rules.rules.size()) {}

  // A layer number past the last whose modules the rule's pattern would match, or -1.
  int match(const rules::Rule& rule);

 private:
  // What a module of the last layer would be called in another one.
  struct Path {
    const ir::Module* module = nullptr;
    int layer = 0;
    std::string path;
  };
  void list_paths();  // when the first rule asks

  const CompileState& state_;
  rules::PatternBudget budget_;
  std::vector<Path> paths_;
  std::vector<std::vector<size_t>> of_rule_;  // those that a rule may match
  std::vector<bool> may_match_all_;           // by rule, in place of that list
};

}  // namespace ktx::passes
