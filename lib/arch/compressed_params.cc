// Compressed attention and residual streams (DeepSeek-V4, GLM-5.3-Flash).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "lib/arch/param_part.h"
#include "lib/formats/shape_limits.h"
#include "lib/support/strings.h"

namespace ktx::arch {
namespace {

class CompressedParams : ParamPart {
 public:
  explicit CompressedParams(const ParamPart& part) : ParamPart(part) {}

  // Windows in every layer, and behind them entries in those that the config lists by kind.
  void read_compressed_attention() {
    const int32_t heads = small("num_attention_heads", 1, kMaxHeads);
    const int32_t head_dim = small("head_dim", 2, kMaxHeadDim);
    const int32_t window = small("sliding_window", 1, kMaxWidth);
    p_.q_lora_rank = small("q_lora_rank", 1, kMaxRank);
    p_.rope_dim = small("qk_rope_head_dim", 2, std::max(head_dim, 2));
    p_.output_groups = std::max(small("o_groups", 1, kMaxHeads), 1);
    p_.output_rank = small("o_lora_rank", 1, kMaxRank);
    p_.index_heads = small("index_n_heads", 1, kMaxHeads);
    p_.index_dim = small("index_head_dim", 2, kMaxHeadDim);
    p_.index_top_k = small("index_topk", 1, kMaxChosenPositions);
    expect_even("qk_rope_head_dim", p_.rope_dim);
    if (heads % p_.output_groups != 0) {
      in_.fail(fmt::format("'o_groups' {} does not divide 'num_attention_heads' {}",
                           p_.output_groups, heads));
    }
    if (in_.integer_or_null("num_key_value_heads", 1, kMaxHeads).value_or(1) != 1) {
      in_.fail("'num_key_value_heads' is not 1: heads share one key");
    }
    for (const auto& [key, dim] :
         {std::pair{"head_dim", head_dim}, {"index_head_dim", p_.index_dim}}) {
      if (dim % kCompressedChannels == 0) continue;
      in_.fail(fmt::format("'{}' is {}, expected a multiple of {}", key, dim, kCompressedChannels));
    }
    if (p_.index_dim < p_.rope_dim) {
      in_.fail(fmt::format("'index_head_dim' {} is below 'qk_rope_head_dim' {}", p_.index_dim,
                           p_.rope_dim));
    }
    for (LayerShape& shape : p_.shapes) {
      shape.heads = heads, shape.kv_heads = 1, shape.head_dim = head_dim, shape.window = window;
    }
    read_entries();
    const auto tables = in_.integer("num_hash_layers", 0, kMaxLayers);
    for (size_t i = 0; i < p_.shapes.size(); ++i) {
      p_.shapes[i].expert_table = static_cast<int64_t>(i) < tables;
    }
    if (in_.has("mlp_layer_types")) {
      in_.fail("'mlp_layer_types' has layers with a table of experts behind others: no file has");
    }
  }

  void read_streams() {
    p_.streams = small("hc_mult", 1, kMaxStreams);
    if (family_.has_role(ir::Role::StreamsDownProj)) {
      p_.stream_rank = small("hc_lowrank", 1, kMaxRank);
      return;
    }
    p_.stream_iterations = small("hc_sinkhorn_iters", 1, 1000);
    p_.stream_eps = static_cast<float>(in_.number("hc_eps", 1e-20, 1));
    const families::ModuleRow* head = family_.find_row(ir::Role::HeadStreams);
    p_.mean_of_streams = head != nullptr && head->params[0].name == nullptr;
  }

 private:
  // Published are entries of 4 positions that overlap and are chosen, and of 128, all of which are
  // read.
  void read_entries() {
    const auto types = in_.config().strings("layer_types");
    if (!types || types->size() != p_.shapes.size()) {
      return in_.fail(
          fmt::format("'layer_types' has {} entries for {} layers: it says what attention reads",
                      types ? types->size() : 0, p_.shapes.size()));
    }
    static constexpr struct {
      std::string_view name, rate;
      int32_t every;
      bool indexer;
    } kKinds[] = {
        {"sliding_attention", "", 0, false},
        {"compressed_sparse_attention", "compress_rates.compressed_sparse_attention", 4, true},
        {"heavily_compressed_attention", "compress_rates.heavily_compressed_attention", 128, false},
    };
    for (size_t i = 0; i < p_.shapes.size(); ++i) {
      const auto* const kind =
          std::ranges::find(kKinds, (*types)[i], [](const auto& row) { return row.name; });
      if (kind == std::end(kKinds)) {
        return in_.fail(
            fmt::format("'layer_types' has '{}' for layer {}, expected sliding_attention, "
                        "compressed_sparse_attention or heavily_compressed_attention",
                        printable((*types)[i]), i));
      }
      p_.shapes[i].every = kind->every;
      p_.shapes[i].indexer = kind->indexer;
    }
    for (const auto& kind : kKinds) {
      if (kind.rate.empty()) continue;
      const auto rate = in_.integer_or_null(kind.rate, 1, kMaxCompressed).value_or(kind.every);
      if (rate == kind.every) continue;
      in_.fail(fmt::format("'{}' is {}, expected {}: other entries are in no file", kind.rate, rate,
                           kind.every));
    }
  }
};

}  // namespace

void read_compressed_attention(const ParamPart& part) {
  CompressedParams(part).read_compressed_attention();
}
void read_streams(const ParamPart& part) {
  CompressedParams(part).read_streams();
}

}  // namespace ktx::arch
