// Lines from a person: editing and history on a terminal (libedit), plain lines
// from a pipe.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace ktx::tools {

class LineEditor {
 public:
  // History is kept in `history_file` ("" for none) between runs.
  explicit LineEditor(std::string history_file);
  ~LineEditor();

  // One line without its newline; nothing at the end of input. Ctrl-C drops the
  // line being written and gives an empty one.
  std::optional<std::string> read(const std::string& prompt);
  bool interactive() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ktx::tools
