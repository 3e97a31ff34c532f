#include "lib/plan/tensor_parts.h"

#include <algorithm>
#include <cstring>

#include "lib/formats/dtype.h"
#include "lib/formats/layout.h"
#include "lib/plan/unpack_layout.h"

namespace ktx::plan {

int64_t row_step(const GgufTensorRecord& tensor, int64_t blob_cols) {
  const bool parts = tensor.rows > 1 && blob_cols < tensor.row_elems;
  return parts && tensor.row_elems % blob_cols == 0 ? tensor.row_elems / blob_cols : 1;
}

std::vector<TensorPart> tensor_parts(const PlanView& plan) {
  std::vector<TensorPart> parts;
  for (const SliceRecord& slice : plan.slices) {
    const BlobRecord& blob = plan.blobs[slice.blob];
    const GgufTensorRecord& tensor = plan.gguf_tensors[slice.tensor];
    if (blob.dtype != tensor.dtype) continue;  // lossy
    const auto row = static_cast<uint64_t>(*row_bytes(static_cast<DType>(blob.dtype), blob.cols));
    const int64_t step = row_step(tensor, blob.cols), runs = step == 1 ? 1 : slice.row_count;
    const auto rows = static_cast<uint64_t>(slice.row_count / runs);
    for (int64_t i = 0; i < runs; ++i) {
      parts.push_back({slice.tensor, static_cast<uint64_t>(slice.first_row + i * step) * row,
                       rows * row, slice.blob, static_cast<uint64_t>(slice.blob_row + i) * row});
    }
  }
  std::sort(parts.begin(), parts.end(), [](const TensorPart& a, const TensorPart& b) {
    return a.tensor != b.tensor ? a.tensor < b.tensor : a.begin < b.begin;
  });
  // GPUs may share rows: what another part has is left out.
  std::vector<TensorPart> once;
  for (TensorPart part : parts) {
    const bool same = !once.empty() && once.back().tensor == part.tensor;
    const uint64_t end = same ? once.back().begin + once.back().size : part.begin;
    const uint64_t known = end > part.begin ? end - part.begin : 0;
    if (known >= part.size) continue;
    once.push_back(
        {part.tensor, part.begin + known, part.size - known, part.blob, part.offset + known});
  }
  return once;
}

std::span<const TensorPart> parts_of_tensor(std::span<const TensorPart> parts, uint32_t tensor) {
  const auto begin = std::ranges::lower_bound(parts, tensor, {}, &TensorPart::tensor);
  const auto end = std::ranges::upper_bound(parts, tensor, {}, &TensorPart::tensor);
  return {begin, end};
}

bool cover_tensor(const PlanView& plan, uint32_t tensor, std::span<const TensorPart> parts) {
  uint64_t at = 0;
  for (const TensorPart& part : parts) {
    if (part.begin != at) return false;
    at += part.size;
  }
  return at == plan.gguf_tensors[tensor].size;
}

std::optional<TensorGap> find_gap(const PlanView& plan, std::span<const TensorPart> parts) {
  size_t next = 0;
  for (uint32_t t = 0; t < plan.gguf_tensors.size(); ++t) {
    const size_t first = next;
    uint64_t bytes = 0;
    for (; next < parts.size() && parts[next].tensor == t; ++next) bytes += parts[next].size;
    if (!cover_tensor(plan, t, parts.subspan(first, next - first))) return TensorGap{t, bytes};
  }
  return std::nullopt;
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
