// Compiles fuzzer input as a GBNF (first byte even) or as a JSON Schema, from 128 on as a
// regular expression or as the schema of a tool that must be called. Then samples an answer,
// with the input's bytes as random numbers: a token that the mask allows must be accepted, and
// a finished answer to a schema must parse.
//
//   cmake --preset fuzz && ninja -C build-fuzz fuzz_grammar
//   build-fuzz/tests/fuzz/fuzz_grammar tests/fuzz/corpus/grammar
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <span>

#include "lib/text/grammar/grammar.h"

namespace {

using namespace ktx::text;
using ktx::Result;

constexpr int32_t kEnd = 256;

std::shared_ptr<const GrammarVocabulary> vocabulary() {
  static const auto made = [] {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    tokens.emplace_back("");
    for (const char* piece : {"{\"", "\":", "\", \"", "\"}", "]]", "a", "ab", "12", "\n  ", "null",
                              "é", "\xE4\xBD", "\xA0x", "\\u", "}, {"}) {
      tokens.emplace_back(piece);
    }
    return GrammarVocabulary::create(std::move(tokens), {kEnd});
  }();
  return made;
}

Result<Grammar> compile(uint8_t form, std::string text) {
  const bool is_schema = form % 2 != 0;
  if (form < 128) {
    return Grammar::compile({is_schema ? GrammarKind::JsonSchema : GrammarKind::Gbnf, text},
                            vocabulary());
  }
  if (!is_schema) return Grammar::compile({GrammarKind::Regex, text}, vocabulary());
  const CallableTool tool = {"f", nlohmann::ordered_json::parse(text, nullptr, false), "tools[0]"};
  return Grammar::compile_tool_call(std::span(&tool, 1), vocabulary());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const bool is_schema = data[0] % 2 != 0;
  const auto grammar =
      compile(data[0], std::string(reinterpret_cast<const char*>(data) + 1, size - 1));
  if (!grammar.ok()) return 0;
  GrammarState state(*grammar);
  std::vector<uint32_t> mask(vocabulary()->mask_words());
  std::string text;
  uint64_t dice = size;
  for (size_t step = 0; step < 60; ++step) {
    if (!state.fill_mask(mask)) return 0;  // a stack too deep, or too many ways
    dice = dice * 6364136223846793005u + data[step % size] + 1;
    std::vector<int32_t> allowed;
    for (size_t t = 0; t < vocabulary()->size(); ++t) {
      if (mask[t / 32] >> (t % 32) & 1) allowed.push_back(static_cast<int32_t>(t));
    }
    const int32_t token = allowed[(dice >> 33) % allowed.size()];
    if (!state.accept(token)) {
      if (state.exhausted()) return 0;
      std::abort();
    }
    if (token == kEnd) {
      if (is_schema && !nlohmann::json::accept(text)) std::abort();
      return 0;
    }
    text += vocabulary()->token_text(token);
  }
  return 0;
}
