// Models with tokens that stand for images.
//
//   write_with_tokens(model, path, {{300, "[IMG]"}, {301, "[IMG_END]"}});
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "lib/input/gguf.h"
#include "lib/input/gguf_writer.h"

namespace ktx::testing {

// The model's file in which those ids are control tokens of these names.
inline void write_with_tokens(const std::string& model, const std::string& path,
                              const std::map<int32_t, std::string>& names) {
  constexpr int32_t kControl = 3;
  const auto gguf = input::GgufFile::open(model);
  ASSERT_TRUE(gguf.ok()) << gguf.error().message;
  input::GgufWriter writer;
  for (const input::GgufValue& value : gguf->metadata()) {
    if (value.key == "tokenizer.ggml.tokens") {
      const auto views = *gguf->strings(value.key);
      std::vector<std::string> tokens(views.begin(), views.end());
      for (const auto& [id, name] : names) tokens.at(static_cast<size_t>(id)) = name;
      writer.add_strings(std::string(value.key), tokens);
    } else if (value.key == "tokenizer.ggml.token_type") {
      const auto all = *value.ints();
      std::vector<int32_t> types(all.begin(), all.end());
      for (const auto& [id, name] : names) types.at(static_cast<size_t>(id)) = kControl;
      writer.add_i32s(std::string(value.key), types);
    } else {
      writer.copy(value);
    }
  }
  for (const input::GgufTensor& tensor : gguf->tensors()) writer.copy(tensor);
  ASSERT_TRUE(writer.write(path));
}

}  // namespace ktx::testing
