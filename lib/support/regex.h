// PCRE2 behind one small class: UTF and Unicode classes on, backtracking and
// depth limited, so that a hostile pattern or subject costs bounded time.
//
// search() behaves as Python's re.search: unanchored, first match. Immutable
// after compile and safe to share between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lib/support/result.h"

namespace ktx {

class Regex {
 public:
  struct Match {
    size_t begin = 0;
    size_t end = 0;
  };
  struct CompileError {
    std::string message;
    size_t offset = 0;  // in bytes of the pattern
  };

  // On failure the message is "MESSAGE at offset N of the pattern".
  static Result<Regex> compile(std::string_view pattern);
  // The same, with the offset apart for a caret; null on success.
  static std::optional<CompileError> check(std::string_view pattern);

  // First match at or after `from`. No match, and also a subject that runs into
  // the limits or is no valid UTF-8, gives nothing.
  std::optional<Match> search(std::string_view subject, size_t from = 0) const;
  bool matches(std::string_view subject) const { return search(subject).has_value(); }

  // Whether it matches anywhere, with a limit of backtracking steps of the caller's
  // choice: Limit says that the pattern needs more on this subject. The steps are
  // PCRE2's: the same pattern and subject end alike on every machine. For many
  // subjects see RegexTester.
  enum class Outcome { Match, None, Limit };
  Outcome test(std::string_view subject, uint32_t step_limit) const;

 private:
  friend class RegexScanner;
  friend class RegexTester;
  struct Code;
  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  std::shared_ptr<const Code> code_;
};

// Regex::test for many patterns and subjects, with one set of buffers for all calls.
// Not thread-safe.
class RegexTester {
 public:
  RegexTester();
  RegexTester(RegexTester&&) noexcept;
  ~RegexTester();

  Regex::Outcome test(const Regex& regex, std::string_view subject, uint32_t step_limit);

 private:
  struct Buffers;
  std::unique_ptr<Buffers> buffers_;
};

// Walks over all matches in long texts: what search() does, without checking the
// UTF-8 of the whole subject at every call (which makes a walk quadratic), with
// one set of buffers for all calls, and with limits that grow with the subject.
// Not thread-safe; each thread makes its own from the shared Regex.
class RegexScanner {
 public:
  enum class Found { Match, None, Limit };

  explicit RegexScanner(const Regex& regex);
  RegexScanner(RegexScanner&&) noexcept;
  ~RegexScanner();

  // First match at or after `from`. The subject must be valid UTF-8, and `from` at
  // the beginning of a character; else the behaviour is undefined. Limit: the search
  // ran out of stack or steps; where the next match is, is not known.
  Found next(std::string_view subject, size_t from, Regex::Match& match);

 private:
  struct Buffers;
  std::unique_ptr<Buffers> buffers_;
};

}  // namespace ktx
