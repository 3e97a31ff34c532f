// The text form of the module graph: printed graphs parse back, and malformed text is refused
// with its line.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "lib/ir/module_graph.h"

namespace ktx::ir {
namespace {

Module module(std::string path, std::string class_name, Role role, ModuleId parent, int32_t layer,
              ModuleInfo info = {}) {
  Module m;
  m.path = std::move(path);
  m.class_name = std::move(class_name);
  m.role = role;
  m.parent = parent;
  m.layer = layer;
  m.info = std::move(info);
  return m;
}

// One of everything that the text form can say.
ModuleGraph sample() {
  ModuleGraph g;
  g.facts = {"SomeForCausalLM", "some arch", "a \"name\"\\\n\x01 ü", 32, 256, 1, 4096, 0, 1, 1, ""};
  g.modules.push_back(module("", "x.Some", Role::Root, -1, -1));
  g.modules.push_back(module("layers", "x.List", Role::LayerList, 0, -1));
  g.modules.push_back(module("layers.0", "x.Layer", Role::Layer, 1, 0));
  g.modules.push_back(
      module("layers.0.rot", "x.Rotary", Role::Rotary, 2, 0,
             RotaryInfo{6, true, 0.1F, {1.0F, 1e-30F, std::numeric_limits<float>::max()}}));
  g.modules.push_back(module("layers.0.q", "x.Linear", Role::QProj, 2, 0, LinearInfo{256, 128}));
  g.modules.push_back(module("layers.0.gate", "x.Linear", Role::Router, 2, 0, RouterInfo{}));
  g.modules.push_back(module("layers.0.experts", "x.List", Role::Experts, 2, 0,
                             ExpertsInfo{2, 1, 256, 64, {2, 7}}));
  g.modules[0].children = {1};
  g.modules[1].children = {2};
  g.modules[2].children = {3, 4, 5, 6};
  g.modules[4].aliases = {"Linear", "other.Linear"};
  g.modules[5].aliases = {"Linear", "TopKRouter"};
  g.modules[5].bases = {"x.Base"};
  auto& attrs = std::get<RouterInfo>(g.modules[5].info).attrs;
  attrs.experts = 2;
  attrs.top_k = 1;
  attrs.scale = 2.827F;
  g.modules[4].params.push_back(
      {"weight", {{"blk.0.qkv.weight", 128, 128}}, DType::Q4_K, 128, 256, 1});
  g.modules[4].params.push_back({"bias", {{"odd name,[=]"}}, DType::F32, 1, 128, 1});
  g.modules[4].decision = {"cuda:0", "marlin", "rows", 3, true};
  g.modules[6].decision = {"cpu", "", "", -1, false, {{"cuda:0", {1}, 1, 0.75F}}};
  g.modules[5].params.push_back({"weight", {{"r"}}, DType::F32, 2, 256, 1});
  g.modules[6].params.push_back({"gate", {{"e.0"}, {"e.1"}}, DType::F16, 64, 256, 2});
  g.modules[6].params.push_back({"up", {{"u"}}, DType::F16, 64, 256, 2});
  g.modules[6].params.push_back({"down", {{"d"}}, DType::Q8_0, 256, 64, 2});
  g.expert_parts.push_back({"", "x.Mlp", {"Mlp"}, {}, Role::Expert, ""});
  g.expert_parts.push_back(
      {"w1", "x.Linear", {"Linear", "other.Linear"}, {}, Role::GateProj, "gate"});
  g.extra_tensors.push_back({"blk.1.nextn", "multi-token prediction head"});
  return g;
}

std::string verify_messages(const ModuleGraph& graph) {
  DiagSink sink;
  verify(graph, sink);
  std::string out;
  for (const Diagnostic& diag : sink.all()) out += diag.message + "\n";
  return out;
}

std::string parse_error(std::string_view text) {
  const auto graph = parse(text, "t.ktxir");
  return graph.ok() ? "" : graph.error().message;
}

TEST(ModuleText, SetsOfExpertsAreOnesThatTheStackHas) {
  const auto refusal = [](std::vector<ExpertSet> sets) {
    ModuleGraph graph = sample();
    graph.modules[6].decision.expert_sets = std::move(sets);
    return verify_messages(graph);
  };
  EXPECT_EQ(refusal({{"cuda:0", {}, 1, 0}}), "");
  EXPECT_NE(refusal({{"cuda:0", {}, 2, 0}}).find("2 of 2 experts are in sets"), std::string::npos);
  EXPECT_NE(refusal({{"cuda:0", {2}, 1, 0}}).find("expert 2 of 2"), std::string::npos);
  EXPECT_NE(refusal({{"cuda:0", {0}, 1, 2}}).find("use is 2"), std::string::npos);
  EXPECT_NE(refusal({{"", {0}, 1, 0}}).find("on no device"), std::string::npos);
  ModuleGraph graph = sample();
  graph.modules[4].decision.expert_sets = {{"cuda:0", {0}, 1, 0}};
  EXPECT_NE(verify_messages(graph).find("a set of experts, but no experts"), std::string::npos);
}

TEST(ModuleText, RoundTripsExactly) {
  const ModuleGraph graph = sample();
  EXPECT_EQ(verify_messages(graph), "");
  const std::string text = print(graph);
  const auto again = parse(text, "t.ktxir");
  ASSERT_TRUE(again.ok()) << again.error().message << "\n" << text;
  EXPECT_EQ(print(*again), text);
  EXPECT_EQ(verify_messages(*again), "");
  EXPECT_EQ(again->facts.name, graph.facts.name);
  ASSERT_EQ(again->modules.size(), graph.modules.size());
  for (size_t i = 0; i < graph.modules.size(); ++i) {
    const Module& a = graph.modules[i];
    const Module& b = again->modules[i];
    EXPECT_EQ(a.path, b.path);
    EXPECT_EQ(a.class_name, b.class_name);
    EXPECT_EQ(a.aliases, b.aliases);
    EXPECT_EQ(a.bases, b.bases);
    EXPECT_EQ(a.parent, b.parent);
    EXPECT_EQ(a.children, b.children);
    EXPECT_EQ(a.params.size(), b.params.size());
  }
  EXPECT_EQ(std::get<RotaryInfo>(again->modules[3].info).inv_freq,
            std::get<RotaryInfo>(graph.modules[3].info).inv_freq);
  EXPECT_EQ(again->modules[4].params[0].sources[0].first_row, 128);
  EXPECT_EQ(again->modules[4].params[1].sources[0].tensor, "odd name,[=]");
  EXPECT_EQ(again->modules[4].decision.rule, 3);
  EXPECT_TRUE(again->modules[4].decision.lossy_allowed);
  EXPECT_EQ(again->expert_parts[1].param, "gate");
}

TEST(ModuleText, SaysWhatItSays) {
  const std::string text = print(sample());
  EXPECT_NE(text.find("module layers.0.q : x.Linear\n"
                      "  role q_proj layer 0\n"
                      "  linear in 256 out 128\n"
                      "  param weight Q4_K [256, 128] = blk.0.qkv.weight [128, 128]\n"
                      "  param bias F32 [128] = \"odd name,[=]\"\n"
                      "  decision device cuda:0 op marlin layout rows rule 3 lossy\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("module layers.0.gate : x.Linear #2\n"), std::string::npos) << text;
}

TEST(ModuleText, ErrorsNameTheLine) {
  EXPECT_EQ(parse_error("step-ir 1\n"),
            "t.ktxir:1: not a module graph: the first line must be 'module-ir 1'");
  EXPECT_EQ(parse_error(""), "t.ktxir:1: not a module graph: no line 'module-ir 1'");
  EXPECT_EQ(parse_error("module-ir 1\n"), "t.ktxir:2: the graph has no modules");
  EXPECT_EQ(parse_error("module-ir 1\nmodule \"\" : C\n"),
            "t.ktxir:2: class 'C' is not defined above");
  const std::string head = "module-ir 1\nclass C\nmodule \"\" : C\n";
  EXPECT_EQ(parse_error(head + "  role boss\n"), "t.ktxir:4: unknown role 'boss'");
  EXPECT_EQ(parse_error(head + "  linear in x\n"),
            "t.ktxir:4: found 'x', expected a number for 'in'");
  EXPECT_EQ(parse_error(head + "  linear in 1 out 99999999999999999999\n"),
            "t.ktxir:4: found '99999999999999999999', expected a number for 'out'");
  EXPECT_EQ(parse_error(head + "  param weight Q9 [1] = t\n"),
            "t.ktxir:4: unknown element type 'Q9'");
  EXPECT_EQ(parse_error(head + "  param weight F32 [1] = \"t\n"),
            "t.ktxir:4: quoted word has no end");
  EXPECT_EQ(parse_error(head + "module a.b : C\n"), "t.ktxir:4: parent of 'a.b' is not above it");
  EXPECT_EQ(parse_error(head + "module a : C\nmodule a : C\n"), "t.ktxir:5: second module 'a'");
  EXPECT_EQ(parse_error(head + "  rotary rotary_dim 2 interleaved maybe\n"),
            "t.ktxir:4: found 'maybe', expected 'false'");
  EXPECT_EQ(
      parse_error(head + "  decision colour red\n"),
      "t.ktxir:4: found 'colour', expected device, op, layout, rule, lossy, experts, deferred or team");
}

// Cut and changed at every byte: an error or a graph, never a crash.
TEST(ModuleText, SurvivesDamage) {
  const std::string text = print(sample());
  for (size_t i = 0; i < text.size(); ++i) {
    (void)parse_error(std::string_view(text).substr(0, i));
    for (const char c : {'\0', ' ', '"', '\\', '[', '9', '\n', '\xff'}) {
      std::string changed = text;
      changed[i] = c;
      const auto graph = parse(changed, "t.ktxir");
      if (graph.ok()) (void)verify_messages(*graph);
    }
  }
}

TEST(ModuleText, BoundsTheCopiesOfLongAliasLists) {
  std::string text = "module-ir 1\nclass C\n  aliases";
  for (int i = 0; i < 20000; ++i) text += fmt::format(" alias{}", i);
  text += "\nmodule \"\" : C\n";
  for (int i = 0; i < 5000; ++i) text += fmt::format("module m{} : C\n", i);
  EXPECT_NE(parse_error(text).find("too many modules with long alias lists"), std::string::npos);
}

TEST(VerifyModules, NamesEachViolation) {
  ModuleGraph graph = sample();
  graph.modules[4].params[0].rows = 127;
  graph.modules[3].path = "elsewhere";
  std::get<RouterInfo>(graph.modules[5].info).attrs.top_k = 9;
  const std::string text = verify_messages(graph);
  EXPECT_NE(text.find("module 'layers.0.q': parameter weight is [256, 127, 1], its attributes say "
                      "[256, 128, 1]"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("module 'elsewhere': path does not extend that of its parent 'layers.0'"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("routes to 9 of 2 experts"), std::string::npos) << text;
}

TEST(VerifyModules, RefusesBlocksThatDoNotFitRowsAndWrongOrder) {
  ModuleGraph graph = sample();
  graph.modules[4].info = LinearInfo{250, 128};
  graph.modules[4].params[0].cols = 250;
  EXPECT_NE(verify_messages(graph).find("rows of 250 are no whole blocks of Q4_K"),
            std::string::npos);
  graph = sample();
  std::swap(graph.modules[2].children[0], graph.modules[2].children[1]);
  EXPECT_NE(verify_messages(graph).find("not in depth-first order"), std::string::npos);
  graph = sample();
  graph.modules[6].params[0].sources.clear();
  EXPECT_NE(verify_messages(graph).find("parameter gate has no tensor"), std::string::npos);
}

TEST(ExpertModules, AreMadeInRegistrationOrder) {
  const ModuleGraph graph = sample();
  std::vector<std::string> paths;
  for_each_expert_module(graph, graph.modules[6], [&](const ExpertModule& m) {
    paths.push_back(m.path);
    return paths.size() < 3;
  });
  EXPECT_EQ(paths, (std::vector<std::string>{"layers.0.experts.0", "layers.0.experts.0.w1",
                                             "layers.0.experts.1"}));
  EXPECT_EQ(expert_module_count(graph, graph.modules[6]), 4);
}

TEST(Classes, MatchInFullByAnySpelling) {
  const ModuleGraph graph = sample();
  EXPECT_TRUE(has_class(graph.modules[5], "x.Linear"));
  EXPECT_TRUE(has_class(graph.modules[5], "TopKRouter"));
  EXPECT_TRUE(has_class(graph.modules[5], "x.Base"));
  EXPECT_TRUE(has_class(graph.modules[5], "torch.nn.Module"));
  EXPECT_FALSE(has_class(graph.modules[5], "other.Linear"));
  EXPECT_FALSE(has_class(graph.modules[5], "Linea"));
}

TEST(Names, RolesAndKindsRoundTrip) {
  for (int i = 0; i <= static_cast<int>(Role::Head); ++i) {
    const auto role = static_cast<Role>(i);
    EXPECT_EQ(role_from_name(name(role)), role);
    EXPECT_EQ(kind_from_name(name(kind_of(role))), kind_of(role));
  }
  EXPECT_EQ(name(Kind::Linear), "linear");
  EXPECT_EQ(role_from_name("boss"), std::nullopt);
}

}  // namespace
}  // namespace ktx::ir
