// A language model that says what a test wants, so that what follows the sampler can be tested with
// answers that no small model gives: calls in every form, reasoning of a known length.
//
//   ASSERT_TRUE(write_scripted_model(path, {.chat_template = "… <|go|>", .answer = pieces}));
//   ktx-compile path -o m.ktxplan, then greedy decoding behind a prompt that ends in <|go|>
//
// Each token decides the next one: attention and feed-forward part add nothing, and the head's
// row of a token is the embedding of the one it follows. The pieces are tokens of their own, so
// each may occur once; any other text is bytes, and what follows a byte means nothing.
#pragma once

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "lib/formats/dtype.h"
#include "lib/input/gguf_writer.h"
#include "lib/support/result.h"
#include "lib/text/tokenizer/byte_alphabet.h"

namespace ktx::testing {

struct ScriptedModel {
  std::string chat_template;               // makes prompts that end in <|go|>
  std::vector<std::string> answer;         // behind it, then the end
  std::vector<std::string> controls = {};  // pieces that are control tokens
  std::string tool_template = "";          // a second one, for requests with tools
};

// `text` in pieces of at most `most` bytes, no two of them equal, cut between characters.
inline std::vector<std::string> pieces_of(const std::string& text, size_t most = 4) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    const auto cut = [&](size_t size) {
      while (at + size < text.size() && (static_cast<uint8_t>(text[at + size]) & 0xC0) == 0x80) {
        ++size;
      }
      return text.substr(at, size);
    };
    size_t size = most;
    while (std::find(out.begin(), out.end(), cut(size)) != out.end()) ++size;
    out.push_back(cut(size));
    at += out.back().size();
  }
  return out;
}

inline Status write_scripted_model(const std::string& path, const ScriptedModel& model) {
  constexpr size_t kHidden = 256, kWidth = 256;
  constexpr int32_t kNormal = 1, kControl = 3, kUserDefined = 4;
  std::vector<std::string> tokens(256);
  std::vector<int32_t> types(256, kNormal);
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    text::append_in_alphabet({&c, 1}, tokens[static_cast<size_t>(byte)]);
  }
  std::map<std::string, size_t> ids;
  const auto add = [&](const std::string& token, int32_t type) {
    if (!ids.emplace(token, tokens.size()).second) return;
    tokens.push_back(token);
    types.push_back(type);
  };
  tokens.emplace_back("ab");  // a vocabulary has at least one merge
  types.push_back(kNormal);
  add("<|stop|>", kControl);
  add("<|go|>", kControl);
  for (const std::string& token : model.controls) add(token, kControl);
  for (const std::string& piece : model.answer) {
    add(piece, kUserDefined);
  }
  while (tokens.size() % 32 != 0) add("[" + std::to_string(tokens.size()) + "]", kNormal);
  const size_t vocab = tokens.size();

  std::vector<size_t> next(vocab, ids["<|stop|>"]);
  size_t last = ids["<|go|>"];
  for (const std::string& piece : model.answer) {
    next[last] = ids[piece];
    last = ids[piece];
  }

  std::mt19937 random(7);
  std::vector<float> table(vocab * kHidden), head(vocab * kHidden, 0.f);
  for (float& x : table) x = random() % 2 == 0 ? 1.f : -1.f;
  // What ends the answer follows many.
  for (size_t id = 0; id < vocab; ++id) {
    if (next[id] == ids["<|stop|>"] && id != last) continue;
    std::copy_n(&table[id * kHidden], kHidden, &head[next[id] * kHidden]);
  }

  input::GgufWriter out;
  const auto tensor = [&](const std::string& name, const std::vector<size_t>& shape,
                          const std::vector<float>& values) {
    const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
    out.add_tensor(name, DType::F32, {shape.begin(), shape.end()},
                   std::vector<std::byte>(bytes, bytes + values.size() * sizeof(float)));
  };
  out.add_string("general.architecture", "llama");
  out.add_string("general.name", "scripted");
  out.add_u32("llama.block_count", 1);
  out.add_u32("llama.context_length", 4096);
  out.add_u32("llama.embedding_length", kHidden);
  out.add_u32("llama.feed_forward_length", kWidth);
  out.add_u32("llama.attention.head_count", 4);
  out.add_u32("llama.attention.head_count_kv", 2);
  out.add_f32("llama.attention.layer_norm_rms_epsilon", 1e-6f);
  out.add_f32("llama.rope.freq_base", 10000.f);
  out.add_string("tokenizer.ggml.model", "gpt2");
  out.add_string("tokenizer.ggml.pre", "gpt-2");
  out.add_strings("tokenizer.ggml.tokens", tokens);
  out.add_i32s("tokenizer.ggml.token_type", types);
  out.add_strings("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
  out.add_u32("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(ids["<|stop|>"]));
  out.add_bool("tokenizer.ggml.add_bos_token", false);
  if (!model.chat_template.empty()) out.add_string("tokenizer.chat_template", model.chat_template);
  if (!model.tool_template.empty()) {
    out.add_string("tokenizer.chat_template.tool_use", model.tool_template);
  }
  tensor("token_embd.weight", {kHidden, vocab}, table);
  tensor("output_norm.weight", {kHidden}, std::vector<float>(kHidden, 1));
  tensor("output.weight", {kHidden, vocab}, head);
  const auto zeros = [&](const std::string& name, size_t cols, size_t rows) {
    tensor("blk.0." + name + ".weight", {cols, rows}, std::vector<float>(cols * rows, 0.f));
  };
  tensor("blk.0.attn_norm.weight", {kHidden}, std::vector<float>(kHidden, 1));
  tensor("blk.0.ffn_norm.weight", {kHidden}, std::vector<float>(kHidden, 1));
  zeros("attn_q", kHidden, kHidden);
  zeros("attn_k", kHidden, kHidden / 2);
  zeros("attn_v", kHidden, kHidden / 2);
  zeros("attn_output", kHidden, kHidden);
  zeros("ffn_gate", kHidden, kWidth);
  zeros("ffn_up", kHidden, kWidth);
  zeros("ffn_down", kWidth, kHidden);
  return out.write(path);
}

}  // namespace ktx::testing
