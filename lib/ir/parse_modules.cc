// Parses the text form that print_modules.cc writes, line by line.
//
// The first word of a line gives its type. Role, attributes, params and decision belong to the
// module line above them, aliases and bases to the class line above. Parents follow from the
// paths. kMaxTextBytes and kMaxSpellingBytes bound work and memory.
#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <map>
#include <unordered_map>

#include "lib/ir/expert_numbers.h"
#include "lib/ir/module_text.h"
#include "lib/support/strings.h"

namespace ktx::ir {
namespace {

constexpr size_t kMaxTextBytes = 512u << 20;
// Aliases and bases are copied into each module of a class; all copies together.
constexpr size_t kMaxSpellingBytes = 512u << 20;

struct Word {
  std::string text;
  bool quoted = false;
};

struct Class {
  std::string name;
  std::vector<std::string> aliases;
  std::vector<std::string> bases;
  size_t bytes = 64;
};

template <class T>
bool read_number(std::string_view text, T& out) {
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, out);
  return result.ec == std::errc() && result.ptr == end;
}

class Parser {
 public:
  explicit Parser(const std::string& file) : file_(file) {}

  Result<ModuleGraph> run(std::string_view text) {
    if (text.size() > kMaxTextBytes) {
      return Error{fmt::format("{}: {} of text, at most {} are read", file_,
                               human_bytes(text.size()), human_bytes(kMaxTextBytes))};
    }
    for (std::string_view line : split(text, '\n')) {
      ++line_;
      KTX_TRY(read_line(line));
    }
    if (!has_header_) return fail(fmt::format("not a module graph: no line '{}'", kTextHeader));
    if (graph_.modules.empty()) return fail("the graph has no modules");
    return std::move(graph_);
  }

 private:
  Error fail(std::string what) const { return Error{fmt::format("{}:{}: {}", file_, line_, what)}; }
  Error unexpected(std::string_view expected) const {
    const std::string found = next_ < words_.size()
                                  ? fmt::format("'{}'", printable(words_[next_].text))
                                  : "the end of the line";
    return fail(fmt::format("found {}, expected {}", found, expected));
  }

  Status read_words(std::string_view line) {
    words_.clear();
    next_ = 0;
    size_t i = 0;
    while (i < line.size()) {
      const char c = line[i];
      if (c == ' ') {
        ++i;
      } else if (c == '[' || c == ']' || c == ',') {
        words_.push_back({std::string(1, c)});
        ++i;
      } else if (c == '"') {
        Word word{"", true};
        ++i;
        while (i < line.size() && line[i] != '"') {
          if (line[i] != '\\') {
            word.text += line[i++];
            continue;
          }
          unsigned value = 0;
          if (i + 3 < line.size() && line[i + 1] == 'x' &&
              std::from_chars(&line[i + 2], &line[i + 2] + 2, value, 16).ptr == &line[i + 2] + 2) {
            word.text += static_cast<char>(value);
            i += 4;
          } else if (i + 1 < line.size() && (line[i + 1] == '"' || line[i + 1] == '\\')) {
            word.text += line[i + 1];
            i += 2;
          } else {
            return fail("bad escape in a quoted word; known are \\\" \\\\ and \\xNN");
          }
        }
        if (i == line.size()) return fail("quoted word has no end");
        ++i;
        words_.push_back(std::move(word));
      } else {
        const size_t end = std::min(line.find_first_of(" [],\"", i), line.size());
        words_.push_back({std::string(line.substr(i, end - i))});
        i = end;
      }
    }
    return {};
  }

  bool at_end() const { return next_ == words_.size(); }
  bool take_mark(std::string_view mark) {
    if (at_end() || words_[next_].quoted || words_[next_].text != mark) return false;
    ++next_;
    return true;
  }
  Status expect_mark(std::string_view mark) {
    if (!take_mark(mark)) return unexpected(fmt::format("'{}'", mark));
    return {};
  }
  Result<std::string> take_word(std::string_view what) {
    if (at_end() || (!words_[next_].quoted &&
                     std::string_view("[],").find(words_[next_].text) != std::string_view::npos)) {
      return unexpected(what);
    }
    return std::move(words_[next_++].text);
  }

  Status take_value(std::string_view what, bool& out) {
    out = take_mark("true");
    if (!out) KTX_TRY(expect_mark("false"));
    (void)what;
    return {};
  }
  Status take_value(std::string_view what, std::string& out) {
    out = KTX_TRY(take_word(what));
    return {};
  }
  template <class T>
  Status take_value(std::string_view what, std::vector<T>& out) {
    out.clear();
    KTX_TRY(expect_mark("["));
    if (take_mark("]")) return {};
    do {
      KTX_TRY(take_value(what, out.emplace_back()));
    } while (take_mark(","));
    return expect_mark("]");
  }
  template <class T>
  Status take_value(std::string_view what, T& out) {
    if (at_end() || words_[next_].quoted || !read_number(words_[next_].text, out)) {
      return unexpected(fmt::format("a number for '{}'", what));
    }
    ++next_;
    return {};
  }

  Status read_line(std::string_view line) {
    if (line.starts_with('#')) return {};
    KTX_TRY(read_words(line));
    if (words_.empty()) return {};
    if (!has_header_) {
      if (trim(line) != kTextHeader) {
        return fail(fmt::format("not a module graph: the first line must be '{}'", kTextHeader));
      }
      has_header_ = true;
      return {};
    }
    KTX_TRY(read_item());
    if (!at_end()) return unexpected("the end of the line");
    return {};
  }

  Status read_item() {
    if (take_mark("model")) return read_facts();
    if (take_mark("class")) return read_class();
    if (take_mark("extra")) return read_extra();
    if (take_mark("expert_part")) return read_part();
    if (take_mark("module")) return read_module();
    if (class_ != nullptr) {
      if (take_mark("aliases")) return read_names(class_->aliases);
      if (take_mark("bases")) return read_names(class_->bases);
    }
    if (in_module_) {
      if (take_mark("role")) return read_role();
      if (take_mark("param")) return read_param();
      if (take_mark("decision")) return read_decision();
      Module& module = graph_.modules.back();
      for (size_t i = 1; i < std::size(kInfoNames); ++i) {
        if (!take_mark(kInfoNames[i])) continue;
        if (module.info.index() != 0) return fail("second attribute line of one module");
        return read_info(module.info, i, std::make_index_sequence<std::size(kInfoNames)>());
      }
    }
    return unexpected(in_module_
                          ? "a module or one of its lines (role, param, decision, attributes)"
                          : "model, class, extra, expert_part or module");
  }

  Status read_facts() {
    ModelFacts& facts = graph_.facts;
    KTX_TRY(expect_mark("family"));
    facts.family = KTX_TRY(take_word("a family"));
    KTX_TRY(expect_mark("architecture"));
    facts.architecture = KTX_TRY(take_word("an architecture"));
    KTX_TRY(expect_mark("name"));
    facts.name = KTX_TRY(take_word("a name"));
    KTX_TRY(expect_mark("vocab"));
    KTX_TRY(take_value("vocab", facts.vocab));
    KTX_TRY(expect_mark("hidden"));
    KTX_TRY(take_value("hidden", facts.hidden));
    KTX_TRY(expect_mark("layers"));
    KTX_TRY(take_value("layers", facts.layers));
    KTX_TRY(expect_mark("context"));
    KTX_TRY(take_value("context", facts.context_length));
    Status status;
    rare_facts([&](const char* name, auto field) {
      if (status.ok() && take_mark(name)) status = take_value(name, facts.*field);
    });
    return status;
  }

  // NAME or NAME #2, as one key.
  Result<std::string> take_class_key() {
    std::string key = KTX_TRY(take_word("a class"));
    if (!at_end() && !words_[next_].quoted && words_[next_].text.starts_with('#')) {
      key += '\n' + words_[next_++].text;  // a line break is in no class name's text
    }
    return key;
  }

  Status read_class() {
    std::string key = KTX_TRY(take_class_key());
    auto [row, is_new] = classes_.try_emplace(key);
    if (!is_new) return fail("class is defined twice");
    class_ = &row->second;
    class_->name = key.substr(0, key.rfind("\n#"));
    in_module_ = false;
    return {};
  }

  Status read_names(std::vector<std::string>& out) {
    while (!at_end()) {
      out.push_back(KTX_TRY(take_word("a class name")));
      class_->bytes += out.back().size() + sizeof(std::string);
    }
    return {};
  }

  Status use_class(std::string& class_name, std::vector<std::string>& aliases,
                   std::vector<std::string>& bases) {
    const std::string key = KTX_TRY(take_class_key());
    const auto row = classes_.find(key);
    if (row == classes_.end()) {
      return fail(fmt::format("class '{}' is not defined above", printable(key)));
    }
    spelling_bytes_ += row->second.bytes;
    if (spelling_bytes_ > kMaxSpellingBytes) return fail("too many modules with long alias lists");
    class_name = row->second.name;
    aliases = row->second.aliases;
    bases = row->second.bases;
    return {};
  }

  Status read_extra() {
    ModuleGraph::ExtraTensor extra;
    extra.tensor = KTX_TRY(take_word("a tensor name"));
    extra.reason = KTX_TRY(take_word("a reason"));
    graph_.extra_tensors.push_back(std::move(extra));
    return {};
  }

  Result<Role> take_role() {
    KTX_TRY(expect_mark("role"));
    return take_role_name();
  }
  Result<Role> take_role_name() {
    const std::string text = KTX_TRY(take_word("a role"));
    const std::optional<Role> role = role_from_name(text);
    if (!role) return fail(fmt::format("unknown role '{}'", printable(text)));
    return *role;
  }

  Status read_part() {
    ExpertPart part;
    part.suffix = KTX_TRY(take_word("a name"));
    KTX_TRY(expect_mark(":"));
    KTX_TRY(use_class(part.class_name, part.aliases, part.bases));
    part.role = KTX_TRY(take_role());
    if (take_mark("param")) part.param = KTX_TRY(take_word("a parameter"));
    graph_.expert_parts.push_back(std::move(part));
    return {};
  }

  Status read_module() {
    Module module;
    module.path = KTX_TRY(take_word("a path"));
    KTX_TRY(expect_mark(":"));
    KTX_TRY(use_class(module.class_name, module.aliases, module.bases));
    if (graph_.modules.size() >= std::numeric_limits<ModuleId>::max())
      return fail("too many modules");
    const auto id = static_cast<ModuleId>(graph_.modules.size());
    if (!ids_.try_emplace(module.path, id).second) {
      return fail(fmt::format("second module '{}'", printable(module.path)));
    }
    if (id == 0) {
      if (!module.path.empty()) return fail("the first module must be the root, \"\"");
    } else {
      const size_t dot = module.path.rfind('.');
      const auto parent = ids_.find(dot == std::string::npos ? "" : module.path.substr(0, dot));
      if (parent == ids_.end()) {
        return fail(fmt::format("parent of '{}' is not above it", printable(module.path)));
      }
      module.parent = parent->second;
      graph_.modules[module.parent].children.push_back(id);
    }
    graph_.modules.push_back(std::move(module));
    class_ = nullptr;
    in_module_ = true;
    return {};
  }

  Status read_role() {
    Module& module = graph_.modules.back();
    module.role = KTX_TRY(take_role_name());
    if (take_mark("layer")) KTX_TRY(take_value("layer", module.layer));
    return {};
  }

  template <size_t... I>
  Status read_info(ModuleInfo& info, size_t index, std::index_sequence<I...>) {
    Status status;
    (void)((I == index && (status = read_info(info.emplace<I>()), true)) || ...);
    return status;
  }
  template <class T>
  Status read_info(T& info) {
    Status status;
    fields(info, [&](const char* name, auto& field) {
      if (!status.ok()) return;
      if (take_mark(name)) status = take_value(name, field);
    });
    return status;
  }

  Status read_param() {
    Param param;
    param.name = KTX_TRY(take_word("a parameter name"));
    const std::string type = KTX_TRY(take_word("an element type"));
    const std::optional<DType> dtype = dtype_from_name(type);
    if (!dtype) return fail(fmt::format("unknown element type '{}'", printable(type)));
    param.dtype = *dtype;
    param.rows = 1;
    KTX_TRY(expect_mark("["));
    KTX_TRY(take_value("columns", param.cols));
    if (take_mark(",")) KTX_TRY(take_value("rows", param.rows));
    if (take_mark(",")) KTX_TRY(take_value("matrices", param.matrices));
    KTX_TRY(expect_mark("]"));
    KTX_TRY(expect_mark("="));
    if (!at_end()) {
      do {
        TensorSlice slice;
        slice.tensor = KTX_TRY(take_word("a tensor name"));
        if (take_mark("[")) {
          KTX_TRY(take_value("first row", slice.first_row));
          KTX_TRY(expect_mark(","));
          KTX_TRY(take_value("row count", slice.row_count));
          KTX_TRY(expect_mark("]"));
        }
        param.sources.push_back(std::move(slice));
      } while (take_mark("+"));
    }
    graph_.modules.back().params.push_back(std::move(param));
    return {};
  }

  Status read_decision() {
    Decision& decision = graph_.modules.back().decision;
    while (!at_end()) {
      if (take_mark("device")) {
        decision.device = KTX_TRY(take_word("a device"));
      } else if (take_mark("op")) {
        decision.op = KTX_TRY(take_word("an op"));
      } else if (take_mark("layout")) {
        decision.layout = KTX_TRY(take_word("a layout"));
      } else if (take_mark("rule")) {
        KTX_TRY(take_value("rule", decision.rule));
      } else if (take_mark("lossy")) {
        decision.lossy_allowed = true;
      } else if (take_mark("experts")) {
        KTX_TRY(read_expert_set(decision.expert_sets.emplace_back()));
      } else if (take_mark("deferred")) {
        KTX_TRY(take_value("deferred", decision.deferred));
      } else if (take_mark("team")) {
        const std::string team = KTX_TRY(take_word("the devices of a team"));
        for (const std::string_view device : split(team, '+')) decision.team.emplace_back(device);
      } else {
        return unexpected("device, op, layout, rule, lossy, experts, deferred or team");
      }
    }
    return {};
  }

  // Of `experts cuda:0 "0..31,40" use 0.3`, `experts cuda:0 any 33` or `experts cuda:0 any 33
  // guests`, what follows the first word.
  Status read_expert_set(ExpertSet& set) {
    set.device = KTX_TRY(take_word("a device"));
    if (take_mark("any")) {
      KTX_TRY(take_value("number of experts", set.count));
    } else {
      const auto experts = parse_expert_numbers(KTX_TRY(take_word("numbers of experts")));
      if (!experts) return unexpected("numbers of experts, such as 0..31,40");
      set.experts = *experts;
      set.count = static_cast<int32_t>(experts->size());
    }
    if (take_mark("use")) KTX_TRY(take_value("use", set.use));
    set.guests = take_mark("guests");
    return {};
  }

  const std::string& file_;
  int line_ = 0;
  bool has_header_ = false;
  std::vector<Word> words_;
  size_t next_ = 0;
  std::map<std::string, Class> classes_;
  Class* class_ = nullptr;  // being defined
  bool in_module_ = false;
  size_t spelling_bytes_ = 0;
  std::unordered_map<std::string, ModuleId> ids_;
  ModuleGraph graph_;
};

}  // namespace

Result<ModuleGraph> parse(std::string_view text, const std::string& file) {
  return Parser(file).run(text);
}

}  // namespace ktx::ir
