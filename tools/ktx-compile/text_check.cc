#include "tools/ktx-compile/chat_template_check.h"

#include <fmt/format.h>

#include "lib/text/chat_template/chat_template.h"
#include "lib/text/chat_template/template_probe.h"
#include "lib/text/tokenizer.h"

namespace ktx::tools {
namespace {

std::string token_text(const text::TokenizerData& tokenizer, int32_t id) {
  return id >= 0 && static_cast<size_t>(id) < tokenizer.tokens.size()
             ? std::string(tokenizer.tokens[id])
             : "";
}

void probe(const std::string& source, const plan::PlanChatTemplate& out, DiagSink& diags) {
  Result<text::ChatTemplate> chat = text::ChatTemplate::parse(source);
  if (!chat) {
    diags.warning(
        {}, "", "the chat template does not parse, so chat will not work: " + chat.error().message);
    return;
  }
  const text::TemplateProbe probe = text::probe_template(*chat, out.bos, out.eos);
  if (probe.user) return;
  Diagnostic& warning =
      diags.warning({}, "", "the chat template renders no user message, so chat will not work");
  for (const text::ProbeFailure& failure : probe.failures) {
    warning.note(fmt::format("{}: {}", failure.probe, failure.message));
  }
}

}  // namespace

plan::PlanChatTemplate check_chat_template(std::span<const input::ChatTemplate> templates,
                                           const text::TokenizerData& tokenizer, DiagSink& diags) {
  plan::PlanChatTemplate out;
  out.bos = token_text(tokenizer, tokenizer.ids.bos);
  out.eos = token_text(tokenizer, tokenizer.ids.eos);
  for (const input::ChatTemplate& item : templates) {
    if (item.name.empty())
      out.source = item.text;
    else
      out.named[item.name] = item.text;
  }
  if (out.source.empty()) {
    diags.note({}, "", "the model has no chat template: `ktx-run generate` works, `chat` does not");
  } else {
    probe(out.source, out, diags);
  }
  return out;
}

}  // namespace ktx::tools
