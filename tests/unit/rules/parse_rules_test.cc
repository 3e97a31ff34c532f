#include <gtest/gtest.h>

#include <utility>

#include "lib/rules/rule.h"

namespace ktx::rules {
namespace {

struct Parsed {
  RuleSet rules;
  DiagSink diags;
};

Parsed parse(const std::string& text) {
  Parsed parsed;
  add_rules_text(parsed.rules, text, "rules.yaml", parsed.diags);
  return parsed;
}

std::string first_message(const Parsed& parsed) {
  return parsed.diags.all().empty() ? "" : parsed.diags.all().front().message;
}

TEST(ParseRules, ReadsKTransformersEntries) {
  const Parsed parsed = parse(R"(
- match:
    name: "^model\\.layers\\..*\\.mlp\\.experts$"
    class: torch.nn.ModuleList
  replace:
    class: ktransformers.operators.experts.KTransformersExperts
    kwargs:
      generate_device: "cpu"
      generate_op: "KExpertsCPU"
      prefill_op: "None"
      out_device: "cuda:1"
      backend: AMXInt8
  recursive: False
)");
  EXPECT_EQ(parsed.diags.errors(), 0) << first_message(parsed);
  ASSERT_EQ(parsed.rules.rules.size(), 1u);
  const Rule& rule = parsed.rules.rules[0];
  EXPECT_EQ(rule.loc.line, 2);
  EXPECT_FALSE(rule.recursive);
  EXPECT_EQ(rule.match.name->text, "^model\\.layers\\..*\\.mlp\\.experts$");
  ASSERT_TRUE(rule.replace.operator_info);
  EXPECT_EQ(rule.replace.operator_info->short_name(), "KTransformersExperts");
  EXPECT_EQ(to_string(*rule.replace.place), "cpu");
  EXPECT_EQ(rule.replace.op_info->becomes, "cpu");
  EXPECT_TRUE(rule.replace.kwarg("prefill_op")->is_null);
  EXPECT_TRUE(parsed.rules.files[0].names_ktransformers);
}

TEST(ParseRules, ReadsOurExtensions) {
  const Parsed parsed = parse(R"(
version: 1
defaults: {device: "cuda:0-1", lossy: deny}
rules:
  - id: first
    note: why
    match: {kind: experts, layers: [0..2, 5, 7-8, "20.."]}
    replace: {device: [cuda:0, cuda:2], op: marlin, layout: rows, lossy: allow}
    optional: true
  - match: {kind: head}
    replace: {class: default}
)");
  EXPECT_EQ(parsed.diags.errors(), 0) << first_message(parsed);
  ASSERT_EQ(parsed.rules.rules.size(), 2u);
  const Rule& rule = parsed.rules.rules[0];
  ASSERT_EQ(rule.match.layers.size(), 4u);
  EXPECT_EQ(rule.match.layers[2].last, 8);
  EXPECT_EQ(rule.match.layers[3].last, INT32_MAX);
  EXPECT_EQ(to_string(*rule.replace.place), "cuda:0,2");
  EXPECT_TRUE(rule.replace.lossy_allowed);
  EXPECT_TRUE(rule.optional);
  EXPECT_EQ(to_string(*parsed.rules.rules[1].replace.place), "cuda:0,1");
  EXPECT_EQ(parsed.rules.label(rule), "rules.yaml:5 (first)");
}

TEST(ParseRules, ReadsWhatSeveralGpusDivide) {
  const Parsed parsed = parse(R"(
- match: {kind: attention}
  replace: {devices: [cuda:0, cuda:1], split: heads}
- match: {kind: head}
  replace: {device: split, split: [columns, experts]}
)");
  EXPECT_EQ(parsed.diags.errors(), 0) << first_message(parsed);
  ASSERT_EQ(parsed.rules.rules.size(), 2u);
  EXPECT_EQ(to_string(*parsed.rules.rules[0].replace.place), "cuda:0+1");
  EXPECT_EQ(parsed.rules.rules[0].replace.splits, std::vector<Split>{Split::Heads});
  EXPECT_EQ(parsed.rules.rules[1].replace.splits,
            (std::vector<Split>{Split::Columns, Split::Experts}));
  for (const auto& [wrong, message] : std::vector<std::pair<std::string, std::string>>{
           {"{device: cuda:0, split: heads}",
            "`split` says what several GPUs divide, and the rule names none"},
           {"{device: split, split: head}",
            "`split` is heads, columns or experts, or a list of these; did you mean 'heads'?"},
           {"{devices: [cuda:0]}",
            "`devices` lists two GPUs or more that compute together: [cuda:0, cuda:1]"},
           {"{devices: [cuda:0, cpu]}",
            "a list in `devices` is of GPUs: each of them once, and no other device"},
           {"{device: cpu, devices: [cuda:0, cuda:1]}",
            "`device` and `devices`; write one of them"}}) {
    const Parsed bad = parse("- match: {kind: head}\n  replace: " + wrong + "\n");
    EXPECT_EQ(bad.diags.errors(), 1) << wrong;
    EXPECT_EQ(first_message(bad), message);
  }
}

TEST(ParseRules, LaterFilesComeFirst) {
  RuleSet rules;
  DiagSink diags;
  add_rules_text(rules, "- match: {kind: head}\n  replace: {device: cpu}\n", "a.yaml", diags);
  add_rules_text(rules, "- match: {kind: head}\n  replace: {device: cuda}\n", "b.yaml", diags);
  ASSERT_EQ(rules.rules.size(), 2u);
  EXPECT_EQ(rules.file_of(rules.rules[0]).path, "b.yaml");
}

TEST(ParseRules, PlacesAreExact) {
  const Parsed parsed = parse(
      "- match:\n    name: \"a\\\\.[[:digit:]]\"\n  replace:\n    class: default\n    kwargs:\n"
      "      generate_device: 'gpu'\n");
  ASSERT_EQ(parsed.diags.errors(), 2);
  const SourceLoc pattern = parsed.diags.all()[0].loc;
  EXPECT_EQ(pattern.line, 2);
  EXPECT_EQ(pattern.column, 17);
  EXPECT_EQ(pattern.length, 2);
  const SourceLoc device = parsed.diags.all()[1].loc;
  EXPECT_EQ(device.line, 6);
  EXPECT_EQ(device.column, 24);
  EXPECT_EQ(device.length, 5);
}

// Read as the last layer by some, as ..1 by others.
TEST(ParseRules, ALayerBelowZeroIsNoRange) {
  for (const char* layers : {"-1", "[0, -3]", "5-", "0..-1"}) {
    const Parsed parsed =
        parse(std::string("- match: {layers: ") + layers + "}\n  replace: {device: cpu}\n");
    EXPECT_EQ(parsed.diags.errors(), 1) << layers;
    EXPECT_NE(first_message(parsed).find("is no range of layers"), std::string::npos) << layers;
  }
}

// Nothing of this may crash or take long; most of it is an error.
TEST(ParseRules, SurvivesHostileFiles) {
  const std::vector<std::string> texts = {
      "",
      "\n",
      "null",
      "[]",
      "{}",
      "- ",
      "- - - - -",
      "- match: [",
      "&a [*a, *a]",
      "- &a {match: *a}",
      "a: &a [1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a]\nrules: [*b,*b,*b,*b]",
      std::string(5000, '['),
      std::string(5000, '{'),
      "- match: {name: \"" + std::string(3000, '(') + "\"}\n  replace: {}",
      "- match: {name: \"((a{1000}){1000}){1000}\"}\n  replace: {}",
      "- match: {layers: 99999999999999999999}\n  replace: {}",
      "- match: {layers: 5..3}\n  replace: {}",
      "? [a, b]\n: c",
      "- match: {? {a: b} : c}\n  replace: {? [1] : 2}",
      "--- \n- a\n--- \n- b",
      "%YAML 9.9\n---\n- a",
      "- !!python/object:os.system {match: a}",
      std::string("- match: {name: \"\0\"}\n", 22),
      "\xff\xfe\xfa",
      "- match: {name: \"\xff\"}\n  replace: {device: \"\xff\"}\n",
      "- {match: {kind: head}, replace: {kwargs: {transfer_map: {a: b, 1: {}}}}}",
      "- {match: {kind: head}, replace: {kwargs: {generate_device: {}, prefill_op: []}}}",
      "<<: *x",
      "- <<: {match: {kind: head}, replace: {device: cpu}}",
  };
  for (const std::string& text : texts) {
    const Parsed parsed = parse(text);
    EXPECT_FALSE(render_diagnostics(parsed.diags, 0, false, true).empty() &&
                 parsed.rules.rules.empty() && text.size() > 4)
        << text.substr(0, 80);
  }
}

TEST(ParseRules, MergeKeysAndAnchorsWork) {
  const Parsed parsed = parse(
      "- match: {kind: head}\n  replace: &r {device: cpu}\n"
      "- match: {kind: experts}\n  replace: {<<: *r, op: cpu}\n");
  EXPECT_EQ(parsed.diags.errors(), 0) << first_message(parsed);
  ASSERT_EQ(parsed.rules.rules.size(), 2u);
  EXPECT_EQ(to_string(*parsed.rules.rules[1].replace.place), "cpu");
}

}  // namespace
}  // namespace ktx::rules
