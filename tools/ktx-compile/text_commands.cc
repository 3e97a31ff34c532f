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

Result<std::string> template_text(const Options& options, text::RenderInput& base) {
  std::string source;
  if (!options.model.empty()) {
    const input::GgufFile gguf = KTX_TRY(open_header(options.model));
    for (const input::ChatTemplate& item : input::gguf_chat_templates(gguf)) {
      if (item.name.empty()) source = item.text;
    }
    const text::TokenizerData tokenizer = KTX_TRY(input::read_gguf_tokenizer(gguf));
    if (tokenizer.ids.bos >= 0) base.bos_token = std::string(tokenizer.tokens[tokenizer.ids.bos]);
    if (tokenizer.ids.eos >= 0) base.eos_token = std::string(tokenizer.tokens[tokenizer.ids.eos]);
  }
  if (!options.chat_template_file.empty()) {
    return read_text_file(options.chat_template_file);
  }
  if (source.empty()) {
    return Error{
        fmt::format("{}: the model has no chat template; give one with --template", options.model)};
  }
  return source;
}

Status render_chat(const Options& options) {
  text::RenderInput base;
  const std::string source = KTX_TRY(template_text(options, base));
  if (options.bos) base.bos_token = *options.bos;
  if (options.eos) base.eos_token = *options.eos;
  base.extra = options.template_vars;
  if (!options.now.empty()) base.now = KTX_TRY(text::parse_time(options.now));
  const text::ChatTemplate chat = KTX_TRY(text::ChatTemplate::parse(source));
  const std::string chat_case = KTX_TRY(read_piped_text(*options.render_chat_case)).text;
  const Result<std::string> prompt = text::render_chat_case(chat, chat_case, base);
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
