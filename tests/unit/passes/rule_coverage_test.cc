// The nineteen real rule files: the modules that each rule wins, and the findings. The tables
// hold counts, lines and verdicts; the files themselves stay where they are.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <iostream>
#include <unordered_map>

#include "lib/rules/families.h"
#include "lib/rules/match.h"
#include "lib/support/thread_pool.h"
#include "tests/support/paths.h"
#include "tests/unit/passes/rule_files.h"

namespace ktx::passes {
namespace {

const std::string kHere = source_dir() + "/tests/unit/passes/";

// "1:60 4-5:59" as wins by rule.
std::vector<int64_t> parse_wins(const std::string& text, size_t rules) {
  std::vector<int64_t> wins(rules, -1);
  for (std::string_view part : split(text, ' ')) {
    const auto colon = part.find(':');
    const std::string range(part.substr(0, colon));
    const int64_t count = std::stoll(std::string(part.substr(colon + 1)));
    const size_t dash = range.find('-');
    const size_t first = std::stoul(range);
    const size_t last = dash == std::string::npos ? first : std::stoul(range.substr(dash + 1));
    for (size_t rule = first; rule <= last && rule <= rules; ++rule) wins[rule - 1] = count;
  }
  return wins;
}

TEST(RuleCoverage, EveryRuleOfTheRealFilesWinsTheCountsOfTheTable) {
  if (!shared_is_here()) GTEST_SKIP() << "no " + shared_dir();
  const auto rows = read_rows(kHere + "coverage_pairs.txt");
  ASSERT_EQ(rows.size(), 22u);
  for (const auto& row : rows) {
    SCOPED_TRACE(row[0] + " x " + row[1]);
    CheckedFile file;
    build(file, shared_config(row[1]));
    ASSERT_TRUE(rules::add_rules(file.state.rules, shared_rules(row[0]), file.diags));
    const rules::MatchResult result = rules::match(file.state.rules, file.state.modules);
    EXPECT_EQ(fmt::format("{} {} {}", result.modules, result.visited, result.without_rule), row[2]);
    const auto wins = parse_wins(row[3], result.outcomes.size());
    for (size_t i = 0; i < wins.size(); ++i) {
      EXPECT_EQ(result.outcomes[i].won, wins[i]) << "rule " << i + 1;
    }
  }
}

TEST(RuleCoverage, RulesThatWinNothingAreFoundWithTheirSeverity) {
  if (!shared_is_here()) GTEST_SKIP() << "no " + shared_dir();
  for (const auto& row : read_rows(kHere + "wrong_files.txt")) {
    SCOPED_TRACE(row[0] + " x " + row[1]);
    CheckedFile file;
    build(file, shared_config(row[1]));
    ASSERT_TRUE(rules::add_rules(file.state.rules, shared_rules(row[0]), file.diags));
    walk(file);
    std::vector<std::string> found, expected;
    for (const Diagnostic& diag : file.diags.all()) {
      const size_t number = diag.message.rfind("[rule ");
      if (number == std::string::npos) continue;
      const int rule = std::stoi(diag.message.substr(number + 6));
      const char* severity = diag.severity == Severity::Error     ? "error"
                             : diag.severity == Severity::Warning ? "warning"
                                                                  : "note";
      const bool any_line = row[2].find(fmt::format("{}:0:", rule)) != std::string::npos;
      found.push_back(fmt::format("{}:{}:{}", rule, any_line ? 0 : diag.loc.line, severity));
    }
    for (std::string_view part : split(row[2], ' ')) {
      if (part != "-") expected.emplace_back(part);
    }
    EXPECT_EQ(found, expected);
  }
}

TEST(RuleCoverage, ForTheirOwnModelTheRealFilesHaveNoOtherError) {
  if (!shared_is_here()) GTEST_SKIP() << "no " + shared_dir();
  for (const auto& row : read_rows(kHere + "coverage_pairs.txt")) {
    SCOPED_TRACE(row[0] + " x " + row[1]);
    CheckedFile file;
    build(file, shared_config(row[1]));
    ASSERT_TRUE(rules::add_rules(file.state.rules, shared_rules(row[0]), file.diags));
    walk(file);
    const bool npu = row[0].find("npu") != std::string::npos;
    int refused = 0;
    for (const Diagnostic& diag : file.diags.all()) {
      if (diag.severity != Severity::Error) continue;
      if (diag.code == "D001") ++refused;
      EXPECT_TRUE(npu && diag.code == "D001") << render_diagnostic(file.diags, diag, false);
    }
    EXPECT_EQ(refused > 0, npu);
  }
}

// Against every config of another architecture the first error says so.
TEST(RuleCoverage, FilesForAnotherArchitectureAreRejectedInTheFirstLine) {
  if (!shared_is_here()) GTEST_SKIP() << "no " + shared_dir();
  std::map<std::string, std::string> family_of_file;
  for (const auto& row : read_rows(kHere + "coverage_pairs.txt")) {
    CheckedFile file;
    build(file, shared_config(row[1]));
    family_of_file[row[0]] = file.state.modules.facts.family;
  }
  for (const auto& entry : std::filesystem::directory_iterator(shared_dir() + "/configs")) {
    CheckedFile model;
    build(model, entry.path().string());
    for (const auto& [name, family] : family_of_file) {
      if (model.state.modules.facts.family == family) continue;
      CheckedFile file;
      file.state = model.state;
      file.state.config = &model.config;
      file.state.diags = &file.diags;
      SCOPED_TRACE(name + " x " + entry.path().filename().string());
      ASSERT_TRUE(rules::add_rules(file.state.rules, shared_rules(name), file.diags));
      walk(file, "check-rules");
      file.diags.sort_by_severity();
      ASSERT_FALSE(file.diags.all().empty());
      const Diagnostic& first = file.diags.all().front();
      EXPECT_EQ(first.code, "R002");
      EXPECT_NE(first.message.find("is written for " + family), std::string::npos) << first.message;
      EXPECT_EQ(first.severity, Severity::Error);
    }
  }
}

// The bits were made by Python's re.search (make_python_matches.py): one hash per
// rule over all module paths of all configs, those of single experts included.
TEST(RuleCoverage, PatternsMatchWhatPythonMatches) {
  if (!shared_is_here()) GTEST_SKIP() << "no " + shared_dir();
  const auto rows = read_rows(kHere + "python_matches.txt");
  ASSERT_GT(rows.size(), 200u);
  std::vector<std::string> paths;
  std::vector<std::string> configs;
  for (const auto& entry : std::filesystem::directory_iterator(shared_dir() + "/configs")) {
    configs.push_back(entry.path().string());
  }
  std::sort(configs.begin(), configs.end());
  for (const std::string& config : configs) {
    CheckedFile file;
    build(file, config);
    for (const ir::Module& module : file.state.modules.modules) {
      paths.push_back(module.path);
      if (module.role != ir::Role::Experts) continue;
      ir::for_each_expert_module(file.state.modules, module, [&](const ir::ExpertModule& part) {
        paths.push_back(part.path);
        return true;
      });
    }
  }
  // The same path stands in many configs and the same pattern in many files.
  std::unordered_map<std::string_view, size_t> number_of_path;
  std::vector<std::string_view> unique;
  for (const std::string& path : paths) {
    if (number_of_path.emplace(path, unique.size()).second) unique.push_back(path);
  }
  std::vector<size_t> numbers;
  for (const std::string& path : paths) numbers.push_back(number_of_path.at(path));

  std::map<std::string, rules::RuleSet> files;
  std::map<std::string, std::vector<bool>> matched;  // by pattern; by unique path
  std::vector<std::pair<const Regex*, std::vector<bool>*>> todo;
  for (const auto& row : rows) {
    auto [file, added] = files.try_emplace(row[0]);
    DiagSink diags;
    if (added) {
      ASSERT_TRUE(rules::add_rules(file->second, shared_rules(row[0]), diags));
    }
    const rules::Rule& rule = file->second.rules.at(std::stoul(row[1]) - 1);
    ASSERT_TRUE(rule.match.name_regex);
    auto [bits, first_time] = matched.try_emplace(rule.match.name->text, unique.size());
    if (first_time) todo.emplace_back(&*rule.match.name_regex, &bits->second);
  }
  ThreadPool pool(4);
  pool.for_each(static_cast<int64_t>(todo.size()), [&](int64_t i, int) {
    RegexTester tester;
    auto& [regex, bits] = todo[static_cast<size_t>(i)];
    for (size_t k = 0; k < unique.size(); ++k) {
      (*bits)[k] = tester.test(*regex, unique[k], 100'000) == Regex::Outcome::Match;
    }
  });
  for (const auto& row : rows) {
    const rules::Rule& rule = files.at(row[0]).rules.at(std::stoul(row[1]) - 1);
    const std::vector<bool>& bits = matched.at(rule.match.name->text);
    uint64_t hash = 0xcbf29ce484222325;
    int64_t count = 0;
    for (size_t i = 0; i < paths.size(); ++i) {
      if (!bits[numbers[i]]) continue;
      ++count;
      for (int byte = 0; byte < 4; ++byte) {
        hash = (hash ^ ((i >> (8 * byte)) & 0xFF)) * 0x100000001b3;
      }
    }
    EXPECT_EQ(fmt::format("{} {:016x}", count, hash), row[2]) << row[0] << " rule " << row[1];
  }
  std::cout << fmt::format("{} patterns on {} paths\n", todo.size(), unique.size());
}

TEST(RuleCoverage, SixtyRulesForEightGpusTakeLessThanAThirdOfASecond) {
  if (!shared_is_here()) GTEST_SKIP() << "no " + shared_dir();
  const std::clock_t start = std::clock();
  CheckedFile file;
  build(file, shared_config("DeepSeek-V3"));
  ASSERT_TRUE(
      rules::add_rules(file.state.rules, shared_rules("DeepSeek-V3-Chat-multi-gpu-8"), file.diags));
  walk(file);
  const double took = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_EQ(file.diags.errors(), 0);
  RecordProperty("seconds", fmt::format("{:.3f}", took));
  // Ten times the promise, of processor time: a sanitizer may be at work.
  EXPECT_LT(took, 3.0);
}

// A rule for nearly everything: single layers, single experts, alternations, classes.
std::string many_rules(int count) {
  std::string yaml;
  for (int i = 0; i < count; ++i) {
    const char* const kParts[] = {"up_proj", "down_proj", "(gate|up)_proj", "act_fn", "none"};
    const std::string part = kParts[i % 5];
    const int a = i * 7919 % 64;
    const int b = i * 104729 % 400;
    std::string name;
    switch (i % 7) {
      case 0:
        name = fmt::format("^model\\.layers\\.{}\\.mlp\\.experts\\.{}\\..*$", a, b);
        break;
      case 1:
        name = fmt::format("\\.({}|{})\\.mlp\\.experts\\.\\d+\\.{}$", a, a + 9, part);
        break;
      case 2:
        name = fmt::format("experts\\..*{}\\.{}$", b % 10, part);
        break;
      case 3:
        name = fmt::format("^model\\.layers\\.(?!{}\\.)[1-4]?[{}5]\\.self_attn", a, i % 10);
        break;
      case 4:
        name = fmt::format("layers\\.{}\\.(mlp\\.(gate|shared)|input)", a);
        break;
      case 5:
        name = fmt::format("(experts\\.{}|{}\\.none)$", b, a);
        break;
      default:
        name = fmt::format("proj_{}$", i);
        break;
    }
    yaml += fmt::format("- match:\n    name: '{}'\n", name);
    if (i % 11 == 0) yaml += "    class: torch.nn.Linear\n";
    if (i % 13 == 0) yaml += fmt::format("    layers: {}..{}\n", a, a + 20);
    yaml += "  replace: {device: cpu}\n";
    if (i % 97 == 96) yaml += "  recursive: false\n";
  }
  return yaml;
}

void read_many_rules(CheckedFile& file, int count) {
  const std::string path =
      ::testing::TempDir() + fmt::format("many_rules_{}_{}.yaml", count, getpid());
  std::ofstream(path) << many_rules(count);
  (void)rules::add_rules(file.state.rules, path, file.diags);
  std::filesystem::remove(path);
  ASSERT_EQ(file.state.rules.rules.size(), static_cast<size_t>(count));
}

// What the index of patterns leaves out does not match: as if each rule met each module.
TEST(RuleCoverage, ManyRulesDecideWhatTheyDecideOneByOne) {
  CheckedFile file;
  build(file, source_dir() + "/tests/configs/Moonlight-16B-A3B.json");
  read_many_rules(file, 150);
  const rules::MatchResult result = rules::match(file.state.rules, file.state.modules);
  ASSERT_TRUE(result.too_slow.empty());
  std::vector<int64_t> won(150);
  const auto& modules = file.state.modules.modules;
  const auto& all_rules = file.state.rules.rules;
  const auto stops = [&](int rule) {
    return rule >= 0 && !all_rules[static_cast<size_t>(rule)].recursive;
  };
  int64_t without_rule = 0;
  for (size_t id = 0; id < modules.size(); ++id) {
    const int above =
        id == 0 ? rules::kNoRule : result.rule_of_module[static_cast<size_t>(modules[id].parent)];
    int expected = rules::kNoRule;
    for (size_t i = 0; i < all_rules.size() && expected < 0; ++i) {
      if (rules::matches(all_rules[i], modules[id])) expected = static_cast<int>(i);
    }
    if (above == rules::kNotVisited || stops(above)) expected = rules::kNotVisited;
    EXPECT_EQ(result.rule_of_module[id], expected) << modules[id].path;
    if (expected >= 0) ++won[static_cast<size_t>(expected)];
    without_rule += expected == rules::kNoRule ? 1 : 0;
    if (modules[id].role != ir::Role::Experts || expected == rules::kNotVisited || stops(expected))
      continue;
    ir::for_each_expert_module(file.state.modules, modules[id], [&](const ir::ExpertModule& part) {
      ir::Module module;
      module.path = part.path;
      module.class_name = part.part->class_name;
      module.aliases = part.part->aliases;
      module.bases = part.part->bases;
      module.role = part.part->role;
      module.layer = modules[id].layer;
      for (size_t i = 0; i < all_rules.size(); ++i) {
        if (!rules::matches(all_rules[i], module)) continue;
        ++won[i];
        return true;
      }
      ++without_rule;
      return true;
    });
  }
  for (size_t i = 0; i < won.size(); ++i) {
    EXPECT_EQ(result.outcomes[i].won, won[i])
        << "rule " << i + 1 << ": " << all_rules[i].match.name->text;
  }
  EXPECT_EQ(result.without_rule, without_rule);
}

TEST(RuleCoverage, TwoThousandRulesOnAHundredThousandModulesTakeUnderASecond) {
  CheckedFile file;
  build(file, source_dir() + "/tests/configs/Kimi-K2-Instruct.json");
  read_many_rules(file, 2000);
  const std::clock_t start = std::clock();
  walk(file, "check-rules");
  const double took = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_EQ(file.state.matched.modules, 116'423);
  RecordProperty("seconds", fmt::format("{:.3f}", took));
  // Ten times the promise, of processor time: this may run under a sanitizer. One by one
  // these rules take half a minute.
  EXPECT_LT(took, 10.0);
}

}  // namespace
}  // namespace ktx::passes
