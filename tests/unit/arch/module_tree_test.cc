// The built trees against ../shared/reference/module-trees.json, which says for
// every family which modules exist under which condition. The conditions are
// evaluated here, from the raw config.json, by an evaluator of their own.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "lib/arch/build_graph.h"
#include "tests/support/paths.h"
#include "tests/support/test_models.h"

namespace ktx::arch {
namespace {

using nlohmann::json;

const std::string kTrees = shared_dir() + "/reference/module-trees.json";

json read_json(const std::string& path) {
  return json::parse(std::ifstream(path));
}

// Python's precedence; `and` and `or` stop early by not looking at values.
class Expression {
 public:
  Expression(std::string_view text, const json& config, int64_t layer)
      : text_(text), config_(config), layer_(layer) {}

  bool run() {
    const bool value = truth(parse_or());
    EXPECT_TRUE(next().empty()) << text_;
    return value;
  }

 private:
  std::string_view next() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    size_t end = at_;
    const auto is_name = [&](char c) { return std::isalnum(c) || c == '_' || c == '.'; };
    if (end < text_.size() && text_[end] == '"') {
      end = text_.find('"', end + 1) + 1;
    } else if (end < text_.size() && is_name(text_[end])) {
      while (end < text_.size() && is_name(text_[end])) ++end;
    } else if (end < text_.size()) {
      end += text_.substr(end, 2) == "==" || text_.substr(end, 2) == "!=" ||
                     text_.substr(end, 2) == ">=" || text_.substr(end, 2) == "<="
                 ? 2
                 : 1;
    }
    return text_.substr(at_, end - at_);
  }
  bool take(std::string_view word) {
    const std::string_view found = next();
    if (found != word) return false;
    at_ += found.size();
    return true;
  }
  static bool truth(const json& value) {
    if (value.is_null()) return false;
    if (value.is_boolean()) return value.get<bool>();
    if (value.is_number()) return value.get<double>() != 0;
    return !value.empty();
  }

  json parse_or() {
    json value = parse_and();
    while (take("or")) {
      const json right = parse_and();
      value = truth(value) || truth(right);
    }
    return value;
  }
  json parse_and() {
    json value = parse_not();
    while (take("and")) {
      const json right = parse_not();
      value = truth(value) && truth(right);
    }
    return value;
  }
  json parse_not() {
    if (take("not")) return !truth(parse_not());
    return parse_comparison();
  }
  json parse_comparison() {
    const json left = parse_sum();
    if (take("is")) {
      const bool negated = take("not");
      EXPECT_TRUE(take("null"));
      return left.is_null() != negated;
    }
    const bool negated = take("not");
    if (take("in")) {
      const json right = parse_sum();
      const bool found = std::find(right.begin(), right.end(), left) != right.end();
      return found != negated;
    }
    for (const char* op : {"==", "!=", ">=", "<", ">"}) {
      if (!take(op)) continue;
      const json right = parse_sum();
      const std::string_view o = op;
      if (o == "==") return left == right;
      if (o == "!=") return left != right;
      if (!left.is_number() || !right.is_number()) return false;  // behind a guard
      return o == ">=" ? left >= right : o == "<" ? left < right : left > right;
    }
    return left;
  }
  json parse_sum() {
    json value = parse_product();
    while (take("+")) value = value.get<int64_t>() + parse_product().get<int64_t>();
    return value;
  }
  json parse_product() {
    json value = parse_atom();
    while (take("%")) {
      const json right = parse_atom();
      value = value.get<int64_t>() % right.get<int64_t>();
    }
    return value;
  }
  json parse_atom() {
    if (take("(")) {
      json value = parse_or();
      EXPECT_TRUE(take(")"));
      return value;
    }
    const std::string word(next());
    at_ += word.size();
    if (word.starts_with('"')) return word.substr(1, word.size() - 2);
    if (!word.empty() && std::isdigit(word[0])) return std::stoll(word);
    if (word == "layer") return layer_;
    json value = config_;
    for (size_t from = 0; from <= word.size();) {
      const size_t dot = std::min(word.find('.', from), word.size());
      const std::string key = word.substr(from, dot - from);
      value = value.is_object() && value.contains(key) ? value[key] : json();
      from = dot + 1;
    }
    return value;
  }

  std::string_view text_;
  const json& config_;
  int64_t layer_;
  size_t at_ = 0;
};

// As module-trees.md 2.1 says.
json normalised(json config, const json& family) {
  if (config.contains("rope_parameters")) config["rope_scaling"] = config["rope_parameters"];
  if (config.contains("rope_scaling") && config["rope_scaling"].is_object()) {
    json& rope = config["rope_scaling"];
    if (rope.contains("rope_type")) rope["type"] = rope["rope_type"];
    if (rope["type"] == "default") config["rope_scaling"] = nullptr;
  }
  const std::string expert_key = family["counts"].value("expert", "");
  if (expert_key == "num_experts" && config.contains("num_local_experts")) {
    config["num_experts"] = config["num_local_experts"];
  }
  for (const auto& [key, value] : family["defaults"].items()) {
    if (!config.contains(key)) config[key] = value;
  }
  return config;
}

std::string with(std::string text, const std::string& mark, int64_t number) {
  for (size_t at; (at = text.find(mark)) != std::string::npos;) {
    text.replace(at, mark.size(), std::to_string(number));
  }
  return text;
}

struct Expected {
  std::string path, class_name;
  std::vector<std::string> aliases, bases;
  std::map<std::string, std::string> params;  // "blk.0.x.weight[3]": expert 3
};

std::vector<Expected> expected_modules(const json& family, const json& config) {
  std::vector<Expected> out;
  const auto holds = [&](const json& row, int64_t layer) {
    return row["when"] == "always" ||
           Expression(row["when"].get<std::string>(), config, layer).run();
  };
  const auto add = [&](const json& row, int64_t layer, int64_t expert) {
    Expected one;
    const auto fill = [&](const std::string& text) {
      return with(with(text, "{layer}", layer), "{expert}", expert);
    };
    one.path = fill(row["path"]);
    one.class_name = row["class"];
    one.aliases = row["aliases"].get<std::vector<std::string>>();
    one.bases = row["bases"].get<std::vector<std::string>>();
    for (const auto& [name, tensors] : row["params"].items()) one.params[name] = fill(tensors);
    if (row.contains("stacked")) {
      for (const auto& [name, tensor] : row["stacked"].items()) one.params[name] = fill(tensor);
    }
    out.push_back(std::move(one));
  };
  const std::vector<json> rows = family["modules"];
  const auto is_layer = [](const json& row) {
    return row["path"].get<std::string>().find("{layer}") != std::string::npos;
  };
  const auto is_expert = [](const json& row) {
    return row["path"].get<std::string>().find("{expert}") != std::string::npos;
  };
  const int64_t layers = config[family["counts"]["layer"].get<std::string>()];
  for (size_t i = 0; i < rows.size();) {
    if (!is_layer(rows[i])) {
      if (holds(rows[i], 0)) add(rows[i], 0, 0);
      ++i;
      continue;
    }
    size_t end = i;
    while (end < rows.size() && is_layer(rows[end])) ++end;
    for (int64_t layer = 0; layer < layers; ++layer) {
      for (size_t j = i; j < end;) {
        if (!is_expert(rows[j])) {
          if (holds(rows[j], layer)) add(rows[j], layer, 0);
          ++j;
          continue;
        }
        size_t last = j;
        while (last < end && is_expert(rows[last])) ++last;
        const int64_t experts =
            config[family["counts"]["expert"].get<std::string>()].is_null()
                ? 0
                : config[family["counts"]["expert"].get<std::string>()].get<int64_t>();
        std::vector<const json*> parts;
        for (size_t k = j; k < last; ++k) {
          if (holds(rows[k], layer)) parts.push_back(&rows[k]);
        }
        for (int64_t expert = 0; expert < experts; ++expert) {
          for (const json* row : parts) add(*row, layer, expert);
        }
        j = last;
      }
    }
    i = end;
  }
  return out;
}

// One alternative of a json parameter is what the graph has.
bool tensors_match(const std::string& name, const std::string& json_text,
                   const ir::Module& module) {
  static const std::map<std::string, std::string> kOurNames = {
      {"e_score_correction_bias", "correction_bias"}};
  std::string found;
  if (const ir::Param* k_b = module.param("k_b")) {
    found = k_b->sources[0].tensor + " + " + module.param("v_b")->sources[0].tensor;
  } else {
    const auto ours = kOurNames.find(name);
    const ir::Param* param = module.param(ours == kOurNames.end() ? name : ours->second);
    if (param == nullptr) return false;
    found = param->sources[0].tensor;
  }
  for (size_t from = 0; from <= json_text.size();) {
    const size_t bar = std::min(json_text.find(" | ", from), json_text.size());
    if (json_text.substr(from, bar - from) == found) return true;
    from = bar + 3;
  }
  return false;
}

void compare(const ir::ModuleGraph& graph, const std::vector<Expected>& expected) {
  size_t next = 0;
  const auto same = [&](const std::string& path, const std::string& class_name,
                        const std::vector<std::string>& aliases,
                        const std::vector<std::string>& bases) {
    if (next >= expected.size()) return false;
    const Expected& e = expected[next];
    EXPECT_EQ(path, e.path);
    EXPECT_EQ(class_name, e.class_name) << path;
    EXPECT_EQ(aliases, e.aliases) << path;
    EXPECT_EQ(bases, e.bases) << path;
    return path == e.path;
  };
  for (const ir::Module& module : graph.modules) {
    ASSERT_TRUE(same(module.path, module.class_name, module.aliases, module.bases));
    const Expected& e = expected[next++];
    const bool split = module.param("k_b") != nullptr;
    ASSERT_EQ(module.params.size() - split, e.params.size()) << module.path;
    for (const auto& [name, tensors] : e.params) {
      ASSERT_TRUE(tensors_match(name, tensors, module)) << module.path << " " << name;
    }
    if (module.role != ir::Role::Experts) continue;
    bool ok = true;
    ir::for_each_expert_module(graph, module, [&](const ir::ExpertModule& m) {
      ok = same(m.path, m.part->class_name, m.part->aliases, m.part->bases);
      if (!ok) return false;
      const Expected& part = expected[next++];
      EXPECT_EQ(part.params.size(), m.part->param.empty() ? 0u : 1u) << m.path;
      if (!m.part->param.empty()) {
        const std::string tensor =
            fmt::format("{}[{}]", module.param(m.part->param)->sources[0].tensor, m.expert);
        EXPECT_TRUE(part.params.at("weight").starts_with(tensor)) << m.path;
      }
      return true;
    });
    ASSERT_TRUE(ok);
  }
  ASSERT_EQ(next, expected.size());
}

void check_config(const json& raw, const std::string& label, const input::HfConfig& config,
                  const input::GgufFile* gguf) {
  SCOPED_TRACE(label);
  const json trees = read_json(kTrees);
  const std::string name = raw["architectures"][0];
  ASSERT_TRUE(trees["families"].contains(name));
  const json& family = trees["families"][name];
  DiagSink diags;
  const Result<ir::ModuleGraph> graph = build_graph(config, gguf, diags);
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  EXPECT_EQ(diags.errors(), 0);
  ir::verify(*graph, diags);
  for (const Diagnostic& diag : diags.all()) ADD_FAILURE() << diag.message;
  compare(*graph, expected_modules(family, normalised(raw, family)));
}

void check_text(const json& raw, const std::string& label) {
  const Result<input::HfConfig> config = input::HfConfig::parse(raw.dump(), label);
  ASSERT_TRUE(config.ok()) << config.error().message;
  check_config(raw, label, *config, nullptr);
}

TEST(ModuleTree, EqualsReferenceForAllRealConfigs) {
  if (!std::filesystem::exists(kTrees)) GTEST_SKIP() << "no " << kTrees;
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(shared_dir() + "/configs")) {
    check_text(read_json(entry.path()), entry.path().filename());
    ++count;
  }
  EXPECT_EQ(count, 12);
}

TEST(ModuleTree, EqualsReferenceForAllTestModels) {
  if (!std::filesystem::exists(kTrees)) GTEST_SKIP() << "no " << kTrees;
  for (const char* name : ktx::testing::kTestModels) {
    const std::string dir = ktx::testing::test_model_dir(name);
    if (dir.empty()) GTEST_SKIP() << "no model " << name;
    check_text(read_json(dir + "/config.json"), name);
  }
}

// The numbers of module-trees.md 6.2, counted there by constructing the models.
TEST(ModuleTree, CountsOfRealModels) {
  const std::pair<const char*, int64_t> kCounts[] = {{"DeepSeek-V2", 48403},
                                                     {"DeepSeek-V2-Lite", 8809},
                                                     {"DeepSeek-V3", 75457},
                                                     {"Kimi-K2-Instruct", 116423},
                                                     {"Moonlight-16B-A3B", 8809},
                                                     {"Mixtral-8x7B-Instruct-v0.1", 1670},
                                                     {"Qwen3-235B-A22B", 61483},
                                                     {"Qwen3-30B-A3B", 31399},
                                                     {"Qwen2-57B-A14B-Instruct", 9470},
                                                     {"Llama-3.1-8B-Instruct", 455}};
  for (const auto& [name, count] : kCounts) {
    const std::string path = fmt::format("{}/configs/{}.json", shared_dir(), name);
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path;
    const auto config = input::HfConfig::read(path);
    DiagSink diags;
    const auto graph = build_graph(*config, diags);
    ASSERT_TRUE(graph.ok()) << graph.error().message;
    auto found = static_cast<int64_t>(graph->modules.size());
    for (const ir::Module& m : graph->modules) found += ir::expert_module_count(*graph, m);
    EXPECT_EQ(found, count) << name;
  }
}

// Keys that move modules about, on small copies of real configs.
TEST(ModuleTree, EqualsReferenceForVariants) {
  if (!std::filesystem::exists(kTrees)) GTEST_SKIP() << "no " << kTrees;
  struct Variant {
    const char* config;
    const char* changes;
  };
  const Variant kVariants[] = {
      {"Llama-3.1-8B-Instruct", R"({"attention_bias": true, "mlp_bias": true})"},
      {"Llama-3.1-8B-Instruct", R"({"rope_scaling": null, "tie_word_embeddings": true})"},
      {"Llama-3.1-8B-Instruct", R"({"rope_scaling": {"type": "linear", "factor": 4.0}})"},
      {"Qwen3-8B", R"({"attention_bias": true})"},
      {"Qwen3-30B-A3B", R"({"mlp_only_layers": [0, 3], "decoder_sparse_step": 2})"},
      {"Qwen3-30B-A3B", R"({"num_experts": 0})"},
      {"Qwen3-30B-A3B", R"({"attention_bias": true})"},
      {"Qwen2-57B-A14B-Instruct", R"({"mlp_only_layers": [1], "decoder_sparse_step": 3})"},
      {"DeepSeek-V2-Lite", R"({"rope_scaling": null})"},
      {"DeepSeek-V2-Lite", R"({"rope_scaling": {"type": "linear", "factor": 2}})"},
      {"DeepSeek-V2", R"({"attention_bias": true, "moe_layer_freq": 2})"},
      {"DeepSeek-V2", R"({"n_routed_experts": null, "n_shared_experts": null})"},
      {"DeepSeek-V2", R"({"n_shared_experts": null, "first_k_dense_replace": 4})"},
      {"DeepSeek-V3", R"({"q_lora_rank": null})"},
      {"DeepSeek-V3", R"({"topk_method": "greedy", "n_group": 1, "topk_group": 1})"},
      {"DeepSeek-V3", R"({"attention_bias": true, "first_k_dense_replace": 0})"},
      {"Moonlight-16B-A3B", R"({"rope_scaling": {"type": "yarn", "factor": 4.0}})"},
  };
  for (const Variant& variant : kVariants) {
    json raw = read_json(fmt::format("{}/configs/{}.json", shared_dir(), variant.config));
    raw.update(json::parse(variant.changes));
    raw["num_hidden_layers"] = 7;
    check_text(raw, fmt::format("{} {}", variant.config, variant.changes));
  }
}

}  // namespace
}  // namespace ktx::arch
