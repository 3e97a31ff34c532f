#include "lib/input/other_ggufs.h"

#include <fmt/format.h>

#include <string_view>

#include "lib/families/family.h"
#include "lib/support/strings.h"

namespace ktx::input {
namespace {

constexpr std::string_view Adapter = "adapter.type";
constexpr std::string_view Architecture = "general.architecture";
constexpr std::string_view Type = "general.type";

struct Row {
  std::string_view key;
  std::string_view value;
  std::string_view what;
  std::string_view mend;
};

constexpr Row kRows[] = {
#define KTX_OTHER_GGUF(key, value, what, mend) {key, value, what, mend},
#include "lib/input/other_ggufs.def"
#undef KTX_OTHER_GGUF
};

std::string_view text_of(const GgufFile& gguf, std::string_view key) {
  const GgufValue* value = gguf.value(key);
  return value ? value->string().value_or("") : std::string_view();
}

}  // namespace

Status check_language_model(const GgufFile& gguf) {
  for (const Row& row : kRows) {
    if (text_of(gguf, row.key) != row.value) continue;
    return Error{
        fmt::format("{}: this is {} ({} is '{}'), not a causal language model; {} [KTX-C002]",
                    gguf.path(), row.what, row.key, row.value, row.mend)};
  }
  if (const families::Family* head = families::find_draft_head(gguf.architecture())) {
    return Error{
        fmt::format("{}: this is a draft head ({}), not a causal language model; give the GGUF of "
                    "the model that it drafts for, and this file with --draft [KTX-C002]",
                    gguf.path(), head->draft_head)};
  }
  const std::string_view type = text_of(gguf, Type);
  if (!type.empty() && type != "model") {
    return Error{
        fmt::format("{}: general.type is '{}', not 'model'; give the GGUF of a language "
                    "model [KTX-C002]",
                    gguf.path(), printable(type))};
  }
  if (!gguf.tensors().empty()) return {};
  return Error{fmt::format("{}: holds no weights{}; give the GGUF of the model itself [KTX-T003]",
                           gguf.path(),
                           gguf.value("tokenizer.ggml.tokens") ? ", a vocabulary only" : "")};
}

}  // namespace ktx::input
