// Small helpers of the checking passes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/passes/pass.h"

namespace ktx::passes {

// "model.layers.3.mlp.gate and 57 more".
std::string and_more(std::string_view first, int64_t count);
// "26 modules", "1 module".
std::string count_of(int64_t count, std::string_view noun);
// The first modules that a rule decides, in order; stored modules only.
std::vector<const ir::Module*> modules_of(const CompileState& state, int rule);
// Error for KTransformers, otherwise the given severity.
Severity severity_in(const CompileState& state, Severity ktx,
                     Severity ktransformers = Severity::Error);
// The class of the module that carries weights of quantised products.
bool is_torch_linear(const ir::Module& module);
// The place of the rule's device, op or class, whichever it has, for a caret.
SourceLoc loc_of(const rules::Rule& rule);
// "model.layers.*.mlp.experts": layer numbers replaced by *.
std::string without_layers(std::string_view path);

}  // namespace ktx::passes
