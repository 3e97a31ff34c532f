#include "lib/runtime/engine/logits_rows.h"

namespace ktx::runtime {

Status visit_logits(Engine& engine, int64_t first, int64_t count,
                    const std::function<void(int64_t i, std::span<const float> logits)>& visit) {
  for (int64_t i = 0; i < count; ++i) KTX_TRY(engine.fetch_logits(first + i));
  const auto one = [&](int64_t i) { visit(i, engine.logits(first + i)); };
  if (engine.gpus().empty()) {
    engine.share_out(count, one);
  } else {
    for (int64_t i = 0; i < count; ++i) one(i);
  }
  return {};
}

}  // namespace ktx::runtime
