// Reads lines from a user: editing and history on a terminal, plain lines from a pipe.
//
// ktx has its own editor because it must handle user-perceived characters (graphemes.h) in any
// locale, and a pasted text as one unit. Text is UTF-8; the keys are those of line_keys.def,
// the arrows up and down for history, Enter, Ctrl-C, -D, -L and -Z. A terminal without escape
// sequences (TERM=dumb) gets plain lines.
#pragma once

#include <memory>
#include <string>

namespace ktx::tools {

struct InputLine {
  enum Kind {
    Text,
    Cancelled,  // Ctrl-C; text is what had been written
    End,        // of input: Ctrl-D on an empty line
  };
  Kind kind = End;
  std::string text;  // without the newline; one that was pasted may have newlines in it
};

class LineEditor {
 public:
  // History is kept in `history_file` ("" for none) between runs.
  explicit LineEditor(std::string history_file);
  ~LineEditor();

  InputLine read(const std::string& prompt);
  // A person is there: standard input is a terminal.
  bool interactive() const;

 private:
  struct State;
  InputLine edit(const std::string& prompt);
  InputLine plain(const std::string& prompt);
  std::unique_ptr<State> state_;
};

}  // namespace ktx::tools
