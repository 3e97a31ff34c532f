// Splits the input of a terminal into keys: a character, a control key, a whole escape
// sequence, or a whole pasted text.
//
// Bytes that are not UTF-8 are passed on unchanged; an escape sequence that no terminal sends
// ends at a limit. A paste is the text between ESC[200~ and ESC[201~ (bracketed paste).
#pragma once

#include <cstddef>
#include <string>

namespace ktx::tools {

struct Key {
  enum Kind {
    Text,         // bytes: characters to write
    Control,      // bytes: a control character or an escape sequence
    Paste,        // bytes: the pasted text
    TooLong,      // a paste above the limit; it was dropped
    Interrupted,  // a signal came
    End,          // no more input
  };
  Kind kind = End;
  std::string bytes;
};

class KeyReader {
 public:
  explicit KeyReader(int fd) : fd_(fd) {}
  Key next();
  // Text up to a newline or the end of input, for what is no terminal of ours: keys are not
  // looked for. End: no text was left.
  Key line();
  // More input is here: showing what came so far can wait.
  bool more() const;

  static constexpr size_t kMostPasteBytes = 64u << 20;

 private:
  enum class Got { Bytes, Nothing, Interrupted, End };
  // -1: waits. Interrupted comes only to callers that can end there.
  enum class Interrupts { Heard, Later };
  Got fill(int timeout_ms, Interrupts interrupts = Interrupts::Later);
  Key take(Key::Kind kind, size_t bytes);
  Key escape();
  Key character();
  Key paste();

  int fd_;
  std::string buffer_;
  size_t begin_ = 0;  // what is before was taken
};

}  // namespace ktx::tools
