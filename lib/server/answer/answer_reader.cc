#include "lib/server/answer/answer_reader.h"

#include <iterator>
#include <utility>

#include "lib/server/filters/reasoning_watch.h"

namespace ktx::server {
namespace {

text::HarmonyParser harmony_of(const text::Tokenizer& tokenizer, const AnswerSpec& spec) {
  const auto prompt = std::span<const int32_t>(spec.prompt);
  return begin_harmony(tokenizer,
                       prompt.first(prompt.size() - static_cast<size_t>(spec.answered_tokens)),
                       spec.parse_tools ? spec.tools : std::vector<text::OfferedTool>());
}

void append(text::ToolCallDelta from, Piece& piece) {
  std::move(from.calls.begin(), from.calls.end(), std::back_inserter(piece.calls));
  std::move(from.pieces.begin(), from.pieces.end(), std::back_inserter(piece.call_pieces));
}

bool reads_harmony(const ServedModel& model, const AnswerSpec& spec) {
  return spec.split_reasoning && model.speaks_harmony();
}

}  // namespace

AnswerReader::AnswerReader(const ServedModel& model, const AnswerSpec& spec, text::StopStrings stop)
    : tokenizer_(*model.tokenizer),
      detokenizer_(
          tokenizer_,
          // Markers of calls and reasoning are control tokens in some vocabularies.
          {.special = !reads_harmony(model, spec) && (spec.parse_tools || spec.split_reasoning),
           .at_start = false}),
      fresh_stop_(stop),
      stop_(std::move(stop)),
      forced_call_(spec.forced_call),
      gathers_(!spec.stream_calls && (spec.forced_call || reads_harmony(model, spec))) {
  if (reads_harmony(model, spec)) {
    harmony_ = harmony_of(tokenizer_, spec);
  } else if (spec.split_reasoning && model.reasoning) {
    reasoning_.emplace(*model.reasoning, spec.reasoning_open, spec.filter != nullptr);
  }
  if (harmony_ && !forced_call_) return;
  const bool generic = spec.parse_tools && model.tool_format == text::ToolCallFormat::Generic;
  if (generic && !forced_call_) generic_.emplace(spec.or_format);
  // A forced call, and one of the generic form, is bare JSON.
  const auto format = forced_call_ || generic ? text::ToolCallFormat::Llama3 : model.tool_format;
  // In pieces it is a call also where it was cut.
  const bool in_pieces = spec.stream_calls || forced_call_;
  if (spec.parse_tools || forced_call_) {
    tools_.emplace(format, spec.tools, in_pieces, spec.or_format && !generic);
  }
}

bool AnswerReader::in_reasoning() const {
  if (harmony_) return !harmony_->in_answer();
  return reasoning_ && !reasoning_->in_answer();
}

Piece AnswerReader::add(std::span<const int32_t> ids) {
  Piece piece;
  for (const int32_t id : ids) {
    if (harmony_ && tokenizer_.is_control(id)) {
      read_marker(id, piece);
    } else {
      read(detokenizer_.add(id), Rest::More, piece);
    }
  }
  gather(piece);
  return piece;
}

Piece AnswerReader::finish(bool cut) {
  Piece piece;
  read(detokenizer_.finish(), cut ? Rest::Cut : Rest::Last, piece);
  gather(piece);
  std::move(gathered_.begin(), gathered_.end(), std::back_inserter(piece.calls));
  gathered_.clear();
  return piece;
}

// A message ends or begins: nothing that was held back goes on behind the marker.
void AnswerReader::read_marker(int32_t id, Piece& piece) {
  read(detokenizer_.finish(), Rest::More, piece);
  if (stopped()) return;
  take(harmony_->text(stop_.finish()), piece);
  stop_ = fresh_stop_;
  take(harmony_->marker(tokenizer_.piece(id)), piece);
}

void AnswerReader::read(std::string text, Rest rest, Piece& piece) {
  const bool last = rest != Rest::More;
  if (stopped()) {
    text.clear();
  } else if (!harmony_ || harmony_->in_body()) {
    text = stop_.add(text);
  }
  if (last) text += stop_.finish();
  if (harmony_) {
    take(harmony_->text(text), piece);
    if (last) {
      take(harmony_->finish(), piece);
      take_content("", rest, piece);
    }
    return;
  }
  if (reasoning_) {
    text::ReasoningDelta delta = reasoning_->add(text);
    if (last) {
      text::ReasoningDelta held = reasoning_->finish();
      delta.reasoning += held.reasoning;
      delta.answer += held.answer;
    }
    reasoned_ = reasoned_ || !delta.reasoning.empty();
    piece.reasoning += delta.reasoning;
    text = std::move(delta.answer);
  }
  take_content(text, rest, piece);
}

void AnswerReader::take(text::HarmonyDelta delta, Piece& piece) {
  reasoned_ = reasoned_ || !delta.reasoning.empty();
  called_tools_ = called_tools_ || !delta.calls.empty();
  piece.reasoning += delta.reasoning;
  std::move(delta.calls.begin(), delta.calls.end(), std::back_inserter(piece.call_pieces));
  if (!delta.content.empty()) take_content(delta.content, Rest::More, piece);
}

void AnswerReader::take_content(const std::string& text, Rest rest, Piece& piece) {
  if (!tools_) {
    piece.text += text;
    return;
  }
  std::string said = text;
  if (generic_) {
    text::GenericDelta parts = generic_->add(text);
    if (rest != Rest::More) parts.text += generic_->finish().text;
    piece.text += parts.text;
    said = std::move(parts.calls);
  }
  text::ToolCallDelta delta = tools_->add(said);
  std::string shown = delta.text;
  append(std::move(delta), piece);
  if (rest != Rest::More) {
    text::ToolCallDelta held = tools_->finish(rest == Rest::Cut);
    shown += held.text;
    append(std::move(held), piece);
  }
  called_tools_ = called_tools_ || !piece.calls.empty() || !piece.call_pieces.empty();
  // Cut before its name was there, a forced call is no text either.
  if (!forced_call_ && !generic_) piece.text += shown;
}

// Calls that come whole, from their pieces.
void AnswerReader::gather(Piece& piece) {
  if (!gathers_) return;
  for (text::ToolCallPiece& said : piece.call_pieces) {
    if (said.begins) gathered_.push_back({said.name, "", said.id});
    if (!gathered_.empty()) gathered_.back().arguments += said.arguments;
  }
  piece.call_pieces.clear();
}

}  // namespace ktx::server
