#include "lib/arch/draft_head.h"

#include <fmt/format.h>

#include <cstring>
#include <numeric>
#include <optional>
#include <string_view>

#include "lib/support/strings.h"

namespace ktx::arch {
namespace {

constexpr int64_t kMostHeadTaps = 8;
constexpr const char* kEmbeddingTensor = "token_embd.weight";
constexpr const char* kHeadTensor = "output.weight";
constexpr const char* kMapTensor = "d2t";

class DraftHeadReader {
 public:
  DraftHeadReader(const input::GgufFile& head, const ir::ModelFacts& model, DiagSink& diags)
      : head_(head), model_(model), diags_(diags) {}

  DraftHead run() {
    read_layers();
    const std::string width_key = key("target_hidden_size");
    const auto width = head_.i64(width_key);
    if (width && *width != model_.hidden) {
      fail(
          fmt::format("key '{}' is {}, but hidden states of {} have {} elements; is it the head "
                      "of another model?",
                      width_key, *width, model_.family, model_.hidden));
    }
    facts_.given_norm = flag("norm_before_fc");
    facts_.normed_stream = flag("norm_before_residual");
    if (const input::GgufTensor* map = head_.find(kMapTensor)) read_map(*map);
    return std::move(facts_);
  }

 private:
  std::string key(std::string_view leaf) const {
    return fmt::format("{}.{}", head_.architecture(), leaf);
  }
  void fail(std::string what) { diags_.error({.file = head_.path()}, "T004", std::move(what)); }

  bool flag(std::string_view leaf) {
    const input::GgufValue* value = head_.value(key(leaf));
    if (value == nullptr) return false;
    if (const auto is = value->boolean()) return *is;
    fail(fmt::format("key '{}' is {}, expected true or false", key(leaf), value->describe()));
    return false;
  }

  void read_layers() {
    const std::string name = key("target_layers");
    const auto layers = head_.ints(name);
    if (!layers || layers->empty() || std::ssize(*layers) > kMostHeadTaps) {
      const input::GgufValue* value = head_.value(name);
      return fail(
          fmt::format("key '{}' is {}, expected the 1 to {} layers of the model whose input "
                      "the head reads; convert it again, with the model's folder",
                      name, value != nullptr ? value->describe() : "missing", kMostHeadTaps));
    }
    for (const int64_t layer : *layers) {
      if (layer < 0 || layer > model_.layers) {
        return fail(
            fmt::format("key '{}' names layer {} of a model of {} layers; is it the head of "
                        "another model?",
                        name, layer, model_.layers));
      }
      facts_.layers.push_back(static_cast<int32_t>(layer));
    }
  }

  void read_map(const input::GgufTensor& map) {
    if (map.elems != map.shape[0] || map.dtype != DType::I32) {
      return fail(
          fmt::format("tensor '{}' (tokens of the logits) is no list of integers", kMapTensor));
    }
    if (map.elems > model_.vocab) {
      return fail(fmt::format("tensor '{}' names {} tokens, but the model has {}", kMapTensor,
                              map.elems, model_.vocab));
    }
    facts_.tokens.resize(static_cast<size_t>(map.elems));
    std::iota(facts_.tokens.begin(), facts_.tokens.end(), 0);
    if (!head_.has_data()) return;
    std::vector<bool> seen(static_cast<size_t>(model_.vocab));
    for (int64_t i = 0; i < map.elems; ++i) {
      const int64_t token = element(map, i);
      if (token < 0 || token >= model_.vocab) {
        return fail(
            fmt::format("tensor '{}': logit {} is of token {}, but the model has tokens 0 "
                        "to {}",
                        kMapTensor, i, token, model_.vocab - 1));
      }
      if (seen[static_cast<size_t>(token)]) {
        return fail(
            fmt::format("tensor '{}': logit {} is of token {}, as one before it is; where "
                        "it holds differences of ids, as a checkpoint does, convert the "
                        "head again",
                        kMapTensor, i, token));
      }
      seen[static_cast<size_t>(token)] = true;
      facts_.tokens[static_cast<size_t>(i)] = static_cast<int32_t>(token);
    }
  }

  static int64_t element(const input::GgufTensor& map, int64_t i) {
    const auto at = [&](auto value) {
      std::memcpy(&value, map.bytes.data() + static_cast<size_t>(i) * sizeof(value), sizeof(value));
      return static_cast<int64_t>(value);
    };
    return map.i64 ? at(int64_t{0}) : at(int32_t{0});
  }

  const input::GgufFile& head_;
  const ir::ModelFacts& model_;
  DiagSink& diags_;
  DraftHead facts_;
};

}  // namespace

DraftHead read_draft_head(const input::GgufFile& head, const ir::ModelFacts& model,
                          DiagSink& diags) {
  return DraftHeadReader(head, model, diags).run();
}

std::vector<std::string> shared_tensors(const input::GgufFile& head, const input::GgufFile& model,
                                        DiagSink& diags) {
  std::vector<std::string> shared;
  const auto fail = [&](std::string what) {
    diags.error({.file = head.path()}, "T003", std::move(what));
  };
  const bool own_embedding = head.has(kEmbeddingTensor);
  if (!own_embedding && model.has(kEmbeddingTensor)) shared.emplace_back(kEmbeddingTensor);
  if (!head.has(kHeadTensor)) {
    if (head.has(kMapTensor)) {
      fail(fmt::format("tensor '{}' is missing, and '{}' says that its logits are not the model's",
                       kHeadTensor, kMapTensor));
    } else if (model.has(kHeadTensor)) {
      shared.emplace_back(kHeadTensor);
    } else if (own_embedding) {
      fail(
          fmt::format("tensor '{}' is missing, and the model's own is its embedding, of which the "
                      "head has another one",
                      kHeadTensor));
    }
  }
  const auto width = head.i64(fmt::format("{}.embedding_length", head.architecture()));
  const input::GgufTensor* embedding = model.find(kEmbeddingTensor);
  if (!shared.empty() && width && embedding != nullptr && embedding->shape[0] != *width) {
    fail(
        fmt::format("the head is {} wide and the model {}, so it needs tensors '{}' and '{}' of "
                    "its own",
                    *width, embedding->shape[0], kEmbeddingTensor, kHeadTensor));
  }
  return shared;
}

}  // namespace ktx::arch
