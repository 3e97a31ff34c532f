#include "lib/text/answers/tool_call_reader.h"

#include <algorithm>
#include <utility>

#include "lib/text/answers/call_formats.h"

namespace ktx::text {
namespace {

using Markers = std::span<const std::string_view>;

constexpr std::string_view kHermesOpeners[] = {"<tool_call>"};
constexpr std::string_view kHermesTrailers[] = {"</tool_call>"};
constexpr std::string_view kQwenCoderOpeners[] = {"<tool_call>", kSeedCall, kFunction};
constexpr std::string_view kQwenCoderTrailers[] = {"</function>", "</tool_call>",
                                                   "</seed:tool_call>"};
constexpr std::string_view kLlama3Openers[] = {kPythonTag};
constexpr std::string_view kLlama3Trailers[] = {";"};
constexpr std::string_view kMistralOpeners[] = {kToolCalls};
constexpr std::string_view kNemotronOpeners[] = {kNemotronCalls};
constexpr std::string_view kNemotronTrailers[] = {kNemotronCallsEnd};
constexpr std::string_view kPythonOpeners[] = {kPythonCalls};
constexpr std::string_view kPythonTrailers[] = {kPythonCallsEnd};
constexpr std::string_view kDeepSeekOpeners[] = {kCallsBegin, kCallBegin};
constexpr std::string_view kDeepSeekTrailers[] = {kCallEnd, kCallsEnd};
constexpr std::string_view kKimiOpeners[] = {kKimiBegin, kKimiCall};
constexpr std::string_view kKimiTrailers[] = {kKimiCallEnd, kKimiEnd};
constexpr std::string_view kMiniMaxOpeners[] = {kMiniMaxTags.section, kMiniMaxTags.invoke};
constexpr std::string_view kMiniMaxTrailers[] = {kMiniMaxTags.invoke_end, kMiniMaxTags.section_end};
constexpr std::string_view kDsmlOpeners[] = {kDsmlTags.section, kDsmlTags.later_section,
                                             kDsmlTags.invoke};
constexpr std::string_view kDsmlTrailers[] = {kDsmlTags.invoke_end, kDsmlTags.section_end,
                                              kDsmlTags.later_section_end};
constexpr std::string_view kAtemOpeners[] = {kAtemTags.section, kAtemTags.invoke};
constexpr std::string_view kAtemTrailers[] = {kAtemTags.invoke_end, kAtemTags.section_end};
constexpr std::string_view kKimiK3Openers[] = {kKimiK3Tags.section, kKimiK3Tags.invoke};
constexpr std::string_view kKimiK3Trailers[] = {kKimiK3Tags.invoke_end, kKimiK3Tags.section_end,
                                                kKimiK3End};
constexpr std::string_view kGemmaOpeners[] = {kGemmaCall};
// The last one is what the model goes on with where nothing stops it: the place of the result.
constexpr std::string_view kGemmaTrailers[] = {kGemmaCallEnd, kGemmaResponse};

struct CallFormat {
  ToolCallFormat format;
  Markers openers, trailers;
  std::string_view end;
  CallReader reader;
  bool in_tags = false;  // the arguments
};
constexpr CallFormat kFormats[] = {
    {ToolCallFormat::Hermes, kHermesOpeners, kHermesTrailers, "</tool_call>", read_hermes},
    {ToolCallFormat::Llama3, kLlama3Openers, kLlama3Trailers, "", read_llama3},
    {ToolCallFormat::Mistral, kMistralOpeners, {}, "", read_mistral},
    {ToolCallFormat::Nemotron, kNemotronOpeners, kNemotronTrailers, kNemotronCallsEnd,
     read_nemotron},
    {ToolCallFormat::Python, kPythonOpeners, kPythonTrailers, kPythonCallsEnd, read_python, true},
    {ToolCallFormat::DeepSeek, kDeepSeekOpeners, kDeepSeekTrailers, kCallEnd, read_deepseek},
    {ToolCallFormat::Kimi, kKimiOpeners, kKimiTrailers, kKimiCallEnd, read_kimi},
    {ToolCallFormat::Glm, kHermesOpeners, kHermesTrailers, "</tool_call>", read_glm, true},
    {ToolCallFormat::QwenCoder, kQwenCoderOpeners, kQwenCoderTrailers, "</function>",
     read_qwen_coder, true},
    {ToolCallFormat::MiniMax, kMiniMaxOpeners, kMiniMaxTrailers, kMiniMaxTags.invoke_end,
     read_minimax, true},
    {ToolCallFormat::Dsml, kDsmlOpeners, kDsmlTrailers, kDsmlTags.invoke_end, read_dsml, true},
    {ToolCallFormat::Atem, kAtemOpeners, kAtemTrailers, kAtemTags.invoke_end, read_atem, true},
    {ToolCallFormat::KimiK3, kKimiK3Openers, kKimiK3Trailers, kKimiK3Tags.invoke_end, read_kimi_k3,
     true},
    {ToolCallFormat::Gemma, kGemmaOpeners, kGemmaTrailers, kGemmaCallEnd, read_gemma, true},
};

// Null: a model that makes no calls.
const CallFormat* find_format(ToolCallFormat format) {
  const auto found = std::find_if(std::begin(kFormats), std::end(kFormats),
                                  [&](const CallFormat& row) { return row.format == format; });
  return found == std::end(kFormats) ? nullptr : found;
}

}  // namespace

Markers call_openers(ToolCallFormat format) {
  const CallFormat* found = find_format(format);
  return found == nullptr ? Markers() : found->openers;
}

Markers call_trailers(ToolCallFormat format) {
  const CallFormat* found = find_format(format);
  return found == nullptr ? Markers() : found->trailers;
}

std::string_view call_end(ToolCallFormat format) {
  const CallFormat* found = find_format(format);
  return found == nullptr ? std::string_view() : found->end;
}

CallRead read_tool_call(ToolCallFormat format, std::string_view text, bool ended,
                        std::span<const OfferedTool> tools, CallScan& scan) {
  CallRead read;
  const CallFormat* found = find_format(format);
  if (found == nullptr) return read;
  // No more is read of one that is too long: it breaks off at the same byte however it comes.
  const bool too_long = text.size() > kMaxToolCallBytes;
  if (too_long) text = text.substr(0, kMaxToolCallBytes + 1);
  if (found->in_tags && !ended && !too_long) {
    // A value goes on until a tag ends: a long one is not read again and again.
    const bool in_value = std::exchange(scan.in_value, false);
    const size_t from = std::exchange(scan.read, text.size());
    if (in_value && text.find('>', from) == std::string_view::npos) {
      scan.in_value = true;
      read.state = CallState::More;
      return read;
    }
  }
  CallCursor in(text, ended && !too_long, scan);
  read.state = found->reader(in, tools, read);
  read.bytes = in.at();
  if (too_long && (read.state == CallState::More || read.bytes > kMaxToolCallBytes)) {
    read.state = CallState::No;
  }
  return read;
}

}  // namespace ktx::text
