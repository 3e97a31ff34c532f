#include "tools/ktx-compile/text_check.h"

#include <fmt/format.h>

#include <filesystem>

#include "lib/support/strings.h"
#include "lib/text/answers/tool_calls.h"
#include "lib/text/chat_template/chat_template.h"
#include "lib/text/chat_template/known_templates.h"
#include "lib/text/chat_template/template_probe.h"
#include "lib/text/chat_template/template_report.h"
#include "lib/text/tokenizer/hf_tokenizer.h"
#include "lib/text/tokenizer/tokenizer.h"

namespace ktx::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSample = "Hello, world: 1 2 3";

// What to do about a template that is missing or does not work.
std::string ways_to_chat() {
  return fmt::format(
      "`ktx-run generate` works without it; for `chat` and `serve` give the format that the model "
      "was trained on, here or there, with --chat-template NAME ({}) or --chat-template-file FILE",
      join(text::known_template_names(), ", "));
}

std::string token_text(const text::TokenizerData& tokenizer, int32_t id) {
  return id >= 0 && static_cast<size_t>(id) < tokenizer.tokens.size()
             ? std::string(tokenizer.tokens[id])
             : "";
}

// Tool calls in an unknown form: the server describes the generic one to the model.
void check_tool_calls(const std::string& source, const text::TemplateProbe& probe,
                      const std::string& file, DiagSink& diags) {
  if (!probe.tools || text::detect_tool_call_format(source) != text::ToolCallFormat::None) return;
  diags
      .warning({file}, "S003",
               "the chat template offers tools, but asks for calls in a form that ktx cannot read")
      .note(fmt::format("forms that it reads: {}", join(text::tool_call_format_names(), ", ")))
      .help(
          "the server has the model call tools in the generic form; `ktx-run serve --tool-format "
          "NAME` chooses another one");
}

void probe(const std::string& source, const plan::PlanChatTemplate& out, const std::string& file,
           DiagSink& diags) {
  Result<text::ChatTemplate> chat = text::ChatTemplate::parse(source);
  if (!chat) {
    diags
        .warning({file}, "S002",
                 "the chat template does not parse, so chat will not work: " + chat.error().message)
        .help(ways_to_chat());
    return;
  }
  const text::TemplateProbe probe = text::probe_template(*chat, out.bos, out.eos);
  if (probe.user) return check_tool_calls(source, probe, file, diags);
  Diagnostic& warning = diags.warning(
      {file}, "S002", "the chat template renders no user message, so chat will not work");
  for (const text::ProbeFailure& failure : probe.failures) {
    if (failure.probe == "user" || failure.probe == "list content") warning.note(failure.message);
  }
  warning.help(ways_to_chat());
}

}  // namespace

void check_tokenizer(const text::TokenizerData& data, const std::string& file, DiagSink& diags) {
  if (data.kind == text::TokenizerKind::Bpe && data.pre == "default") {
    diags
        .warning({file}, "S002",
                 "tokenizer.ggml.pre is missing, so text may be split in another way than the "
                 "model was taught")
        .help("give the right tokenizer with --tokenizer PATH");
  }
  text::TokenizerData copy = data;
  const Result<text::Tokenizer> tokenizer = text::Tokenizer::create(std::move(copy));
  if (!tokenizer) {
    diags.error({file}, "S002", tokenizer.error().message)
        .help("give another tokenizer with --tokenizer PATH");
    return;
  }
  if (!tokenizer->encode(kSample).empty()) return;
  diags.warning({file}, "S002", fmt::format("the tokenizer makes no tokens of '{}'", kSample))
      .help("give another tokenizer with --tokenizer PATH");
}

Result<std::vector<input::ChatTemplate>> templates_to_use(
    const Options& options, const std::vector<input::ChatTemplate>& of_model) {
  const auto chosen =
      KTX_TRY(text::chosen_template(options.chat_template, options.chat_template_file));
  if (!chosen) return of_model;
  std::vector<input::ChatTemplate> templates = {{"", *chosen}};
  // Those for other ends than chat stay.
  for (const input::ChatTemplate& item : of_model) {
    if (!item.name.empty() && item.name != "tool_use") templates.push_back(item);
  }
  return templates;
}

plan::PlanChatTemplate check_chat_template(std::span<const input::ChatTemplate> templates,
                                           const text::TokenizerData& tokenizer,
                                           const std::string& file, DiagSink& diags) {
  plan::PlanChatTemplate out;
  out.bos = token_text(tokenizer, tokenizer.ids.bos);
  out.eos = token_text(tokenizer, tokenizer.ids.eos);
  for (const input::ChatTemplate& item : templates) {
    if (item.name.empty())
      out.source = item.text;
    else
      out.named[item.name] = item.text;
  }
  if (out.source.empty() && tokenizer.of_encoder()) {
    // It has nothing to say.
  } else if (out.source.empty()) {
    diags.note({file}, "S002", "the model has no chat template, so chat needs one to be chosen")
        .help(ways_to_chat());
  } else {
    probe(out.source, out, file, diags);
  }
  const auto with_tools = out.named.find("tool_use");
  if (with_tools != out.named.end()) probe(with_tools->second, out, file, diags);
  return out;
}

void describe_chat_template(const plan::PlanChatTemplate& templates,
                            const std::string& architecture, const std::string& file,
                            DiagSink& diags) {
  const auto describe = [&](const std::string& source, const char* what) {
    const auto report = text::report_template(source, architecture);
    if (source.empty() || !report) return;
    Diagnostic& note = diags.note({file}, "S004", what);
    const std::string lines = text::report_lines(*report);
    for (const std::string_view line : split(lines, '\n')) {
      if (!line.empty()) note.note(std::string(line));
    }
  };
  describe(templates.source, "what the chat template reads and adds");
  const auto with_tools = templates.named.find("tool_use");
  if (with_tools != templates.named.end()) {
    describe(with_tools->second, "what the chat template for tools reads and adds");
  }
}

void check_text_of_folder(const std::string& config_path, DiagSink& diags) {
  std::error_code error;
  const fs::path path(config_path);
  const fs::path folder = fs::is_directory(path, error) ? path : path.parent_path();
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    const std::string file = (folder / name).string();
    if (!fs::exists(file, error)) continue;
    const Result<text::HfTokenizer> hf = text::load_hf_tokenizer(file);
    if (!hf) {
      diags.error({}, "S002", hf.error().message);
      return;
    }
    check_tokenizer(hf->data, file, diags);
    std::vector<input::ChatTemplate> templates;
    if (hf->chat_template) templates.push_back({"", *hf->chat_template});
    describe_chat_template(check_chat_template(templates, hf->data, folder.string(), diags), "",
                           folder.string(), diags);
    return;
  }
}

}  // namespace ktx::tools
