// Where a plan came from, for people and as a CycloneDX bill of materials.
//
//   model        Gemma 3 270M (gemma3), by Google
//   licence      gemma, https://ai.google.dev/gemma/terms
//   base model   Gemma 3 270M, https://huggingface.co/google/gemma-3-270m
//   made by      ktx 0.1.0
//   from         gguf of 253113024 bytes, hash of its header 3f0c...
//
// What it says of the model is what the GGUF said (PlanProvenance::general); nothing checks that.
#pragma once

#include <string>

#include "lib/plan/plan_reader.h"

namespace ktx::trust {

std::string provenance_text(const plan::PlanView& plan);  // ends with a newline
std::string provenance_json(const plan::PlanView& plan);  // likewise

// CycloneDX 1.6 (ECMA-424), a JSON document with one component of type machine-learning-model.
// `sha256`: of the plan's file, 64 hexadecimal digits. The same plan gives the same bytes: there is
// no time and no serial number in it.
std::string cyclonedx_json(const plan::PlanView& plan, const std::string& sha256);

}  // namespace ktx::trust
