// Converts the records of a plan to the program that they store, and a program to records.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lib/plan/plan_contents.h"
#include "lib/plan/plan_reader.h"
#include "lib/program/program.h"

namespace ktx::plan {

// The records of a program but for its weights, which stand in `contents` already: `blobs` says
// where, by their number in the program.
void add_program(PlanContents& contents, const program::Program& program,
                 std::span<const uint32_t> blobs);

// The program of untrusted records that have passed verify_records(): checks all fields of steps,
// parts and launches, converts them, and checks the rules of check_step_records.h and
// lib/program/verify_launches.h.
Result<program::Program> load_program(const PlanView& plan);
// For records that have been checked; repeated after device names were exchanged. Constants of
// the compiler stay in the file alone.
program::Program program_of(const PlanView& plan);
// Without parts and launches.
program::Program steps_of(const PlanView& plan);

// The text form of the program (docs/ir.md), with its constants, as the compiler prints it; weights
// that are only carried for export are on device none. The plan must be open.
std::string program_text(const PlanView& plan);

}  // namespace ktx::plan
