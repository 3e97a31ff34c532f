#include "lib/plan/export_gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <system_error>

#include "lib/formats/dtype.h"
#include "lib/formats/layout.h"
#include "lib/plan/tensor_parts.h"
#include "lib/plan/verify_weights.h"
#include "lib/support/strings.h"
#include "lib/support/thread_count.h"
#include "lib/support/thread_pool.h"
#include "lib/support/work_file.h"

namespace ktx::plan {
namespace {

constexpr uint64_t kCopyBytes = 4 << 20;

// Fails unless the plan has every tensor whole.
Result<std::vector<TensorPart>> collect_parts(const PlanView& plan) {
  if (plan.part_of) {
    return Error{"the file has the weights of one host alone; export from the whole plan"};
  }
  std::vector<TensorPart> parts = tensor_parts(plan);
  if (const auto gap = find_gap(plan, parts)) {
    const GgufTensorRecord& tensor = plan.gguf_tensors[gap->tensor];
    return Error{
        fmt::format("tensor '{}' is in the plan with {} of its {} bytes as the source had "
                    "them; the GGUF cannot be rebuilt",
                    printable(plan.string(tensor.name)), gap->bytes, tensor.size)};
  }
  return parts;
}

std::string shard_path(const std::string& path, size_t shard, size_t shards) {
  if (shards == 1) return path;
  const std::string stem = path.ends_with(".gguf") ? path.substr(0, path.size() - 5) : path;
  return fmt::format("{}-{:05}-of-{:05}.gguf", stem, shard + 1, shards);
}

// Cut small enough for all threads to have their share.
std::vector<TensorPart> cut_up(std::span<const TensorPart> parts) {
  std::vector<TensorPart> pieces;
  for (const TensorPart& part : parts) {
    for (uint64_t at = 0; at < part.size; at += kCopyBytes) {
      pieces.push_back({part.tensor, part.begin + at, std::min(kCopyBytes, part.size - at),
                        part.blob, part.offset + at});
    }
  }
  return pieces;
}

Status write_piece(const PlanFile& plan, const TensorPart& piece, uint64_t file_offset,
                   WorkFile& file, const UnpackFunction& unpack) {
  const BlobRecord& blob = plan->blobs[piece.blob];
  const auto packed = plan->blob_bytes(piece.blob);
  if (blob.layout == static_cast<uint16_t>(Layout::Rows)) {
    KTX_TRY(file.write(file_offset, packed.subspan(piece.offset, piece.size)));
  } else if (unpack) {
    std::vector<std::byte> buffer(piece.size);
    KTX_TRY(unpack(blob, packed, piece.offset, buffer));
    KTX_TRY(file.write(file_offset, buffer));
  } else {
    return Error{fmt::format("weight '{}' has layout {}, which cannot be undone here",
                             printable(plan->string(blob.name)),
                             ktx::name(static_cast<Layout>(blob.layout)))};
  }
  // About the pages that it came from: layouts move bytes a few rows at most.
  plan.mapping().advise_dont_need(blob.offset + piece.offset, piece.size);
  return {};
}

}  // namespace

Result<std::vector<std::string>> export_gguf_headers(const PlanFile& plan,
                                                     const std::string& path) {
  std::vector<std::string> paths;
  const size_t shards = plan->gguf_shards.size();
  for (size_t s = 0; s < shards; ++s) {
    const GgufShardRecord& shard = plan->gguf_shards[s];
    paths.push_back(shard_path(path, s, shards));
    WorkFile file = KTX_TRY(WorkFile::open(paths.back(), "GGUF"));
    KTX_TRY(file.truncate(0));
    KTX_TRY(file.write(0, plan->gguf_section.subspan(shard.header_offset, shard.header_size)));
    KTX_TRY(file.truncate(shard.file_size));
    KTX_TRY(file.commit());
  }
  KTX_TRY(plan.check());
  return paths;
}

Result<std::vector<std::string>> export_gguf(const PlanFile& plan, const std::string& path,
                                             const UnpackFunction& unpack, int threads) {
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
  const std::vector<TensorPart> parts = collected.take();
  // Damage would be in the GGUF, and in plans that are made of it, under hashes of their own.
  const Status weights = verify_weights(plan.view(), threads);
  KTX_TRY(plan.check());  // a file that has become smaller is behind any failure here
  if (!weights) return Error{fmt::format("{}: {}", plan.path(), weights.error().message)};

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
    files.push_back(KTX_TRY(WorkFile::open(paths.back(), "GGUF")));
    KTX_TRY(files.back().truncate(0));
    KTX_TRY(files.back().reserve(shard.file_size));
    KTX_TRY(
        files.back().write(0, plan->gguf_section.subspan(shard.header_offset, shard.header_size)));
  }
  const std::vector<TensorPart> pieces = cut_up(parts);
  std::mutex mutex;
  Status first_failure;
  std::atomic<bool> failed = false;
  ThreadPool pool(
      std::clamp(thread_count(threads), 1, std::max(1, static_cast<int>(pieces.size()))));
  pool.for_each(static_cast<int64_t>(pieces.size()), [&](int64_t i, int) {
    if (failed) return;
    const TensorPart& piece = pieces[static_cast<size_t>(i)];
    const GgufTensorRecord& tensor = plan->gguf_tensors[piece.tensor];
    Status status =
        write_piece(plan, piece, tensor.offset + piece.begin, files[tensor.shard], unpack);
    if (status.ok()) return;
    const std::lock_guard lock(mutex);
    if (!failed.exchange(true)) first_failure = std::move(status);
  });
  KTX_TRY(plan.check());  // what is missing there is behind any failure here
  KTX_TRY(std::move(first_failure));
  for (WorkFile& file : files) KTX_TRY(file.commit());
  return paths;
}

}  // namespace ktx::plan
