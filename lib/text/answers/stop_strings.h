// Ends an answer at the first of several stop strings, and never shows a part of one.
//
//   StopStrings stop = KTX_TRY(StopStrings::create({"\nUser:", "END"}));
//   stop.add("Hello\nUs")   -> "Hello"      ("\nUs" may become "\nUser:": held back)
//   stop.add("ers")         -> "\nUsers"    (it did not)
//   stop.add(" END of it")  -> " "          and stopped(): nothing comes any more
//   stop.finish()           -> what is held back when the answer ends otherwise
//
// The stop string that is complete first wins; of two that end at the same byte, the one that
// began first. So the result does not depend on how the text is split into pieces. Safe for any
// bytes; for one stream, not thread-safe, copyable. A call costs bytes times strings.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/support/result.h"

namespace ktx::text {

inline constexpr size_t kMaxStopStrings = 64;
inline constexpr size_t kMaxStopStringBytes = 4096;

class StopStrings {
 public:
  StopStrings() = default;  // none: passes everything on
  // Refuses an empty string, more than 64 of them, and any above 4096 bytes.
  static Result<StopStrings> create(std::vector<std::string> strings);

  // The text that may be shown now.
  std::string add(std::string_view text);
  // What was held back, when no more text comes; "" once stopped.
  std::string finish();

  bool stopped() const { return stopped_by_ >= 0; }
  // The one that ended the answer; only when stopped().
  const std::string& stopped_by() const { return matchers_[stopped_by_].string; }

 private:
  // One string as a Knuth-Morris-Pratt automaton.
  struct Matcher {
    std::string string;
    std::vector<size_t> fallback;  // of n matched bytes: the next shorter match
    size_t matched = 0;

    void step(char byte);
  };
  std::vector<Matcher> matchers_;
  std::string held_;
  int stopped_by_ = -1;
};

}  // namespace ktx::text
