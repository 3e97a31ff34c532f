// Whole blobs in Layout::Marlin: ranges of a packed blob from slices of GGUF rows, and
// back. One strip of 16 rows (marlin_layout.h) is the smallest piece; every matrix
// begins a new strip.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lib/formats/dtype.h"
#include "lib/formats/layout.h"

namespace ktx::kernels {

struct MarlinBlob {
  DType dtype = DType::F32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t matrices = 0;
};

int64_t marlin_blob_bytes(const MarlinBlob& blob);

// Bytes [offset, offset + out.size()) of the packed blob; both are whole strips. The
// slices, joined, are the GGUF rows of all matrices.
void pack_marlin_range(const MarlinBlob& blob, std::span<const std::span<const std::byte>> slices,
                       uint64_t offset, std::span<std::byte> out);

// Bytes [offset, offset + out.size()) of the GGUF rows, any range. False when padding in
// the strips that were looked at is not zero.
bool unpack_marlin_range(const MarlinBlob& blob, std::span<const std::byte> packed, uint64_t offset,
                         std::span<std::byte> out);

}  // namespace ktx::kernels
