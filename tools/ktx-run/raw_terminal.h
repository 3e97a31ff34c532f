// Puts the terminal into raw mode while a line is edited: keys one by one, pastes in brackets.
//
//   {
//     const RawTerminal raw(STDIN_FILENO, STDERR_FILENO);
//     ... read(STDIN_FILENO, ...)       // keys; Ctrl-C is a byte, too
//   }                                   // as it was before
//
// If SIGTERM, SIGHUP or SIGQUIT ends the program, the terminal is restored first
// (guard_terminal). SIGKILL leaves it as it is; `stty sane` restores it.
#pragma once

#include <string_view>

namespace ktx::tools {

class RawTerminal {
 public:
  // `in` is a terminal. One object at a time.
  RawTerminal(int in, int out);
  ~RawTerminal();
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

  // Ctrl-Z: the shell's turn, with the terminal as it was; returns when it is ours again.
  void suspend();

 private:
  void enter();
  void leave();
  int in_, out_;
};

// From now on the signals that end the program put the terminal back.
void guard_terminal();

// Text on the terminal `fd` has a style, which those signals end; -1: no more.
void note_style(int fd);

// Writes all of it, whatever signals come; what cannot be written is lost.
void write_terminal(int fd, std::string_view text);

}  // namespace ktx::tools
