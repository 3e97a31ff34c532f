// A draft head (EAGLE-3): what its GGUF says of the model that it drafts for, checked against
// that model.
//
//   GgufFile head = KTX_TRY(GgufFile::open("eagle3.gguf", {.tables = true}));
//   DraftHead facts = read_draft_head(head, model_graph.facts, diags);
//   head.borrow(reopened_model, shared_tensors(head, model, diags));
//   ... build_head_graph(source_of_head, facts, model_graph.facts, diags)
//
// Safe for untrusted files: after errors in `diags` the facts must not be used.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/input/gguf.h"
#include "lib/ir/module_graph.h"
#include "lib/support/diag.h"

namespace ktx::arch {

struct DraftHead {
  // The hidden states that it reads, in their order: what these layers of the model read; the
  // number of its layers is what its last layer gives.
  std::vector<int32_t> layers;
  bool given_norm = false;
  bool normed_stream = false;
  // The model's token of each logit, each at most once; empty: they are of all tokens. From a
  // header alone 0, 1, 2 ...
  std::vector<int32_t> tokens;
};

DraftHead read_draft_head(const input::GgufFile& head, const ir::ModelFacts& model,
                          DiagSink& diags);

// The model's tensors that the head takes for those that it has not.
std::vector<std::string> shared_tensors(const input::GgufFile& head, const input::GgufFile& model,
                                        DiagSink& diags);

}  // namespace ktx::arch
