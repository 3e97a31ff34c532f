// Builds the module graph from a family's data and a model's config and tensors.
//
//   ir::ModuleGraph graph = KTX_TRY(build_graph(source, diags));
//   if (diags.errors() > 0) ...
//
// The Result is an error for an unknown architecture and for an unusable config (`diags` then has
// each such key as well). Missing tensors, and tensors that contradict the config, are errors in
// `diags` only: the graph is complete but must not be compiled. Safe for untrusted models. Reads no
// weights except the few floats of rope_freqs.weight and of rope_factors_*.weight.
#pragma once

#include "lib/arch/draft_head.h"
#include "lib/families/family.h"
#include "lib/input/hf_config.h"
#include "lib/input/model_source.h"
#include "lib/ir/module_graph.h"
#include "lib/support/diag.h"
#include "lib/support/result.h"

namespace ktx::arch {

// The context of a plan where --ctx does not say; less where the model's is.
inline constexpr int64_t kDefaultCtx = 4096;

// `ctx`: of the plan, by which longrope's factors are chosen; 0: kDefaultCtx, below 0: all that the
// model was made for.
Result<ir::ModuleGraph> build_graph(const input::ModelSource& source, DiagSink& diags,
                                    int64_t ctx = 0);

// From a config alone: tensors have the shapes it asks for and the types that a
// Q4_K_M file usually has.
Result<ir::ModuleGraph> build_graph(const input::HfConfig& config, DiagSink& diags,
                                    int64_t ctx = 0);

// The same for either; `gguf` may be null.
Result<ir::ModuleGraph> build_graph(const input::HfConfig& config, const input::GgufFile* gguf,
                                    DiagSink& diags, int64_t ctx = 0);

// The first of the layers for multi-token prediction that the file has behind the model's, with the
// embedding and the head that it needs (lib/families/prediction_rows.h): a graph that is lowered
// like a model's, and runs beside it. An error where the file has none, or where those of the
// family are not known.
Result<ir::ModuleGraph> build_prediction_graph(const input::ModelSource& source, DiagSink& diags,
                                               int64_t ctx = 0);

// A draft head that drafts for a model: a graph that is lowered like a model's, and runs beside
// it. `facts`: read_draft_head(); tensors that it shares with the model are among those of `head`.
Result<ir::ModuleGraph> build_head_graph(const input::ModelSource& head, const DraftHead& facts,
                                         const ir::ModelFacts& model, DiagSink& diags,
                                         int64_t ctx = 0);

// What reads images for a model (lib/input/tower_source.h): lowered like a model's, and run beside
// it.
Result<ir::ModuleGraph> build_tower_graph(const input::ModelSource& tower, DiagSink& diags);

// The family that a config means, by model_type, then by its architectures; an
// unknown one is an error with the nearest names and the list.
Result<const families::Family*> pick_architecture(const input::HfConfig& config);
// For ModelInputs::accept: fails where pick_architecture() does, and for families that are no
// models but stand beside one.
Status accept_architecture(const input::HfConfig& config);

}  // namespace ktx::arch
