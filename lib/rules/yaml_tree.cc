// The only file that includes yaml-cpp.
#include "lib/rules/yaml_tree.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "lib/rules/yaml_hints.h"
#include "lib/support/strings.h"

namespace ktx::rules {
namespace {

constexpr size_t kMaxNodes = 200'000;
constexpr size_t kMaxYamlDepth = 64;

// Thrown out of yaml-cpp's callbacks and caught below.
struct TooMuch {
  YAML::Mark mark;
  const char* what;
};

std::vector<std::string_view> lines_of(const std::string& text) {
  return split(text, '\n');
}

// The bytes that the scalar at `column` (from 0) takes in its line; a quoted or
// plain scalar that goes on in the next line is marked up to the line's end.
size_t token_length(std::string_view line, size_t column, size_t value_length) {
  if (column >= line.size()) return 1;
  const char quote = line[column];
  if (quote != '"' && quote != '\'') {
    return std::clamp<size_t>(value_length, 1, line.size() - column);
  }
  for (size_t i = column + 1; i < line.size(); ++i) {
    if (quote == '"' && line[i] == '\\') {
      ++i;
    } else if (line[i] == quote) {
      if (quote == '\'' && i + 1 < line.size() && line[i + 1] == quote) {
        ++i;
        continue;
      }
      return i + 1 - column;
    }
  }
  return line.size() - column;
}

class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(const std::string& text, const std::string& file, DiagSink& diags)
      : lines_(lines_of(text)), file_(file), diags_(diags) {}

  YamlRef root() const { return root_; }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(make(YamlNode::Kind::Null, mark), anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    count(mark);
    const auto found = anchors_.find(anchor);
    // An alias inside of its own anchor would be a cycle.
    if (found == anchors_.end()) throw TooMuch{mark, "an alias that contains itself"};
    place(found->second);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    auto node = make(YamlNode::Kind::Scalar, mark);
    node->text = value;
    node->quoted = tag == "!";
    if (node->loc.line > 0 && static_cast<size_t>(node->loc.line) <= lines_.size()) {
      const std::string_view line = lines_[static_cast<size_t>(node->loc.line) - 1];
      const auto column = static_cast<size_t>(std::max(node->loc.column - 1, 0));
      node->loc.length = static_cast<int>(token_length(line, column, value.size()));
    }
    add(node, anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::List, mark, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::Map, mark, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    std::shared_ptr<YamlNode> node;
    YAML::anchor_t anchor;
    YamlRef key;                  // of a map: the key that waits for its value
    std::vector<YamlRef> merged;  // values of "<<"
  };

  void count(const YAML::Mark& mark) {
    if (++nodes_ > kMaxNodes) throw TooMuch{mark, "more than 200000 nodes"};
  }
  std::shared_ptr<YamlNode> make(YamlNode::Kind kind, const YAML::Mark& mark) {
    count(mark);
    auto node = std::make_shared<YamlNode>();
    node->kind = kind;
    node->loc = {file_, mark.line + 1, mark.column + 1, 1};
    return node;
  }
  void open(YamlNode::Kind kind, const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (stack_.size() >= kMaxYamlDepth) throw TooMuch{mark, "nested more than 64 deep"};
    stack_.push_back({make(kind, mark), anchor, nullptr, {}});
  }
  void close() {
    Open top = std::move(stack_.back());
    stack_.pop_back();
    for (const YamlRef& merged : top.merged) {
      for (const auto& [key, value] : merged->fields) {
        count({});
        if (!top.node->find(key->text)) top.node->fields.emplace_back(key, value);
      }
    }
    add(top.node, top.anchor);
  }
  void add(YamlRef node, YAML::anchor_t anchor) {
    if (anchor != 0) anchors_[anchor] = node;
    place(std::move(node));
  }
  void place(YamlRef node) {
    if (stack_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& top = stack_.back();
    if (top.node->is_list()) {
      top.node->items.push_back(std::move(node));
    } else if (!top.key) {
      top.key = std::move(node);
    } else {
      add_field(top, std::move(node));
    }
  }
  void add_field(Open& top, YamlRef value) {
    YamlRef key = std::move(top.key);
    top.key = nullptr;
    if (key->text == "<<" && !key->quoted && value->is_map()) {
      top.merged.push_back(std::move(value));
      return;
    }
    for (auto& [other, old_value] : top.node->fields) {
      if (!key->is_scalar() || !other->is_scalar() || other->text != key->text) continue;
      diags_
          .error(key->loc, "Y004", fmt::format("key '{}' stands here twice", printable(key->text)))
          .note(other->loc, "first here")
          .help("remove one of the two; YAML readers silently keep the last");
      old_value = std::move(value);
      return;
    }
    top.node->fields.emplace_back(std::move(key), std::move(value));
  }

  std::vector<std::string_view> lines_;
  std::string file_;
  DiagSink& diags_;
  std::vector<Open> stack_;
  std::map<YAML::anchor_t, YamlRef> anchors_;
  YamlRef root_;
  size_t nodes_ = 0;
};

// UTF-16 and UTF-32, of which YAML's first character, an ASCII one, leaves no doubt.
bool is_wide(std::string_view bytes) {
  return bytes.starts_with("\xFF\xFE") || bytes.starts_with("\xFE\xFF") ||
         bytes.substr(0, 2).find('\0') != std::string_view::npos;
}

void report_syntax(const std::string& text, const std::string& file, const YAML::Mark& mark,
                   const std::string& what, DiagSink& diags) {
  const std::vector<std::string_view> lines = lines_of(text);
  const int line = mark.is_null() ? 1 : mark.line + 1;
  if (const auto mistake = find_yaml_mistake(lines, line, file)) {
    Diagnostic& diag = diags.error(mistake->loc, "Y001", mistake->message);
    diag.help(mistake->help);
    for (const FixIt& fix : mistake->fixes) diag.fix(fix.range, fix.replacement);
    return;
  }
  if (what.find("flow") != std::string::npos) {
    if (const auto open = find_open_bracket(lines, file)) {
      const char bracket =
          lines[static_cast<size_t>(open->line) - 1][static_cast<size_t>(open->column) - 1];
      diags.error(*open, "Y001", fmt::format("this `{}` is not closed", bracket))
          .help(fmt::format("end the {} with `{}`", bracket == '{' ? "map" : "list",
                            bracket == '{' ? '}' : ']'));
      return;
    }
  }
  const std::string hint = indentation_hint(lines, line);
  const SourceLoc loc = {file, line, mark.is_null() ? 1 : mark.column + 1, 1};
  if (hint.empty()) {
    diags.error(loc, "Y001", fmt::format("not valid YAML: {}", printable(what)));
  } else {
    diags.error(loc, "Y001", "not valid YAML: the indentation fits no line above").help(hint);
  }
}

}  // namespace

const YamlNode* YamlNode::find(std::string_view key) const {
  for (const auto& [name, value] : fields) {
    if (name->is_scalar() && name->text == key) return value.get();
  }
  return nullptr;
}

std::string_view name(YamlNode::Kind kind) {
  constexpr std::string_view kNames[] = {"nothing", "a text", "a list", "a map"};
  return kNames[static_cast<size_t>(kind)];
}

YamlRef parse_yaml(std::string_view bytes, const std::string& file, DiagSink& diags) {
  if (is_wide(bytes)) {
    diags.error({file, 1, 1, 1}, "Y001", "the file is UTF-16 or UTF-32; save it as UTF-8");
    return nullptr;
  }
  if (bytes.starts_with(kByteOrderMark)) bytes.remove_prefix(kByteOrderMark.size());
  const std::string text(bytes);
  diags.add_source(file, text);
  TreeBuilder builder(text, file, diags);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) return std::make_shared<YamlNode>();
    TreeBuilder second(text, file, diags);
    YamlRef root = builder.root();
    if (parser.HandleNextDocument(second) && second.root() && !second.root()->is_null()) {
      diags.error(second.root()->loc, "Y001",
                  "a second YAML document; a rule file holds one: remove the `---` above");
    }
    if (!root) return std::make_shared<YamlNode>();
    return root;
  } catch (const TooMuch& limit) {
    report_syntax(text, file, limit.mark, limit.what, diags);
  } catch (const YAML::Exception& e) {
    report_syntax(text, file, e.mark, e.msg, diags);
  } catch (const std::exception& e) {
    report_syntax(text, file, YAML::Mark::null_mark(), e.what(), diags);
  }
  return nullptr;
}

SourceLoc place_in_scalar(const YamlNode& scalar, const DiagSink& diags, size_t offset,
                          size_t length) {
  SourceLoc loc = scalar.loc;
  const std::string* text = diags.source(loc.file);
  if (!text) return loc;
  const std::vector<std::string_view> lines = lines_of(*text);
  if (loc.line < 1 || static_cast<size_t>(loc.line) > lines.size()) return loc;
  const std::string_view line = lines[static_cast<size_t>(loc.line) - 1];
  size_t at = static_cast<size_t>(std::max(loc.column - 1, 0));
  const char quote = at < line.size() ? line[at] : ' ';
  const bool is_quoted = quote == '"' || quote == '\'';
  if (is_quoted) ++at;
  const auto step = [&] {
    const bool pair = is_quoted && at + 1 < line.size() &&
                      ((quote == '"' && line[at] == '\\') ||
                       (quote == '\'' && line[at] == '\'' && line[at + 1] == '\''));
    at += pair ? 2 : 1;
  };
  for (size_t i = 0; i < offset; ++i) step();
  const size_t begin = at;
  for (size_t i = 0; i < length; ++i) step();
  if (begin >= line.size()) return loc;
  loc.column = static_cast<int>(begin) + 1;
  loc.length = static_cast<int>(std::clamp<size_t>(at - begin, 1, line.size() - begin));
  return loc;
}

}  // namespace ktx::rules
