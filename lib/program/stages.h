// The stages (lib/ops/step_stages.h) of steps of a program: of the compiler, which orders steps by
// them, and of the runtime, which groups what one device does in a row by the memory that the
// steps touch.
#pragma once

#include <vector>

#include "lib/ops/step_stages.h"
#include "lib/program/program.h"

namespace ktx::program {

// Which values share memory: none yet, or those of one buffer.
enum class Memory { OfEachValue, OfBuffers };

// What a step touches. Its device is left out: stages are of steps of one.
StepFacts facts_of(const Program& program, const Step& step, Memory memory);

// A KV slot counts as a value of its own.
StepAccess slot_access(int32_t slot, bool write);

// The stages of all steps, each value with memory of its own. Threads share out the steps
// between two GPU steps or transfers, in a part of the CPU (parts.h); GPU steps and transfers keep
// their order, in which a GPU's work is queued.
std::vector<Stage> stages_of(const Program& program);

}  // namespace ktx::program
