// What the plans within a plan have in common: a file beside the output while they are made,
// findings that say whose they are ("the drafter: ..."), and their part of the target's GPUs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "lib/ir/module_graph.h"
#include "lib/passes/pass.h"
#include "lib/plan/memory.h"
#include "lib/plan/plan_reader.h"
#include "lib/support/diag.h"
#include "lib/support/result.h"

namespace ktx::tools {

// Removes the file at its end.
struct RemoveFile {
  void operator()(std::string* path) const;
};
using OwnFile = std::unique_ptr<std::string, RemoveFile>;

// The first error of those that a stage found, else `otherwise`. `whose`: "the drafter".
Error first_error(const DiagSink& sink, std::string_view whose, const std::string& otherwise);
// What is no error goes to those of the model.
void hand_on_warnings(const DiagSink& from, std::string_view whose, DiagSink& to);

uint64_t weight_bytes(const ir::ModuleGraph& graph);
// The target of `state` has that much less of a GPU's memory; another device: nothing.
void take_from(passes::CompileState& state, const std::string& device, uint64_t bytes);
// What the plan takes of each GPU in runs of this shape.
Status take_memory_of(const plan::PlanView& plan, const plan::RunShape& shape,
                      passes::CompileState& state);

}  // namespace ktx::tools
