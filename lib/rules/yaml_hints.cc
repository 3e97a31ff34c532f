#include "lib/rules/yaml_hints.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "lib/support/strings.h"

namespace ktx::rules {
namespace {

using Lines = std::span<const std::string_view>;
constexpr size_t kNone = std::string_view::npos;

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

std::string spaces(size_t count) {
  return fmt::format("{} space{}", count, count == 1 ? "" : "s");
}

// Where the entries of a line begin: after its spaces and dashes.
size_t entry_column(std::string_view line) {
  size_t i = std::min(line.find_first_not_of(' '), line.size());
  while (line.substr(i).starts_with("- ")) {
    i = std::min(line.find_first_not_of(' ', i + 1), line.size());
  }
  return i;
}

// One line, looked at for each mistake in turn.
class LineReader {
 public:
  // `indent`: where the line above lets this one begin.
  LineReader(std::string_view line, int number, const std::string& file, size_t indent)
      : line_(line),
        number_(number),
        file_(file),
        indent_(indent),
        begin_(line.find_first_not_of(' ')) {
    if (!line_.empty() && line_.back() == '\r') line_.remove_suffix(1);
  }

  std::optional<YamlMistake> find() const {
    if (begin_ == kNone || line_[begin_] == '#') return std::nullopt;
    for (const auto look : {&LineReader::tab, &LineReader::conflict, &LineReader::dash,
                            &LineReader::two_keys, &LineReader::value}) {
      if (auto mistake = (this->*look)()) return mistake;
    }
    return std::nullopt;
  }

 private:
  SourceLoc at(size_t column, size_t length) const {
    return {file_, number_, static_cast<int>(column) + 1, static_cast<int>(length)};
  }

  // Tabs are the cause of most errors near them.
  std::optional<YamlMistake> tab() const {
    const size_t end = std::min(line_.find_first_not_of(" \t"), line_.size());
    const size_t tab = line_.substr(0, end).find('\t');
    if (tab == kNone) return std::nullopt;
    const size_t run = std::min(line_.find_first_not_of('\t', tab), line_.size()) - tab;
    return YamlMistake{
        at(tab, run),
        "a tab in the indentation; YAML indents by spaces only",
        fmt::format("write {} instead, if it belongs to the line above", spaces(indent_)),
        {{at(0, end), std::string(indent_, ' ')}}};
  }

  std::optional<YamlMistake> conflict() const {
    for (std::string_view mark : {"<<<<<<<", "=======", ">>>>>>>"}) {
      if (!line_.starts_with(mark)) continue;
      return YamlMistake{at(0, mark.size()),
                         "a merge conflict was left in the file",
                         "keep one of the two sides and remove the lines with the marks",
                         {}};
    }
    return std::nullopt;
  }

  std::optional<YamlMistake> dash() const {
    const std::string_view rest = line_.substr(begin_);
    if (rest.size() < 2 || rest[0] != '-' || !is_name_char(rest[1]) || rest.find(':') == kNone) {
      return std::nullopt;
    }
    return YamlMistake{at(begin_, 1),
                       "a dash needs a space after it",
                       fmt::format("write `- {}`", printable(rest.substr(1), 40)),
                       {{at(begin_, 1), "- "}}};
  }

  // Where the value of "key: value" or "- key: value" begins, or kNone.
  size_t value_at() const {
    size_t i = entry_column(line_);
    while (i < line_.size() && is_name_char(line_[i])) ++i;
    if (i + 1 >= line_.size() || line_[i] != ':' || line_[i + 1] != ' ') return kNone;
    const size_t value = line_.find_first_not_of(' ', i + 1);
    return value != kNone && line_[value] != '#' ? value : kNone;
  }

  // "match: name: x"
  std::optional<YamlMistake> two_keys() const {
    const size_t value = value_at();
    if (value == kNone) return std::nullopt;
    size_t end = value;
    while (end < line_.size() && is_name_char(line_[end])) ++end;
    const bool second = end > value && line_.substr(end).starts_with(": ");
    if (!second) return std::nullopt;
    const std::string_view key = line_.substr(value, end - value);
    return YamlMistake{
        at(value, key.size()),
        "two keys in one line",
        fmt::format("write `{}` in a line of its own, indented by two more spaces", key),
        {}};
  }

  std::optional<YamlMistake> value() const {
    const size_t value = value_at();
    if (value == kNone) return std::nullopt;
    if (line_[value] == '"' || line_[value] == '\'') return quoted(value);
    // Characters that begin something else in YAML.
    const std::string_view before = trim(line_.substr(0, value));
    const bool is_text = before.ends_with("name:") || before.ends_with("class:");
    if (!is_text || std::string_view("*&!@`%|>[{").find(line_[value]) == kNone) return std::nullopt;
    const std::string_view text = trim(line_.substr(value));
    return YamlMistake{at(value, text.size()),
                       fmt::format("a text that begins with '{}' needs quotes", line_[value]),
                       "put it in single quotes, in which a backslash stays as it is",
                       {{at(value, text.size()), fmt::format("'{}'", text)}}};
  }

  std::optional<YamlMistake> quoted(size_t open) const {
    const char quote = line_[open];
    YamlMistake escapes{{}, "", "", {}};
    size_t i = open + 1;
    for (; i < line_.size() && line_[i] != quote; ++i) {
      if (quote == '\'' || line_[i] != '\\') continue;
      const char c = i + 1 < line_.size() ? line_[i + 1] : ' ';
      if (std::string_view("0abtnvfre \"/\\N_LPxuU\t").find(c) == kNone) {
        if (escapes.fixes.empty()) {
          escapes.loc = at(i, 2);
          escapes.message = fmt::format("in double quotes `\\{}` is no escape", c);
          escapes.help = fmt::format("double the backslash (`\\\\{}`), or use single quotes", c);
        }
        escapes.fixes.push_back({at(i, 1), "\\\\"});
      }
      ++i;
    }
    if (i >= line_.size()) {
      return YamlMistake{at(open, line_.size() - open),
                         "this quote is not closed",
                         fmt::format("end the text with {}", quote),
                         {}};
    }
    if (!escapes.fixes.empty()) return escapes;
    const size_t after = line_.find_first_not_of(' ', i + 1);
    if (after == kNone || std::string_view("#,]}:'").find(line_[after]) != kNone) {
      return std::nullopt;
    }
    return YamlMistake{at(after, trim(line_.substr(after)).size()),
                       "text after the closing quote",
                       "put all of it between the quotes",
                       {}};
  }

  std::string_view line_;
  int number_;
  const std::string& file_;
  size_t indent_;
  size_t begin_;
};

// A text over several lines ("|" or ">") is taken as it is.
bool opens_block(std::string_view line) {
  const std::string_view text = trim(line);
  return text.ends_with(": |") || text.ends_with(": >") || text.ends_with(": |-") ||
         text.ends_with(": >-");
}

}  // namespace

std::optional<YamlMistake> find_yaml_mistake(Lines lines, int stopped, const std::string& file) {
  const int last = std::min<int>(stopped + 1, static_cast<int>(lines.size()));
  size_t block = kNone;  // indentation of the key whose text goes over several lines
  size_t next = 0;       // where a line that belongs to the one above begins
  for (int number = 1; number <= last; ++number) {
    const std::string_view line = lines[static_cast<size_t>(number) - 1];
    const size_t indent = line.find_first_not_of(' ');
    if (block != kNone && (indent == kNone || indent > block)) continue;
    block = opens_block(line) ? indent : kNone;
    if (block != kNone) continue;
    if (auto mistake = LineReader(line, number, file, next).find()) return mistake;
    const std::string_view text = trim(line);
    if (text.empty() || text[0] == '#') continue;
    next = entry_column(line) + (text.ends_with(':') ? 2 : 0);
  }
  return std::nullopt;
}

std::optional<SourceLoc> find_open_bracket(Lines lines, const std::string& file) {
  std::vector<SourceLoc> open;
  for (size_t number = 0; number < lines.size(); ++number) {
    const std::string_view line = lines[number];
    char quote = 0;
    for (size_t i = 0; i < line.size(); ++i) {
      const char c = line[i];
      if (quote != 0) {
        if (quote == '"' && c == '\\') ++i;
        if (c == quote) quote = 0;
      } else if (c == '"' || c == '\'') {
        quote = c;
      } else if (c == '#' && (i == 0 || line[i - 1] == ' ')) {
        break;
      } else if (c == '{' || c == '[') {
        open.push_back({file, static_cast<int>(number) + 1, static_cast<int>(i) + 1, 1});
      } else if ((c == '}' || c == ']') && !open.empty()) {
        open.pop_back();
      }
    }
  }
  if (open.empty()) return std::nullopt;
  return open.back();
}

std::string indentation_hint(Lines lines, int line) {
  if (line < 2 || static_cast<size_t>(line) > lines.size()) return "";
  const size_t here = lines[static_cast<size_t>(line) - 1].find_first_not_of(' ');
  if (here == kNone) return "";
  // The levels that are open above: where entries may begin, and the key there.
  struct Level {
    size_t column;
    std::string_view key;
  };
  std::vector<Level> open;
  for (int above = 1; above < line; ++above) {
    const std::string_view text = lines[static_cast<size_t>(above) - 1];
    size_t column = text.find_first_not_of(' ');
    if (column == kNone || text[column] == '#') continue;
    const auto add = [&](size_t at) {
      while (!open.empty() && open.back().column >= at) open.pop_back();
      size_t end = at;
      while (end < text.size() && is_name_char(text[end])) ++end;
      open.push_back({at, end > at ? text.substr(at, end - at) : "-"});
    };
    while (text.substr(column).starts_with("- ")) {
      add(column);
      column = std::min(text.find_first_not_of(' ', column + 1), text.size());
    }
    if (column < text.size()) add(column);
  }
  std::string levels;
  for (const Level& level : open) {
    if (level.column == here) return "";
    levels += fmt::format("{}{} (`{}`)", levels.empty() ? "" : ", ", level.column, level.key);
  }
  if (open.empty()) return "";
  return fmt::format(
      "line {} is indented by {}; above it are {}; entries of one map begin in the "
      "same column",
      line, spaces(here), levels);
}

size_t key_without_space(std::string_view text) {
  size_t end = 0;
  while (end < text.size() && is_name_char(text[end])) ++end;
  return end > 0 && end + 1 < text.size() && text[end] == ':' && text[end + 1] != ' ' ? end : 0;
}

}  // namespace ktx::rules
