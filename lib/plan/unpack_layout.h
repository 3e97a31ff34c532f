// The GGUF bytes of a blob in panels or tiles: what export_gguf() asks for.
//
//   export_gguf(plan, "copy.gguf", unpack_layout);
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lib/plan/plan_format.h"
#include "lib/support/result.h"

namespace ktx::plan {

// Source bytes [offset, offset + out.size()) of the blob. Fails on a damaged one.
Status unpack_layout(const BlobRecord& blob, std::span<const std::byte> packed, uint64_t offset,
                     std::span<std::byte> out);

}  // namespace ktx::plan
