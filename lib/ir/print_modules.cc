// Prints the text form of a module graph. Spellings of a class (aliases, bases) are printed
// once per distinct set: the second set of torch.nn's Linear, say of a Qwen router, is
// "torch.nn.modules.linear.Linear #2".
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <tuple>

#include "lib/formats/shape_text.h"
#include "lib/ir/expert_numbers.h"
#include "lib/ir/module_text.h"

namespace ktx::ir {
namespace {

bool is_bare(unsigned char c) {
  return std::isalnum(c) || c == '_' || c == '.' || c == '-' || c == '/' || c == ':';
}

template <class T>
std::string print_value(const std::vector<T>& values) {
  return fmt::format("[{}]", fmt::join(values, ", "));
}
template <class T>
std::string print_value(const T& value) {
  return fmt::format("{}", value);
}

class Classes {
 public:
  // The class's name with its number, defined on first use.
  std::string use(const std::string& class_name, const std::vector<std::string>& aliases,
                  const std::vector<std::string>& bases) {
    auto [row, is_new] = numbers_.try_emplace({class_name, aliases, bases}, 0);
    if (is_new) row->second = ++last_[class_name];
    std::string word = quote_word(class_name);
    if (row->second > 1) word += fmt::format(" #{}", row->second);
    if (is_new) {
      definitions_ += fmt::format("class {}\n", word);
      define("aliases", aliases);
      define("bases", bases);
    }
    return word;
  }
  const std::string& definitions() const { return definitions_; }

 private:
  void define(std::string_view what, const std::vector<std::string>& names) {
    if (names.empty()) return;
    definitions_ += fmt::format("  {}", what);
    for (const std::string& name : names) definitions_ += fmt::format(" {}", quote_word(name));
    definitions_ += "\n";
  }

  std::map<std::tuple<std::string, std::vector<std::string>, std::vector<std::string>>, int>
      numbers_;
  std::map<std::string, int> last_;
  std::string definitions_;
};

std::string print_info(const ModuleInfo& info) {
  if (std::holds_alternative<std::monostate>(info)) return "";
  std::string out = fmt::format("  {}", kInfoNames[info.index()]);
  std::visit(
      [&](auto copy) {
        decltype(copy) usual;
        std::vector<std::string> defaults;
        fields(usual, [&](const char*, auto& field) { defaults.push_back(print_value(field)); });
        size_t i = 0;
        fields(copy, [&](const char* name, auto& field) {
          const std::string text = print_value(field);
          if (text != defaults[i++]) out += fmt::format(" {} {}", name, text);
        });
      },
      info);
  return out + "\n";
}

std::string print_param(const Param& param) {
  std::string out = fmt::format("  param {} {} {} =", quote_word(param.name), name(param.dtype),
                                shape_text(param.cols, param.rows, param.matrices));
  for (size_t i = 0; i < param.sources.size(); ++i) {
    const TensorSlice& slice = param.sources[i];
    out += fmt::format("{} {}", i == 0 ? "" : " +", quote_word(slice.tensor));
    if (slice.first_row != 0 || slice.row_count != -1) {
      out += fmt::format(" [{}, {}]", slice.first_row, slice.row_count);
    }
  }
  return out + "\n";
}

std::string print_decision(const Decision& decision) {
  std::string out;
  if (!decision.device.empty()) out += fmt::format(" device {}", quote_word(decision.device));
  if (!decision.op.empty()) out += fmt::format(" op {}", quote_word(decision.op));
  if (!decision.layout.empty()) out += fmt::format(" layout {}", quote_word(decision.layout));
  if (decision.rule != -1) out += fmt::format(" rule {}", decision.rule);
  if (decision.lossy_allowed) out += " lossy";
  for (const ExpertSet& set : decision.expert_sets) {
    out += fmt::format(" experts {} {}", quote_word(set.device),
                       set.experts.empty() ? fmt::format("any {}", set.count)
                                           : quote_word(expert_numbers_text(set.experts)));
    if (set.use != 0) out += fmt::format(" use {}", set.use);
    if (set.guests) out += " guests";
  }
  if (decision.deferred != 0) out += fmt::format(" deferred {}", decision.deferred);
  if (!decision.team.empty()) {
    out += fmt::format(" team {}", quote_word(fmt::format("{}", fmt::join(decision.team, "+"))));
  }
  return out.empty() ? "" : fmt::format("  decision{}\n", out);
}

std::string print_facts(const ModelFacts& facts) {
  std::string out =
      fmt::format("model family {} architecture {} name {} vocab {} hidden {} layers {} context {}",
                  quote_word(facts.family), quote_word(facts.architecture), quote_word(facts.name),
                  facts.vocab, facts.hidden, facts.layers, facts.context_length);
  const ModelFacts usual;
  rare_facts([&](const char* name, auto field) {
    if (facts.*field != usual.*field) out += fmt::format(" {} {}", name, facts.*field);
  });
  return out + "\n";
}

}  // namespace

std::string quote_word(std::string_view word) {
  if (!word.empty() && word != ":" && std::all_of(word.begin(), word.end(), is_bare)) {
    return std::string(word);
  }
  std::string out = "\"";
  for (unsigned char c : word) {
    if (c == '"' || c == '\\') {
      out += fmt::format("\\{}", static_cast<char>(c));
    } else if (c < 0x20 || c == 0x7F) {
      out += fmt::format("\\x{:02x}", c);
    } else {
      out += static_cast<char>(c);
    }
  }
  return out + "\"";
}

std::string print(const ModuleGraph& graph) {
  Classes classes;
  std::string body;
  for (const ModuleGraph::ExtraTensor& extra : graph.extra_tensors) {
    body += fmt::format("extra {} {}\n", quote_word(extra.tensor), quote_word(extra.reason));
  }
  for (const ExpertPart& part : graph.expert_parts) {
    body += fmt::format("expert_part {} : {} role {}", quote_word(part.suffix),
                        classes.use(part.class_name, part.aliases, part.bases), name(part.role));
    if (!part.param.empty()) body += fmt::format(" param {}", quote_word(part.param));
    body += "\n";
  }
  for (const Module& module : graph.modules) {
    body += fmt::format("module {} : {}\n  role {}", quote_word(module.path),
                        classes.use(module.class_name, module.aliases, module.bases),
                        name(module.role));
    if (module.layer != -1) body += fmt::format(" layer {}", module.layer);
    body += fmt::format("\n{}", print_info(module.info));
    for (const Param& param : module.params) body += print_param(param);
    body += print_decision(module.decision);
  }
  return fmt::format("{}\n{}{}{}", kTextHeader, print_facts(graph.facts), classes.definitions(),
                     body);
}

}  // namespace ktx::ir
