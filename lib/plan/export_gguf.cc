#include "lib/plan/export_gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "lib/formats/dtype.h"
#include "lib/plan/work_file.h"
#include "lib/support/strings.h"

namespace ktx::plan {
namespace {

constexpr uint64_t kCopyBytes = 4 << 20;

// Bytes [begin, begin + size) of a tensor are bytes [offset, ...) of a blob's
// slices, joined.
struct Part {
  uint32_t tensor;
  uint64_t begin;
  uint64_t size;
  uint32_t blob;
  uint64_t offset;
};

// All parts in order of tensor and place. Fails unless they cover every tensor.
Result<std::vector<Part>> collect_parts(const PlanView& plan) {
  std::vector<Part> parts;
  for (const SliceRecord& slice : plan.slices) {
    const BlobRecord& blob = plan.blobs[slice.blob];
    if (blob.dtype != plan.gguf_tensors[slice.tensor].dtype) continue;  // lossy
    const auto row = static_cast<uint64_t>(*row_bytes(static_cast<DType>(blob.dtype), blob.cols));
    parts.push_back({slice.tensor, static_cast<uint64_t>(slice.first_row) * row,
                     static_cast<uint64_t>(slice.row_count) * row, slice.blob,
                     static_cast<uint64_t>(slice.blob_row) * row});
  }
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
    return a.tensor != b.tensor ? a.tensor < b.tensor : a.begin < b.begin;
  });
  // What two devices hold is written once.
  parts.erase(std::unique(parts.begin(), parts.end(),
                          [](const Part& a, const Part& b) {
                            return a.tensor == b.tensor && a.begin == b.begin && a.size == b.size;
                          }),
              parts.end());
  size_t next = 0;
  for (uint32_t t = 0; t < plan.gguf_tensors.size(); ++t) {
    uint64_t at = 0;
    for (; next < parts.size() && parts[next].tensor == t && parts[next].begin == at; ++next) {
      at += parts[next].size;
    }
    if (at == plan.gguf_tensors[t].size) continue;
    return Error{fmt::format(
        "tensor '{}' is in the plan with {} of its {} bytes as the source had "
        "them; the GGUF cannot be rebuilt",
        printable(plan.string(plan.gguf_tensors[t].name)), at, plan.gguf_tensors[t].size)};
  }
  return parts;
}

std::string shard_path(const std::string& path, size_t shard, size_t shards) {
  if (shards == 1) return path;
  const std::string stem = path.ends_with(".gguf") ? path.substr(0, path.size() - 5) : path;
  return fmt::format("{}-{:05}-of-{:05}.gguf", stem, shard + 1, shards);
}

Status write_part(const PlanFile& plan, const Part& part, uint64_t file_offset, WorkFile& file,
                  const UnpackFunction& unpack) {
  const BlobRecord& blob = plan->blobs[part.blob];
  const auto packed = plan->blob_bytes(part.blob);
  std::vector<std::byte> buffer;
  for (uint64_t at = 0; at < part.size; at += kCopyBytes) {
    const uint64_t size = std::min(kCopyBytes, part.size - at);
    std::span<const std::byte> bytes;
    uint64_t let_go_at = 0;
    if (blob.layout == static_cast<uint16_t>(Layout::Rows)) {
      bytes = packed.subspan(part.offset + at, size);
      let_go_at = blob.offset + part.offset + at;
    } else if (unpack) {
      buffer.resize(size);
      KTX_TRY(unpack(blob, packed, part.offset + at, buffer));
      bytes = buffer;
    } else {
      return Error{fmt::format("weight '{}' has layout {}, which cannot be undone here",
                               printable(plan->string(blob.name)),
                               ktx::name(static_cast<Layout>(blob.layout)))};
    }
    KTX_TRY(file.write(file_offset + at, bytes));
    if (let_go_at > 0) plan.mapping().advise_dont_need(let_go_at, size);
  }
  return {};
}

}  // namespace

Result<std::vector<std::string>> export_gguf(const PlanFile& plan, const std::string& path,
                                             const UnpackFunction& unpack) {
  if (plan->facts.lossy) {
    return Error{fmt::format(
        "{}: a rule had weights rounded (lossy: allow), so the GGUF's are not in it; compile it "
        "without that rule",
        plan.path())};
  }
  auto collected = collect_parts(plan.view());
  if (!collected.ok()) {
    return Error{fmt::format("{}: {}", plan.path(), collected.error().message)};
  }
  const std::vector<Part> parts = collected.take();

  std::vector<std::string> paths;
  std::vector<WorkFile> files;
  const size_t shards = plan->gguf_shards.size();
  for (size_t s = 0; s < shards; ++s) {
    const GgufShardRecord& shard = plan->gguf_shards[s];
    paths.push_back(shard_path(path, s, shards));
    std::error_code ignored;
    if (std::filesystem::equivalent(paths.back(), plan.path(), ignored)) {
      return Error{fmt::format("{}: this is the plan itself; name another file", paths.back())};
    }
    files.push_back(KTX_TRY(WorkFile::open(paths.back())));
    KTX_TRY(files.back().truncate(0));
    KTX_TRY(files.back().reserve(shard.file_size));
    KTX_TRY(
        files.back().write(0, plan->gguf_section.subspan(shard.header_offset, shard.header_size)));
  }
  for (const Part& part : parts) {
    const GgufTensorRecord& tensor = plan->gguf_tensors[part.tensor];
    KTX_TRY(write_part(plan, part, tensor.offset + part.begin, files[tensor.shard], unpack));
  }
  KTX_TRY(plan.check());
  for (WorkFile& file : files) KTX_TRY(file.commit());
  return paths;
}

}  // namespace ktx::plan
