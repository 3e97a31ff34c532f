#include "lib/plan/tensor_parts.h"

#include <algorithm>
#include <cstring>

#include "lib/formats/dtype.h"
#include "lib/formats/layout.h"
#include "lib/plan/unpack_layout.h"

namespace ktx::plan {

std::vector<TensorPart> tensor_parts(const PlanView& plan) {
  std::vector<TensorPart> parts;
  for (const SliceRecord& slice : plan.slices) {
    const BlobRecord& blob = plan.blobs[slice.blob];
    if (blob.dtype != plan.gguf_tensors[slice.tensor].dtype) continue;  // lossy
    const auto row = static_cast<uint64_t>(*row_bytes(static_cast<DType>(blob.dtype), blob.cols));
    parts.push_back({slice.tensor, static_cast<uint64_t>(slice.first_row) * row,
                     static_cast<uint64_t>(slice.row_count) * row, slice.blob,
                     static_cast<uint64_t>(slice.blob_row) * row});
  }
  std::sort(parts.begin(), parts.end(), [](const TensorPart& a, const TensorPart& b) {
    return a.tensor != b.tensor ? a.tensor < b.tensor : a.begin < b.begin;
  });
  parts.erase(std::unique(parts.begin(), parts.end(),
                          [](const TensorPart& a, const TensorPart& b) {
                            return a.tensor == b.tensor && a.begin == b.begin && a.size == b.size;
                          }),
              parts.end());
  return parts;
}

bool cover_tensor(const PlanView& plan, uint32_t tensor, std::span<const TensorPart> parts) {
  uint64_t at = 0;
  for (const TensorPart& part : parts) {
    if (part.begin != at) return false;
    at += part.size;
  }
  return at == plan.gguf_tensors[tensor].size;
}

Status read_part(const PlanView& plan, const TensorPart& part, uint64_t begin,
                 std::span<std::byte> out) {
  const BlobRecord& blob = plan.blobs[part.blob];
  const auto packed = plan.blob_bytes(part.blob);
  if (blob.layout != static_cast<uint16_t>(Layout::Rows)) {
    return unpack_layout(blob, packed, part.offset + begin, out);
  }
  std::memcpy(out.data(), packed.data() + part.offset + begin, out.size());
  return {};
}

}  // namespace ktx::plan
