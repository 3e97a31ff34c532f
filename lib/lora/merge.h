// Adapters that are merged into weights while these are packed (ktx-compile --merge).
//
//   Merge merge = KTX_TRY(Merge::make(adapters, gguf, graph));
//   const MergedTensor* terms = merge.find("blk.0.attn_q.weight");   // null: no adapter changes it
//   terms->add_to(row, 0, x);        // x: row `row` of the tensor in F32, from column 0 on
//
// Linear layers, heads, routers and routed experts can be changed, of every format that ktx can
// round to (lib/formats/quantize_row.h).
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/formats/lora_adapter.h"
#include "lib/input/gguf.h"
#include "lib/ir/module_graph.h"
#include "lib/support/result.h"

namespace ktx::lora {

// What adapters add to a tensor: of each, scale * B A.
class MergedTensor {
 public:
  void add(const LoraPair& pair, float scale) { terms_.push_back({&pair, scale * pair.scale}); }
  // To elements [begin, begin + x.size()) of a row; rows of all matrices are counted through.
  void add_to(int64_t row, int64_t begin, std::span<float> x) const;

 private:
  struct Term {
    const LoraPair* pair;
    float scale;
  };
  std::vector<Term> terms_;
};

class Merge {
 public:
  // Each at its LoraAdapter::scale. Fails if one is for another model, or changes what cannot be
  // merged; the error lists up to 8 faults.
  static Result<Merge> make(std::vector<std::shared_ptr<const LoraAdapter>> adapters,
                            const input::GgufFile& gguf, const ir::ModuleGraph& graph);

  const MergedTensor* find(std::string_view tensor) const;
  const std::vector<std::string>& texts() const { return texts_; }  // "poet at scale 0.5"

 private:
  std::vector<std::shared_ptr<const LoraAdapter>> adapters_;
  std::vector<std::string> texts_;
  std::map<std::string, MergedTensor, std::less<>> tensors_;
};

}  // namespace ktx::lora
