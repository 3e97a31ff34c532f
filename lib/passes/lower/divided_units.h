// Which parts of a layer several GPUs can compute together, each some of the heads or of the
// columns, and what of each weight a GPU then has (split_steps.cc).
#pragma once

#include <cstddef>
#include <optional>

#include "lib/ir/module_graph.h"
#include "lib/passes/lower/division.h"

namespace ktx::passes {

// The attention, feed-forward part or experts that the module is, or is in; null: none, as norms
// and routers.
const ir::Module* unit_of(const ir::ModuleGraph& modules, const ir::Module& module);

// Whether `gpus` GPUs can each compute an equal part of the unit: heads of attention (KV heads may
// be fewer, and are then shared), of MLA over a copied latent, of delta nets and state spaces with
// their states; channels of short convolutions; columns of a feed-forward part, whole blocks of the
// weights; the vocabulary of the head. Not where a norm goes over all heads, or where layers share
// keys.
bool can_divide(const ir::ModuleGraph& modules, const ir::Module& unit, size_t gpus);

// The rows that GPUs have of a linear in such a unit, of a weight of `rows` rows or of as many
// elements; nothing: each GPU has all of them, or a part of the columns, or they cannot be divided.
std::optional<Division> divided_rows(const ir::ModuleGraph& modules, const ir::Module& linear,
                                     int64_t rows, size_t gpus);

// What GPUs have of `width` elements that the heads of such a unit give, or of numbers for each
// head (decays, sinks).
Division divided_heads(const ir::ModuleGraph& modules, const ir::Module& module, int64_t width,
                       size_t gpus);

// Whether a GPU has a part of the module's weights alone where its unit is divided; else a copy.
bool has_parts(const ir::Module& module);

}  // namespace ktx::passes
