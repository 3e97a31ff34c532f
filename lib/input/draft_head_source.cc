#include "lib/input/draft_head_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lib/families/family.h"
#include "lib/input/gguf_config.h"
#include "lib/input/tokenizer_source.h"
#include "lib/support/strings.h"

namespace ktx::input {
namespace {

// The tokens that both have: one of the files may have more, as padding.
void compare_tokens(const std::string& path, const text::TextList& head,
                    const text::TextList& model, DiagSink& diags) {
  for (size_t i = 0; i < std::min(head.size(), model.size()); ++i) {
    if (head[i] == model[i]) continue;
    diags.error({path}, "T004",
                fmt::format("its tokenizer is not the model's: token {} is '{}' and there '{}'; is "
                            "it the head of another model?",
                            i, printable(head[i]), printable(model[i])));
    return;
  }
}

}  // namespace

bool is_draft_head(const GgufFile& gguf) {
  return families::find_draft_head(gguf.architecture()) != nullptr;
}

Result<ModelSource> draft_head_source(GgufFile gguf, const ModelSource& model, DiagSink& diags) {
  if (gguf.value("tokenizer.ggml.tokens") != nullptr) {
    const text::TokenizerData tokenizer = KTX_TRY(read_gguf_tokenizer(gguf));
    compare_tokens(gguf.path(), tokenizer.tokens, model.tokenizer.tokens, diags);
  }
  HfConfig config = config_from_gguf(gguf, diags);
  KTX_TRY(gguf.check());
  return ModelSource{std::move(gguf), std::move(config), {}, {}, {}};
}

}  // namespace ktx::input
