#include "tools/ktx-compile/text_commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lib/input/gguf.h"
#include "lib/input/model_source.h"
#include "lib/input/other_ggufs.h"
#include "lib/input/tokenizer_source.h"
#include "lib/support/mapped_file.h"
#include "lib/support/piped_text.h"
#include "lib/text/chat_template/chat_case.h"
#include "lib/text/chat_template/chat_template.h"
#include "lib/text/tokenizer/hf_tokenizer.h"
#include "lib/text/tokenizer/tokenizer.h"
#include "tools/ktx-compile/text_check.h"

namespace ktx::tools {
namespace {

int fail(const std::string& message) {
  fmt::print(stderr, "ktx-compile: error: {}\n", message);
  return 1;
}

// Vocabulary-only files have no tensors: they are opened as headers.
Result<input::GgufFile> open_header(const std::string& path) {
  return input::GgufFile::open(path, {.header_only_ok = true});
}

Result<text::TokenizerData> tokenizer_of(const Options& options) {
  if (!options.tokenizer.empty()) return KTX_TRY(text::load_hf_tokenizer(options.tokenizer)).data;
  const input::GgufFile gguf = KTX_TRY(open_header(options.model));
  // Encoders have one; a projector is to be named as such.
  if (!gguf.value("tokenizer.ggml.model")) KTX_TRY(input::check_language_model(gguf));
  return input::read_gguf_tokenizer(gguf);
}

Status tokenize(const Options& options) {
  // An empty file is an empty text, not a mistake.
  const std::string text = KTX_TRY(read_piped_text(*options.tokenize_file, size_t{1} << 30)).text;
  const text::Tokenizer tokenizer =
      KTX_TRY(text::Tokenizer::create(KTX_TRY(tokenizer_of(options))));
  const std::vector<int32_t> ids = tokenizer.encode(text, {.parse_special = options.parse_special});
  fmt::print("[{}]\n", fmt::join(ids, ","));
  return {};
}

// The templates of a case: without tools, and with some, where the model has its own for them.
struct CaseTemplates {
  std::string plain, with_tools;
};

Result<CaseTemplates> templates_of(const Options& options, text::RenderInput& base) {
  std::vector<input::ChatTemplate> templates;
  if (!options.model.empty()) {
    const input::GgufFile gguf = KTX_TRY(open_header(options.model));
    templates = input::gguf_chat_templates(gguf);
    const text::TokenizerData tokenizer = KTX_TRY(input::read_gguf_tokenizer(gguf));
    if (tokenizer.ids.bos >= 0) base.bos_token = std::string(tokenizer.tokens[tokenizer.ids.bos]);
    if (tokenizer.ids.eos >= 0) base.eos_token = std::string(tokenizer.tokens[tokenizer.ids.eos]);
  }
  CaseTemplates out;
  for (const input::ChatTemplate& item : KTX_TRY(templates_to_use(options, templates))) {
    if (item.name.empty()) out.plain = item.text;
    if (item.name == "tool_use") out.with_tools = item.text;
  }
  if (out.plain.empty()) out.plain = out.with_tools;
  if (out.with_tools.empty()) out.with_tools = out.plain;
  if (!out.plain.empty()) return out;
  return Error{
      fmt::format("{}: the model has no chat template; choose one with --chat-template NAME or "
                  "--chat-template-file FILE",
                  options.model)};
}

Status render_chat(const Options& options) {
  text::RenderInput base;
  const CaseTemplates templates = KTX_TRY(templates_of(options, base));
  if (options.bos) base.bos_token = *options.bos;
  if (options.eos) base.eos_token = *options.eos;
  base.extra = options.template_vars;
  if (!options.now.empty()) base.now = KTX_TRY(text::parse_time(options.now));
  const std::string chat_case = KTX_TRY(read_piped_text(*options.render_chat_case)).text;
  const auto render = [&]() -> Result<std::string> {
    const text::RenderInput input = KTX_TRY(text::parse_chat_case(chat_case, base));
    const bool with_tools = input.tools.is_array() && !input.tools.empty();
    const text::ChatTemplate chat =
        KTX_TRY(text::ChatTemplate::parse(with_tools ? templates.with_tools : templates.plain));
    return text::render_chat_case(chat, chat_case, base);
  };
  const Result<std::string> prompt = render();
  if (!prompt) {
    return Error{
        fmt::format("{}: {}", piped_text_name(*options.render_chat_case), prompt.error().message)};
  }
  fmt::print("{}", *prompt);
  return {};
}

}  // namespace

int run_tokenize(const Options& options) {
  const Status status = tokenize(options);
  return status ? 0 : fail(status.error().message);
}

int run_render_chat(const Options& options) {
  const Status status = render_chat(options);
  return status ? 0 : fail(status.error().message);
}

}  // namespace ktx::tools
