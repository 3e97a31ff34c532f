// A minimal reader of a GGUF file's tokenizer metadata, for tests of lib/text (which may not
// include lib/input). Trusts the file.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lib/support/mapped_file.h"
#include "lib/text/tokenizer/tokenizer_data.h"

namespace ktx::testing {

class GgufTokenizer {
 public:
  explicit GgufTokenizer(MappedFile file) : file_(std::move(file)) {
    at_ = reinterpret_cast<const char*>(file_.bytes().data()) + 8;
    read<uint64_t>();
    for (uint64_t left = read<uint64_t>(); left > 0; --left) {
      const std::string_view key = text();
      value(key, read<uint32_t>());
    }
  }

  text::TokenizerSource source() const {
    text::TokenizerSource s;
    const auto str = [&](const char* key) -> std::string_view {
      const auto it = strings_.find(key);
      return it == strings_.end() || it->second.empty() ? std::string_view() : it->second[0];
    };
    const auto list = [&](const char* key) -> std::span<const std::string_view> {
      const auto it = strings_.find(key);
      if (it == strings_.end()) return {};
      return it->second;
    };
    const auto number = [&](const char* key) -> std::optional<uint64_t> {
      const auto it = numbers_.find(key);
      if (it == numbers_.end()) return std::nullopt;
      return it->second;
    };
    const auto flag = [&](const char* key) -> std::optional<bool> {
      const auto found = number(key);
      if (!found) return std::nullopt;
      return *found != 0;
    };
    s.model = str("tokenizer.ggml.model");
    s.pre = str("tokenizer.ggml.pre");
    s.tokens = list("tokenizer.ggml.tokens");
    s.merges = list("tokenizer.ggml.merges");
    s.scores = scores_;
    s.token_types = types_;
    s.bos = number("tokenizer.ggml.bos_token_id");
    s.eos = number("tokenizer.ggml.eos_token_id");
    s.eot = number("tokenizer.ggml.eot_token_id");
    s.unk = number("tokenizer.ggml.unknown_token_id");
    s.pad = number("tokenizer.ggml.padding_token_id");
    s.add_bos = flag("tokenizer.ggml.add_bos_token");
    s.add_eos = flag("tokenizer.ggml.add_eos_token");
    s.add_space_prefix = flag("tokenizer.ggml.add_space_prefix");
    return s;
  }

 private:
  template <class T>
  T read() {
    T number;
    std::memcpy(&number, at_, sizeof(T));
    at_ += sizeof(T);
    return number;
  }
  std::string_view text() {
    const auto size = read<uint64_t>();
    const std::string_view view(at_, size);
    at_ += size;
    return view;
  }
  void value(std::string_view key, uint32_t type) {
    static constexpr size_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type == 8) {
      strings_[std::string(key)].push_back(text());
    } else if (type == 9) {
      const auto element = read<uint32_t>();
      const auto count = read<uint64_t>();
      for (uint64_t i = 0; i < count; ++i) {
        if (key == "tokenizer.ggml.scores") {
          scores_.push_back(read<float>());
        } else if (key == "tokenizer.ggml.token_type") {
          types_.push_back(read<int32_t>());
        } else {
          value(key, element);
        }
      }
    } else {
      uint64_t number = 0;
      std::memcpy(&number, at_, kSizes[type]);
      at_ += kSizes[type];
      numbers_[std::string(key)] = number;
    }
  }

  MappedFile file_;
  const char* at_ = nullptr;
  std::map<std::string, std::vector<std::string_view>, std::less<>> strings_;
  std::map<std::string, uint64_t, std::less<>> numbers_;
  std::vector<float> scores_;
  std::vector<int32_t> types_;
};

}  // namespace ktx::testing
