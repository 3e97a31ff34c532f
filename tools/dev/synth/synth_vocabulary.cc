#include <fmt/format.h>

#include "tools/dev/synth/synth_model.h"

namespace ktx::synth {
namespace {

constexpr int32_t kNormal = 1, kControl = 3, kUnused = 5;

constexpr const char* kChatMl =
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' "
    "}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

std::string utf8(uint32_t code) {
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
}

// The 256 characters that stand for bytes in GPT-2's alphabet: printable Latin-1 as
// itself, the rest from U+0100 on.
std::vector<std::string> byte_tokens() {
  std::vector<std::string> tokens;
  uint32_t next = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    tokens.push_back(utf8(printable ? byte : next++));
  }
  return tokens;
}

Status copy_vocabulary(input::GgufWriter& writer, int64_t size, const input::GgufFile& other) {
  const auto tokens = other.strings("tokenizer.ggml.tokens");
  if (!tokens) return Error{fmt::format("{}: has no tokens", other.path())};
  const auto missing = size - static_cast<int64_t>(tokens->size());
  if (missing < 0) {
    return Error{fmt::format("{}: has {} tokens, expected at most vocab_size, {}", other.path(),
                             tokens->size(), size)};
  }
  for (const input::GgufValue& value : other.metadata()) {
    if (!value.key.starts_with("tokenizer.")) continue;
    if (value.key == "tokenizer.ggml.tokens") {
      std::vector<std::string> all(tokens->begin(), tokens->end());
      for (int64_t i = 0; i < missing; ++i) all.push_back(fmt::format("[PAD{}]", all.size()));
      writer.add_strings("tokenizer.ggml.tokens", all);
    } else if (value.key == "tokenizer.ggml.token_type" && value.ints()) {
      const auto types = *value.ints();
      std::vector<int32_t> all(types.begin(), types.end());
      all.resize(static_cast<size_t>(size), kUnused);
      writer.add_i32s("tokenizer.ggml.token_type", all);
    } else if (value.key == "tokenizer.ggml.scores" && value.floats()) {
      std::vector<float> all = *value.floats();
      all.resize(static_cast<size_t>(size), -10000.f);
      writer.add_f32s("tokenizer.ggml.scores", all);
    } else {
      writer.copy(value);
    }
  }
  return {};
}

}  // namespace

Status add_vocabulary(input::GgufWriter& writer, int64_t size, const input::GgufFile* other) {
  if (other) return copy_vocabulary(writer, size, *other);
  std::vector<std::string> tokens = byte_tokens();
  std::vector<int32_t> types(tokens.size(), kNormal);
  const std::vector<std::string> merges = {"Ġ t", "h e", "Ġ a", "Ġt he", "i n"};
  for (std::string merge : merges) {
    merge.erase(merge.find(' '), 1);
    tokens.push_back(merge);
    types.push_back(kNormal);
  }
  const auto end = static_cast<uint32_t>(tokens.size());
  for (const char* text : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
    tokens.emplace_back(text);
    types.push_back(kControl);
  }
  if (size < static_cast<int64_t>(tokens.size())) {
    return Error{fmt::format("vocab_size is {}, expected at least {}", size, tokens.size())};
  }
  for (int64_t i = static_cast<int64_t>(tokens.size()); i < size; ++i) {
    tokens.push_back(fmt::format("Ġw{}", i));
    types.push_back(kNormal);
  }
  writer.add_string("tokenizer.ggml.model", "gpt2");
  writer.add_string("tokenizer.ggml.pre", "qwen2");
  writer.add_strings("tokenizer.ggml.tokens", tokens);
  writer.add_i32s("tokenizer.ggml.token_type", types);
  writer.add_strings("tokenizer.ggml.merges", merges);
  writer.add_u32("tokenizer.ggml.eos_token_id", end + 2);
  writer.add_u32("tokenizer.ggml.padding_token_id", end);
  writer.add_bool("tokenizer.ggml.add_bos_token", false);
  writer.add_string("tokenizer.chat_template", kChatMl);
  return {};
}

}  // namespace ktx::synth
