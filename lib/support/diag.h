// Diagnostics: all mistakes of the user, with their places and proposed fixes.
//
//   sink.error({file, 14, 11, 24}, "R007", "rule matches no module")
//       .note({}, "closest module name is 'layers.3.mlp.experts'")
//       .help("write `optional: true` if that is meant");
//
// prints (render_diagnostic)
//
//   rules/moe.yaml:14:11: error: rule matches no module [KTX-R007]
//     match: "layers.*.mlp.expert"
//            ^~~~~~~~~~~~~~~~~~~~~
//   note: closest module name is 'layers.3.mlp.experts'
//   help: write `optional: true` if that is meant
//
// A fix-it is an edit that corrects the mistake; it is drawn under the caret, and `--fix`
// applies it. Diagnostics of one group are examples of one cause: the text form shows three of
// them and counts the rest (render_diagnostics).
//
// Not thread-safe; one sink per compilation.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ktx {

enum class Severity { Note, Warning, Error };

// A place in a text file (line and column from 1, length in bytes of the marked
// range) or in a binary one (line 0: only the file name is printed).
struct SourceLoc {
  std::string file;
  int line = 0;
  int column = 0;
  int length = 1;
};

struct DiagNote {
  SourceLoc loc;
  std::string text;
  bool is_help = false;
};

// Replaces the range; length 0 inserts before its column.
struct FixIt {
  SourceLoc range;
  std::string replacement;
};

struct Diagnostic {
  Severity severity = Severity::Error;
  SourceLoc loc;
  std::string code;  // without "KTX-"; may be empty
  std::string message;
  std::vector<DiagNote> notes;
  std::vector<FixIt> fixes;
  std::string group;  // may be empty

  Diagnostic& note(SourceLoc at, std::string text);
  Diagnostic& note(std::string text) { return note({}, std::move(text)); }
  Diagnostic& help(std::string text);
  Diagnostic& fix(SourceLoc range, std::string replacement);
  Diagnostic& in_group(std::string key);
};

// What the command line makes of severities; codes without "KTX-".
struct DiagPolicy {
  bool warnings_are_errors = false;               // -Werror
  std::set<std::string, std::less<>> errors;      // -Werror=CODE
  std::set<std::string, std::less<>> not_errors;  // -Wno-error=CODE
  std::set<std::string, std::less<>> off;         // -Wno-CODE
};

class DiagSink {
 public:
  void set_policy(DiagPolicy policy) { policy_ = std::move(policy); }

  // A diagnostic that the policy turns off is not kept; the reference returned
  // may be written to all the same.
  Diagnostic& report(Severity severity, SourceLoc loc, std::string code, std::string message);
  Diagnostic& error(SourceLoc loc, std::string code, std::string message);
  Diagnostic& warning(SourceLoc loc, std::string code, std::string message);
  Diagnostic& note(SourceLoc loc, std::string code, std::string message);

  // Errors first, then warnings, then notes; else in order of reporting. Ends the
  // life of references that report() returned.
  void sort_by_severity();

  // The text of a file, so that render can show the line; optional.
  void add_source(std::string file, std::string text);
  const std::string* source(std::string_view file) const;
  // Those of add_source, in order.
  const std::vector<std::string>& source_files() const { return source_files_; }

  int errors() const { return count_[2]; }
  int warnings() const { return count_[1]; }
  const std::deque<Diagnostic>& all() const { return all_; }

 private:
  std::deque<Diagnostic> all_;  // a deque: references returned by error() stay valid
  std::map<std::string, std::string, std::less<>> sources_;
  std::vector<std::string> source_files_;
  int count_[3] = {0, 0, 0};
  DiagPolicy policy_;
  Diagnostic dropped_;
};

// The text form above, with a trailing newline; `color` adds ANSI colours.
std::string render_diagnostic(const DiagSink& sink, const Diagnostic& diag, bool color);
// Those from number `first` on; of a group three examples, then "and N more".
std::string render_diagnostics(const DiagSink& sink, size_t first, bool color, bool with_notes);

// The text with all fix-its of this file in it, later ones first; of two that
// overlap the first in order of reporting is applied. `applied` counts them.
std::string apply_fixes(const DiagSink& sink, std::string_view file, std::string text,
                        int& applied);

}  // namespace ktx
