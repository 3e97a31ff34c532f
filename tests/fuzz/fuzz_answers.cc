// Uses fuzzer input as what a model says, cut anywhere: tool calls in every form, whole and in
// pieces, reasoning in every pair of tags, the messages of harmony. What comes out must not depend
// on the cuts, and a stream gives text and calls that hold together.
//
//   cmake --preset fuzz && ninja -C build-fuzz fuzz_answers
//   build-fuzz/tests/fuzz/fuzz_answers -dict=tests/fuzz/answers.dict CORPUS
//
// First byte: which parser; second: where the cuts are.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "lib/text/answers/harmony.h"
#include "lib/text/answers/reasoning.h"
#include "lib/text/answers/tool_calls.h"

namespace {

using namespace ktx::text;

// One piece, or pieces whose sizes follow from `seed`.
std::vector<std::string_view> pieces_of(std::string_view text, uint8_t seed) {
  if (seed == 0) return {text};
  std::vector<std::string_view> pieces;
  uint32_t state = seed;
  for (size_t at = 0; at < text.size(); at += pieces.back().size()) {
    state = state * 1664525 + 1013904223;
    pieces.push_back(text.substr(at, 1 + (state >> 24) % 9));
  }
  return pieces;
}

// Text, then each call.
std::string calls_of(std::string_view text, ToolCallFormat format, bool stream, uint8_t seed) {
  ToolCallParser parser(format, {{"f", {"s"}}}, stream);
  std::string shown, calls;
  bool begun = false;
  const auto take = [&](const ToolCallDelta& delta) {
    shown += delta.text;
    for (const ToolCall& call : delta.calls) calls += "|" + call.name + call.arguments + call.id;
    for (const ToolCallPiece& piece : delta.pieces) {
      begun = begun || piece.begins;
      if (!begun) std::abort();  // arguments of no call
      if (piece.begins) calls += "|" + piece.name + piece.id;
      calls += piece.arguments;
    }
  };
  for (const std::string_view piece : pieces_of(text, seed)) take(parser.add(piece));
  take(parser.finish());
  return shown + calls;
}

std::string reasoning_of(std::string_view text, const ReasoningTags& tags, bool open,
                         uint8_t seed) {
  ReasoningSplitter splitter(tags, open);
  std::string reasoning, answer;
  const auto take = [&](const ReasoningDelta& delta) {
    if (!delta.reasoning.empty() && !answer.empty()) std::abort();  // reasoning behind the answer
    reasoning += delta.reasoning;
    answer += delta.answer;
  };
  for (const std::string_view piece : pieces_of(text, seed)) take(splitter.add(piece));
  take(splitter.finish());
  return reasoning + "|" + answer;
}

// Markers are the byte 1 and a digit; all else is text.
std::string harmony_of(std::string_view text, uint8_t seed) {
  constexpr std::string_view kMarkers[] = {kHarmonyStart,   kHarmonyChannel, kHarmonyConstrain,
                                           kHarmonyMessage, kHarmonyEnd,     kHarmonyReturn,
                                           kHarmonyCall};
  HarmonyParser parser({{"f", {}}});
  std::string reasoning, content, calls;
  const auto take = [&](const HarmonyDelta& delta) {
    reasoning += delta.reasoning;
    content += delta.content;
    for (const ToolCallPiece& piece : delta.calls) calls += piece.name + piece.arguments;
  };
  while (!text.empty()) {
    if (text[0] == 1 && text.size() > 1) {
      take(parser.marker(kMarkers[static_cast<uint8_t>(text[1]) % std::size(kMarkers)]));
      text.remove_prefix(2);
      continue;
    }
    const size_t end = std::min(text.find('\1', 1), text.size());
    for (const std::string_view piece : pieces_of(text.substr(0, end), seed)) {
      take(parser.text(piece));
    }
    text.remove_prefix(end);
  }
  take(parser.finish());
  return reasoning + "|" + content + "|" + calls;
}

void expect_equal(const std::string& a, const std::string& b) {
  if (a != b) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3 || size > 16384) return 0;
  constexpr auto kFormats = static_cast<uint8_t>(ToolCallFormat::Harmony);
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const uint8_t which = data[0], seed = data[1];
  if (which % 32 < kFormats) {
    const auto format = static_cast<ToolCallFormat>(which % 32);
    for (const bool stream : {false, true}) {
      expect_equal(calls_of(text, format, stream, seed), calls_of(text, format, stream, 0));
    }
  } else if (which % 2 == 0) {
    for (const char* marker : {"<think>", "[THINK]", "<|channel>thought", "<|open|>"}) {
      const ReasoningTags tags = *detect_reasoning(marker);
      const bool open = which >= 128;
      expect_equal(reasoning_of(text, tags, open, seed), reasoning_of(text, tags, open, 0));
    }
  } else {
    expect_equal(harmony_of(text, seed), harmony_of(text, 0));
  }
  return 0;
}
