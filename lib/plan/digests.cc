#include "lib/plan/digests.h"

#include <fmt/format.h>

#include <algorithm>

namespace ktx::plan {

std::vector<DigestPiece> digest_pieces(std::span<const SectionEntry> sections) {
  std::vector<DigestPiece> pieces;
  for (uint32_t i = 0; i < sections.size(); ++i) {
    const SectionEntry& section = sections[i];
    if (section.id == static_cast<uint32_t>(SectionId::Digests)) continue;
    // An empty self-test has a digest, too: the plan keeps its size with one.
    const bool self_test = section.id == static_cast<uint32_t>(SectionId::SelfTest);
    if (self_test && section.size == 0) pieces.push_back({i, 0, 0});
    for (uint64_t at = 0; at < section.size; at += kHashChunkBytes) {
      pieces.push_back({i, at, std::min(kHashChunkBytes, section.size - at)});
    }
  }
  return pieces;
}

Result<std::vector<DigestPiece>> digest_pieces(const PlanView& plan) {
  if (plan.digests.empty()) {
    return Error{fmt::format(
        "a plan of format {}.{} without SHA-256 digests; compile it again, or sign the whole file",
        kMajor, plan.minor)};
  }
  std::vector<DigestPiece> pieces = digest_pieces(plan.sections);
  if (pieces.size() != plan.digests.size()) {
    return Error{fmt::format("section 'digests' has {} of {} digests; compile again",
                             plan.digests.size(), pieces.size())};
  }
  return pieces;
}

Result<Digest256> root_digest(const PlanView& plan) {
  KTX_TRY(digest_pieces(plan));
  Sha256 hasher;
  hasher.add(plan.header);
  hasher.add(std::as_bytes(plan.digests));
  return hasher.digest();
}

std::string root_text(const Digest256& root) {
  return fmt::format("ktx-plan-root sha256:{}\n", to_hex(root));
}

}  // namespace ktx::plan
