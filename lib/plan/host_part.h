// A host's part of a plan for several: all of the plan except the weights of other hosts, for
// machines without a common file system (ktx-compile --split-by-host).
//
//   the plan up to its first weights │ own segments │ ranges, 24 B each │ mark, 64 B
//
// Each begins a page of 4096 bytes, but the mark, which ends the file. Mapped, a range is where the
// whole plan has it, and the weights that are missing read as zeros: offsets, header and hashes are
// those of the whole plan, so that parts run together, and with whole plans.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/plan/plan_reader.h"
#include "lib/support/mapped_file.h"
#include "lib/support/result.h"

namespace ktx::plan {

struct HostPart {
  size_t host = 0;  // its rank
  uint64_t whole_bytes = 0;
  std::vector<MappedFile::Piece> pieces;  // for MappedFile::spread()
};

// What the end of a file says; nothing if it is not a part. Safe for untrusted files: the pieces
// are as spread() takes them.
Result<std::optional<HostPart>> read_host_part(std::span<const std::byte> file);
// Whether the pieces are what the host has of the plan, which has been checked otherwise.
Status check_host_part(const PlanView& plan, const HostPart& part);

// "m.ktxplan", "b": "m.b.ktxplan".
std::string host_part_path(const std::string& plan, const std::string& host);

// Writes the parts of all hosts beside a plan, host_part_path(); the plan stays. The first host has
// tensors that no step reads and a drafter, too. Returns the paths, by rank.
Result<std::vector<std::string>> write_host_parts(const PlanFile& plan);

}  // namespace ktx::plan
