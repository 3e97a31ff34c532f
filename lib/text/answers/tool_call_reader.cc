#include "lib/text/answers/tool_call_reader.h"

#include <algorithm>
#include <utility>

#include "lib/text/answers/call_formats.h"

namespace ktx::text {
namespace {

constexpr std::string_view kHermesOpeners[] = {"<tool_call>"};
constexpr std::string_view kQwenCoderOpeners[] = {"<tool_call>", kFunction};
constexpr std::string_view kLlama3Openers[] = {kPythonTag};
constexpr std::string_view kMistralOpeners[] = {kToolCalls};
constexpr std::string_view kDeepSeekOpeners[] = {kCallsBegin, kCallBegin};
constexpr std::string_view kKimiOpeners[] = {kKimiBegin, kKimiCall};
constexpr std::string_view kMiniMaxOpeners[] = {kMiniMaxTags.section, kMiniMaxTags.invoke};
constexpr std::string_view kMiniMaxTrailers[] = {kMiniMaxTags.section_end};
constexpr std::string_view kDsmlOpeners[] = {kDsmlTags.section, kDsmlTags.invoke};
constexpr std::string_view kDsmlTrailers[] = {kDsmlTags.section_end};
constexpr std::string_view kGemmaOpeners[] = {kGemmaCall};
// What the model goes on with where nobody stops it: the place of the result.
constexpr std::string_view kGemmaTrailers[] = {kGemmaResponse};
constexpr std::string_view kLlama3Trailers[] = {";"};
constexpr std::string_view kQwenCoderTrailers[] = {"</tool_call>"};
constexpr std::string_view kDeepSeekTrailers[] = {kCallsEnd};
constexpr std::string_view kKimiTrailers[] = {kKimiEnd};

struct CallFormat {
  ToolCallFormat format;
  std::span<const std::string_view> openers, trailers;
  CallReader reader;
  bool in_tags = false;  // the arguments
};
constexpr CallFormat kFormats[] = {
    {ToolCallFormat::Hermes, kHermesOpeners, {}, read_hermes},
    {ToolCallFormat::Llama3, kLlama3Openers, kLlama3Trailers, read_llama3},
    {ToolCallFormat::Mistral, kMistralOpeners, {}, read_mistral},
    {ToolCallFormat::DeepSeek, kDeepSeekOpeners, kDeepSeekTrailers, read_deepseek},
    {ToolCallFormat::Kimi, kKimiOpeners, kKimiTrailers, read_kimi},
    {ToolCallFormat::Glm, kHermesOpeners, {}, read_glm, true},
    {ToolCallFormat::QwenCoder, kQwenCoderOpeners, kQwenCoderTrailers, read_qwen_coder, true},
    {ToolCallFormat::MiniMax, kMiniMaxOpeners, kMiniMaxTrailers, read_minimax, true},
    {ToolCallFormat::Dsml, kDsmlOpeners, kDsmlTrailers, read_dsml, true},
    {ToolCallFormat::Gemma, kGemmaOpeners, kGemmaTrailers, read_gemma, true},
};

// Null: a model that makes no calls.
const CallFormat* find_format(ToolCallFormat format) {
  const auto found = std::find_if(std::begin(kFormats), std::end(kFormats),
                                  [&](const CallFormat& row) { return row.format == format; });
  return found == std::end(kFormats) ? nullptr : found;
}

}  // namespace

std::span<const std::string_view> call_openers(ToolCallFormat format) {
  const CallFormat* found = find_format(format);
  return found == nullptr ? std::span<const std::string_view>() : found->openers;
}

std::span<const std::string_view> call_trailers(ToolCallFormat format) {
  const CallFormat* found = find_format(format);
  return found == nullptr ? std::span<const std::string_view>() : found->trailers;
}

CallRead read_tool_call(ToolCallFormat format, std::string_view text, bool ended,
                        std::span<const OfferedTool> tools, JsonScan& scan) {
  CallRead read;
  const CallFormat* found = find_format(format);
  if (found == nullptr) return read;
  if (found->in_tags && !ended && text.size() <= kMaxToolCallBytes) {
    // A value goes on until a tag ends: a long one is not read again and again.
    const bool in_value = std::exchange(scan.in_string, false);
    const size_t from = std::exchange(scan.at, text.size());
    if (in_value && text.find('>', from) == std::string_view::npos) {
      scan.in_string = true;
      read.state = CallState::More;
      return read;
    }
  }
  CallCursor in(text, ended, scan);
  read.state = found->reader(in, tools, read);
  read.bytes = in.at();
  const bool too_long = std::max(read.bytes, text.size()) > kMaxToolCallBytes;
  if (too_long && (read.state == CallState::More || read.bytes > kMaxToolCallBytes)) {
    read.state = CallState::No;
  }
  return read;
}

}  // namespace ktx::text
