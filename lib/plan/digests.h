// The plan as a tree of SHA-256, which identifies it to receivers that do not trust its sender:
//
//   root = SHA-256(header ‖ section 'digests')
//            └ header: version, and place, size and flags of each section
//            └ digests: SHA-256 of each 64 MiB of each other section
//
// With the root (and a signature of it: lib/trust) any part can be checked alone: the small
// sections when the plan is opened (PlanOpenOptions::verify_digests), weights by chunks
// (verify_weights.h). Plans of formats before 3.7 have no digests.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lib/plan/plan_reader.h"
#include "lib/support/result.h"
#include "lib/support/sha256.h"

namespace ktx::plan {

// What one record of the section 'digests' covers.
struct DigestPiece {
  uint32_t section;  // index in the section table
  uint64_t begin;    // from the section's start
  uint64_t size;
};
// All sections but 'digests', in the order of its records.
std::vector<DigestPiece> digest_pieces(std::span<const SectionEntry> sections);

// Fails where the plan has no digests, or not one for each piece.
Result<std::vector<DigestPiece>> digest_pieces(const PlanView& plan);

Result<Digest256> root_digest(const PlanView& plan);
// What signatures of a root sign: "ktx-plan-root sha256:3f0c...\n".
std::string root_text(const Digest256& root);

}  // namespace ktx::plan
