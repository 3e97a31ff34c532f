// Streams of AltUp, low-rank residuals and gates of which a share is left out (Gemma 3n); attention
// over earlier streams (Kimi-K3).
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "lib/arch/param_part.h"
#include "lib/formats/shape_limits.h"

namespace ktx::arch {
namespace {

class AltUpParams : ParamPart {
 public:
  explicit AltUpParams(const ParamPart& part) : ParamPart(part) {}

  void read() {
    p_.streams = small("altup_num_inputs", 2, kMaxStreams);
    p_.active_stream = small("altup_active_idx", 0, std::max(p_.streams - 1, 0));
    p_.laurel_rank = small("laurel_rank", 1, kMaxRank);
    if (!in_.flag("altup_correct_scale").value_or(true)) {
      in_.fail("'altup_correct_scale' is false: a file has scales, and does not say that");
    }
    read_sparsity();
  }

 private:
  // Where nothing says it, the first layers of a large model are sparse.
  void read_sparsity() {
    constexpr int32_t kSparseLayers = 10;
    constexpr float kSparsity = 0.95f;
    const auto list = in_.config().floats("activation_sparsity_pattern");
    if (!in_.has("activation_sparsity_pattern")) {
      for (int32_t i = 0; p_.layers > kSparseLayers && i < kSparseLayers; ++i) {
        p_.shapes[i].sparsity = kSparsity;
      }
      return;
    }
    if (!list || list->size() != p_.shapes.size() ||
        !std::ranges::all_of(*list, [](double share) { return share >= 0 && share < 1; })) {
      return in_.fail(
          fmt::format("'activation_sparsity_pattern' is no list of a share, 0 or above and below "
                      "1, for each of {} layers",
                      p_.shapes.size()));
    }
    for (size_t i = 0; i < p_.shapes.size(); ++i) {
      p_.shapes[i].sparsity = static_cast<float>((*list)[i]);
    }
  }
};

class SourceParams : ParamPart {
 public:
  explicit SourceParams(const ParamPart& part) : ParamPart(part) {}

  void read() {
    p_.source_block = small("attn_res_block_size", 1, kMaxLayers);
    const int32_t blocks = (p_.layers + p_.source_block - 1) / std::max(p_.source_block, 1);
    if (blocks < kMaxStreams) return;
    in_.fail(
        fmt::format("'attn_res_block_size' {} makes {} blocks of {} layers, expected at most "
                    "{}",
                    p_.source_block, blocks, p_.layers, kMaxStreams - 1));
  }
};

}  // namespace

void read_altup(const ParamPart& part) {
  AltUpParams(part).read();
}
void read_sources(const ParamPart& part) {
  SourceParams(part).read();
}

}  // namespace ktx::arch
