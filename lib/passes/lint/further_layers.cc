#include "lib/passes/lint/further_layers.h"

#include <fmt/format.h>

#include "lib/rules/pattern_index.h"

namespace ktx::passes {

void FurtherLayers::list_paths() {
  constexpr int kMaxLayers = 256;
  const int32_t layers = state_.modules.facts.layers;
  const std::string last = fmt::format("model.layers.{}", layers - 1);
  std::vector<std::string_view> patterns;
  for (const rules::Rule& rule : state_.rules.rules) {
    patterns.push_back(rule.match.name_regex ? std::string_view(rule.match.name->text) : "");
  }
  rules::PatternIndex index(patterns);
  for (const ir::Module& module : state_.modules.modules) {
    if (module.layer != layers - 1 || !module.path.starts_with(last)) continue;
    for (int layer = layers; layer < kMaxLayers; ++layer) {
      paths_.push_back({&module, layer,
                        fmt::format("model.layers.{}{}", layer, module.path.substr(last.size()))});
      index.count(paths_.back().path);
    }
  }
  index.choose([](uint32_t) { return false; });
  of_rule_.resize(patterns.size());
  may_match_all_.resize(patterns.size());
  for (const uint32_t rule : index.always()) may_match_all_[rule] = true;
  for (size_t i = 0; i < paths_.size(); ++i) {
    const auto rules = index.candidates(paths_[i].path);
    if (!rules) {
      may_match_all_.assign(patterns.size(), true);
      return;
    }
    for (const uint32_t rule : *rules) of_rule_[rule].push_back(i);
  }
}

int FurtherLayers::match(const rules::Rule& rule) {
  if (!rule.match.name_regex) return -1;
  if (of_rule_.empty()) list_paths();
  const auto index = static_cast<size_t>(&rule - state_.rules.rules.data());
  const auto fits = [&](const Path& further) {
    if (rule.match.class_name && !ir::has_class(*further.module, rule.match.class_name->text)) {
      return false;
    }
    return budget_.test(index, *rule.match.name_regex, further.path) == Regex::Outcome::Match;
  };
  if (may_match_all_[index]) {
    for (const Path& further : paths_) {
      if (fits(further)) return further.layer;
    }
    return -1;
  }
  for (const size_t i : of_rule_[index]) {
    if (fits(paths_[i])) return paths_[i].layer;
  }
  return -1;
}

}  // namespace ktx::passes
