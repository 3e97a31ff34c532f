// Where the bytes of the source's tensors are in a plan.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lib/plan/plan_reader.h"
#include "lib/support/result.h"

namespace ktx::plan {

// Bytes [begin, begin + size) of a tensor are bytes [offset, ...) of a blob's slices, joined.
struct TensorPart {
  uint32_t tensor;
  uint64_t begin;
  uint64_t size;
  uint32_t blob;
  uint64_t offset;
};

// How far the rows of a slice are apart in the tensor, counted in rows of the blob: 1, or n where
// these are the n-th parts of the tensor's (plan_format.h).
int64_t row_step(const GgufTensorRecord& tensor, int64_t blob_cols);

// All parts that the plan has as the source had them, in order of tensor and place; what two
// devices hold is listed once. Rounded weights have no parts.
std::vector<TensorPart> tensor_parts(const PlanView& plan);

// Those of one tensor, of all in order.
std::span<const TensorPart> parts_of_tensor(std::span<const TensorPart> parts, uint32_t tensor);

// Whether the parts of `tensor`, all of them, are the whole of it, without gaps.
bool cover_tensor(const PlanView& plan, uint32_t tensor, std::span<const TensorPart> parts);

// The first tensor that the parts, all of the plan's, do not cover.
struct TensorGap {
  uint32_t tensor;
  uint64_t bytes;  // that are there
};
std::optional<TensorGap> find_gap(const PlanView& plan, std::span<const TensorPart> parts);

// Source bytes [begin, begin + out.size()) of the part. Fails on a damaged layout.
Status read_part(const PlanView& plan, const TensorPart& part, uint64_t begin,
                 std::span<std::byte> out);

}  // namespace ktx::plan
