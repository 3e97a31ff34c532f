// Requirements of KTransformers itself on a set of rules; parts of check_ops. A rule that ktx
// can run all the same gets a note.
#pragma once

#include "lib/passes/pass.h"

namespace ktx::passes {

// For its dialect only: the map form of a file, and the keys and words that are ktx's own.
// KTransformers skips unknown keys, so that such a rule would match more than it says.
void check_form_of_files(CompileState& state);
void check_own_words(CompileState& state, const rules::Rule& rule);

// Operators of its single-stream and its serving mode together, and blocks of one mode that
// call experts of the other.
void check_run_modes(CompileState& state);

}  // namespace ktx::passes
