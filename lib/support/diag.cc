#include "lib/support/diag.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace ktx {
namespace {

struct SeverityStyle {
  const char* name;
  const char* color;
};
constexpr SeverityStyle kStyles[] = {
    {"note", "\033[1;36m"}, {"warning", "\033[1;35m"}, {"error", "\033[1;31m"}};
constexpr const char* kBold = "\033[1m";
constexpr const char* kReset = "\033[0m";

std::string place(const SourceLoc& loc) {
  if (loc.file.empty()) return "";
  if (loc.line == 0) return loc.file + ": ";
  return fmt::format("{}:{}:{}: ", loc.file, loc.line, loc.column);
}

constexpr size_t kMaxRow = 160;  // bytes shown of a line
constexpr int kExamples = 3;     // shown of a group

bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

// The line, or null: line numbers from 1.
std::optional<std::string_view> line_of(const std::string& text, int number) {
  size_t begin = 0;
  for (int line = 1; line < number; ++line) {
    begin = text.find('\n', begin);
    if (begin == std::string::npos) return std::nullopt;
    ++begin;
  }
  return std::string_view(text).substr(begin, text.find('\n', begin) - begin);
}

// The edit to draw under the caret: one of this line, as text without line breaks.
std::string drawn_fix(const SourceLoc& loc, const std::vector<FixIt>& fixes) {
  for (const FixIt& fix : fixes) {
    const bool here = fix.range.line == loc.line && fix.range.column == loc.column;
    const bool visible = fix.replacement.find_first_not_of(" \t") != std::string::npos;
    if (here && visible && fix.replacement.find('\n') == std::string::npos) return fix.replacement;
  }
  return "";
}

// The marked line and its caret. Tabs are kept so that the caret stays in place,
// other control bytes are not (a rule file must not drive the terminal), and of a
// very long line only the part around the mark is shown.
std::string excerpt(const DiagSink& sink, const SourceLoc& loc, const std::vector<FixIt>& fixes) {
  const std::string* text = loc.line > 0 ? sink.source(loc.file) : nullptr;
  const auto line = text ? line_of(*text, loc.line) : std::nullopt;
  if (!line) return "";
  std::string_view row = *line;
  if (!row.empty() && row.back() == '\r') row.remove_suffix(1);
  size_t column = std::min<size_t>(std::max(loc.column, 1) - 1, row.size());
  if (row.size() > kMaxRow) {
    size_t from = column > kMaxRow / 2 ? column - kMaxRow / 2 : 0;
    while (from > 0 && is_continuation(row[from])) --from;
    column -= from;
    row = row.substr(from, kMaxRow);
    while (!row.empty() && is_continuation(row.back())) row.remove_suffix(1);
  }
  const size_t length = std::clamp<size_t>(loc.length, 1, std::max<size_t>(row.size() - column, 1));
  std::string shown, pad, marks = "^";
  for (size_t i = 0; i < row.size(); ++i) {
    const auto c = static_cast<unsigned char>(row[i]);
    shown += c == '\t' || (c >= 0x20 && c != 0x7F) ? row[i] : '?';
    if (is_continuation(row[i])) continue;
    if (i < column) pad += c == '\t' ? '\t' : ' ';
    if (i > column && i < column + length) marks += '~';
  }
  std::string out = fmt::format("  {}\n  {}{}\n", shown, pad, marks);
  const std::string fix = drawn_fix(loc, fixes);
  if (!fix.empty()) out += fmt::format("  {}{}\n", pad, fix);
  return out;
}

}  // namespace

Diagnostic& Diagnostic::note(SourceLoc at, std::string text) {
  notes.push_back({std::move(at), std::move(text), false});
  return *this;
}

Diagnostic& Diagnostic::help(std::string text) {
  notes.push_back({{}, std::move(text), true});
  return *this;
}

Diagnostic& Diagnostic::fix(SourceLoc range, std::string replacement) {
  fixes.push_back({std::move(range), std::move(replacement)});
  return *this;
}

Diagnostic& Diagnostic::in_group(std::string key) {
  group = std::move(key);
  return *this;
}

Diagnostic& DiagSink::report(Severity severity, SourceLoc loc, std::string code,
                             std::string message) {
  const bool spared = policy_.not_errors.contains(code);
  if (severity == Severity::Error && spared) {
    severity = Severity::Warning;
  } else if (severity == Severity::Warning && !spared &&
             (policy_.warnings_are_errors || policy_.errors.contains(code))) {
    severity = Severity::Error;
  }
  if (!code.empty() && policy_.off.contains(code)) {
    dropped_ = {};
    return dropped_;
  }
  ++count_[static_cast<int>(severity)];
  all_.push_back({severity, std::move(loc), std::move(code), std::move(message), {}, {}, {}});
  return all_.back();
}

Diagnostic& DiagSink::error(SourceLoc loc, std::string code, std::string message) {
  return report(Severity::Error, std::move(loc), std::move(code), std::move(message));
}
Diagnostic& DiagSink::warning(SourceLoc loc, std::string code, std::string message) {
  return report(Severity::Warning, std::move(loc), std::move(code), std::move(message));
}
Diagnostic& DiagSink::note(SourceLoc loc, std::string code, std::string message) {
  return report(Severity::Note, std::move(loc), std::move(code), std::move(message));
}

void DiagSink::sort_by_severity() {
  std::stable_sort(all_.begin(), all_.end(), [](const Diagnostic& a, const Diagnostic& b) {
    return a.severity > b.severity;
  });
}

void DiagSink::add_source(std::string file, std::string text) {
  if (sources_.insert_or_assign(file, std::move(text)).second) {
    source_files_.push_back(std::move(file));
  }
}

const std::string* DiagSink::source(std::string_view file) const {
  auto it = sources_.find(file);
  return it == sources_.end() ? nullptr : &it->second;
}

std::string render_diagnostic(const DiagSink& sink, const Diagnostic& diag, bool color) {
  const SeverityStyle& style = kStyles[static_cast<int>(diag.severity)];
  const std::string code = diag.code.empty() ? "" : fmt::format(" [KTX-{}]", diag.code);
  std::string out =
      color ? fmt::format("{}{}{}{}: {}{}{}{}{}\n", kBold, place(diag.loc), style.color, style.name,
                          kReset, kBold, diag.message, kReset, code)
            : fmt::format("{}{}: {}{}\n", place(diag.loc), style.name, diag.message, code);
  out += excerpt(sink, diag.loc, diag.fixes);
  for (const DiagNote& note : diag.notes) {
    out += fmt::format("{}{}: {}\n", place(note.loc), note.is_help ? "help" : "note", note.text);
    out += excerpt(sink, note.loc, diag.fixes);
  }
  return out;
}

std::string render_diagnostics(const DiagSink& sink, size_t first, bool color, bool with_notes) {
  const auto same = [](const Diagnostic& a, const Diagnostic& b) {
    return !a.group.empty() && a.group == b.group && a.code == b.code && a.severity == b.severity;
  };
  std::map<std::string, int> shown;
  std::string out;
  for (size_t i = first; i < sink.all().size(); ++i) {
    const Diagnostic& diag = sink.all()[i];
    if (diag.severity == Severity::Note && !with_notes) continue;
    if (!diag.group.empty()) {
      const std::string key =
          fmt::format("{}/{}/{}", static_cast<int>(diag.severity), diag.code, diag.group);
      const int number = ++shown[key];
      if (number > kExamples + 1) continue;
      const auto rest =
          std::count_if(sink.all().begin() + static_cast<std::ptrdiff_t>(i), sink.all().end(),
                        [&](const Diagnostic& other) { return same(diag, other); });
      if (number == kExamples + 1 && rest > 1) {
        out += fmt::format("{}: and {} more of this kind [KTX-{}]\n",
                           kStyles[static_cast<int>(diag.severity)].name, rest, diag.code);
        continue;
      }
    }
    out += render_diagnostic(sink, diag, color);
  }
  return out;
}

std::string apply_fixes(const DiagSink& sink, std::string_view file, std::string text,
                        int& applied) {
  struct Edit {
    size_t begin, end;
    const std::string* replacement;
  };
  std::vector<size_t> line_starts = {0};
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n') line_starts.push_back(i + 1);
  }
  std::vector<Edit> edits;
  for (const Diagnostic& diag : sink.all()) {
    for (const FixIt& fix : diag.fixes) {
      const auto line = static_cast<size_t>(fix.range.line);
      if (fix.range.file != file || line == 0 || line > line_starts.size()) continue;
      const size_t begin = line_starts[line - 1] + static_cast<size_t>(fix.range.column) - 1;
      const size_t end = begin + static_cast<size_t>(std::max(fix.range.length, 0));
      const bool free = std::none_of(edits.begin(), edits.end(), [&](const Edit& other) {
        return begin < std::max(other.end, other.begin + 1) &&
               other.begin < std::max(end, begin + 1);
      });
      if (fix.range.column > 0 && end <= text.size() && free) {
        edits.push_back({begin, end, &fix.replacement});
      }
    }
  }
  std::sort(edits.begin(), edits.end(),
            [](const Edit& a, const Edit& b) { return a.begin > b.begin; });
  for (const Edit& edit : edits) text.replace(edit.begin, edit.end - edit.begin, *edit.replacement);
  applied = static_cast<int>(edits.size());
  return text;
}

}  // namespace ktx
