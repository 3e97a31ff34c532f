// Cuts the steps into parts: stretches that the host hands to one device each
// (lib/program/parts.h).
#include "lib/program/parts.h"

#include "lib/passes/pass.h"
#include "lib/program/program.h"

namespace ktx::passes {

Status cut_parts(CompileState& state) {
  state.program.parts = program::cut_parts(state.program);
  state.program.groups.clear();
  state.program.launches.clear();
  return {};
}

}  // namespace ktx::passes
