#include "lib/trust/source_sha256.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "lib/plan/tensor_parts.h"
#include "lib/support/sha256.h"
#include "lib/support/strings.h"

namespace ktx::trust {
namespace {

constexpr uint64_t kAtOnce = 4 << 20;

void add_zeros(Sha256& digest, uint64_t count) {
  static constexpr std::byte kZeros[4096] = {};
  for (; count > 0; count -= std::min<uint64_t>(count, sizeof kZeros)) {
    digest.add(std::span(kZeros).first(std::min<uint64_t>(count, sizeof kZeros)));
  }
}

Status add_tensor(const plan::PlanView& plan, std::span<const plan::TensorPart> parts,
                  Sha256& digest) {
  std::vector<std::byte> buffer;
  for (const plan::TensorPart& part : parts) {
    for (uint64_t at = 0; at < part.size; at += buffer.size()) {
      buffer.resize(std::min(kAtOnce, part.size - at));
      KTX_TRY(plan::read_part(plan, part, at, buffer));
      digest.add(buffer);
    }
  }
  return {};
}

Result<std::string> digest_of_shard(const plan::PlanView& plan, uint32_t shard,
                                    std::span<const plan::TensorPart> parts) {
  const plan::GgufShardRecord& record = plan.gguf_shards[shard];
  std::vector<uint32_t> tensors;
  for (uint32_t t = 0; t < plan.gguf_tensors.size(); ++t) {
    if (plan.gguf_tensors[t].shard == shard) tensors.push_back(t);
  }
  std::ranges::sort(tensors, {}, [&](uint32_t t) { return plan.gguf_tensors[t].offset; });
  Sha256 digest;
  digest.add(plan.gguf_section.subspan(record.header_offset, record.header_size));
  uint64_t at = record.header_size;
  for (const uint32_t t : tensors) {
    const plan::GgufTensorRecord& tensor = plan.gguf_tensors[t];
    const auto own = plan::parts_of_tensor(parts, t);
    if (!plan::cover_tensor(plan, t, own)) {
      return Error{
          fmt::format("tensor '{}' is not in the plan as the source had it, so that the "
                      "source's digest cannot be computed",
                      printable(plan.string(tensor.name)))};
    }
    if (tensor.offset < at) return Error{"tensors of the source overlap"};
    add_zeros(digest, tensor.offset - at);
    KTX_TRY(add_tensor(plan, own, digest));
    at = tensor.offset + tensor.size;
  }
  if (record.file_size < at) return Error{"a tensor lies behind the end of its shard"};
  add_zeros(digest, record.file_size - at);
  return to_hex(KTX_TRY(digest.digest()));
}

}  // namespace

Result<std::vector<std::string>> source_sha256(const plan::PlanView& plan) {
  if (plan.part_of) return Error{"the file has the weights of one host alone; take the whole plan"};
  if (!plan.facts.merged.empty()) {
    return Error{fmt::format("its weights are not the source's: merged {}",
                             printable(plan.facts.merged.front()))};
  }
  const std::vector<plan::TensorPart> parts = plan::tensor_parts(plan);
  std::vector<std::string> digests;
  for (uint32_t shard = 0; shard < plan.gguf_shards.size(); ++shard) {
    digests.push_back(KTX_TRY(digest_of_shard(plan, shard, parts)));
  }
  return digests;
}

}  // namespace ktx::trust
