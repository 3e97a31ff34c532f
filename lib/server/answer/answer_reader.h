// Reads an answer token by token: characters that are whole, stop strings, reasoning, content
// and calls, in the form of the model's template.
//
//   AnswerReader reader(model, spec, std::move(stop));
//   Piece piece = reader.add(ids);        // what these tokens say
//   Piece rest = reader.finish();         // what was held back
//
// In the harmony form (gpt-oss) stop strings are looked for in the bodies of messages, each by
// itself; in the others in the whole text, tags and reasoning included. One stream; not
// thread-safe. Keeps references to the model.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/server/answer/answer_job.h"
#include "lib/text/answers/generic_answer.h"
#include "lib/text/answers/harmony.h"
#include "lib/text/answers/reasoning.h"

namespace ktx::server {

class AnswerReader {
 public:
  // `spec` with its prompt; `stop` are its stop strings.
  AnswerReader(const ServedModel& model, const AnswerSpec& spec, text::StopStrings stop);

  Piece add(std::span<const int32_t> ids);  // without log-probabilities
  // `cut`: by a limit, where the model would have said more.
  Piece finish(bool cut = false);
  // A token that was shown earlier: of its text only the half of a character is kept.
  void pass(int32_t id) { (void)detokenizer_.add(id); }

  bool stopped() const { return stop_.stopped(); }
  const std::string& stopped_by() const { return stop_.stopped_by(); }
  bool called_tools() const { return called_tools_; }
  bool reasoned() const { return reasoned_; }  // some reasoning was shown
  // The tokens so far are reasoning, or may be.
  bool in_reasoning() const;

 private:
  enum class Rest { More, Last, Cut };
  void read(std::string text, Rest rest, Piece& piece);
  void read_marker(int32_t id, Piece& piece);
  void take(text::HarmonyDelta delta, Piece& piece);
  void take_content(const std::string& text, Rest rest, Piece& piece);
  void gather(Piece& piece);

  const text::Tokenizer& tokenizer_;
  text::Detokenizer detokenizer_;
  const text::StopStrings fresh_stop_;
  text::StopStrings stop_;
  std::optional<text::HarmonyParser> harmony_;
  std::optional<text::ReasoningSplitter> reasoning_;
  std::optional<text::GenericAnswer> generic_;  // in front of the tools
  std::optional<text::ToolCallParser> tools_;
  bool forced_call_;
  bool gathers_;  // calls come in pieces here, and whole to the client
  std::vector<text::ToolCall> gathered_;
  bool called_tools_ = false;
  bool reasoned_ = false;
};

}  // namespace ktx::server
