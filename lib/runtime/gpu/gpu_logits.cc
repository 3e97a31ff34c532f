#include "lib/runtime/gpu/gpu_logits.h"

#include <algorithm>
#include <cstring>

namespace ktx::runtime {
namespace {

// Rows searched in one launch: bounds the workspace.
constexpr int64_t kRowsAtOnce = 64;

}  // namespace

Status GpuLogits::allocate(Gpu& gpu, const Places& places) {
  gpu_ = &gpu;
  places_ = places;
  const int64_t tokens = places.most_rows * kMostBestLogits;
  const auto bytes = static_cast<uint64_t>(tokens_at(places.most_rows)) +
                     static_cast<uint64_t>(tokens) * sizeof(TokenLogit);
  device_ = KTX_TRY(gpu.allocate(bytes, "best logits"));
  host_ = HostBuffer(gpu, bytes);
  const auto allowed = static_cast<uint64_t>(places.most_rows * words()) * sizeof(uint32_t);
  device_allowed_ = KTX_TRY(gpu.allocate(allowed, "allowed tokens"));
  host_allowed_ = HostBuffer(gpu, allowed);
  return {};
}

int64_t GpuLogits::tokens_at(int64_t rows) const {
  return rows * static_cast<int64_t>(sizeof(double));
}

GpuBestLogits GpuLogits::search(int64_t first, int64_t rows, std::byte* workspace) const {
  GpuBestLogits args;
  args.logits = reinterpret_cast<const float*>(places_.device + first * places_.row_bytes);
  args.stride = places_.row_bytes / static_cast<int64_t>(sizeof(float));
  args.rows = rows;
  args.vocabulary = places_.vocabulary;
  args.count = count_;
  if (filtered_) {
    args.allowed = reinterpret_cast<const uint32_t*>(device_allowed_.data()) + first * words();
    args.allowed_words = words();
  }
  args.best = reinterpret_cast<TokenLogit*>(device_.data() + tokens_at(rows_)) + first * count_;
  args.log_sum = reinterpret_cast<double*>(device_.data()) + first;
  args.workspace = workspace;
  return args;
}

int64_t GpuLogits::workspace_bytes() const {
  GpuBestLogits args;
  args.rows = std::min(kRowsAtOnce, places_.most_rows);
  args.vocabulary = places_.vocabulary;
  args.count = kMostBestLogits;
  return gpu_->find_best_bytes(args);
}

Status GpuLogits::queue(const Batch& batch, std::byte* workspace) {
  rows_ = batch.outputs;
  count_ = 0;
  const auto wanted = [&](int64_t row) { return batch.best.empty() ? -1 : batch.best[row]; };
  for (int64_t row = 0; row < rows_; ++row) count_ = std::max(count_, wanted(row));
  KTX_TRY(send_allowed(batch));
  if (count_ > 0) {
    for (int64_t row = 0; row < rows_; row += kRowsAtOnce) {
      KTX_TRY(gpu_->find_best(search(row, std::min(kRowsAtOnce, rows_ - row), workspace)));
    }
    const auto bytes = static_cast<uint64_t>(tokens_at(rows_)) +
                       static_cast<uint64_t>(rows_ * count_) * sizeof(TokenLogit);
    KTX_TRY(gpu_->download(host_.data(), device_.data(), bytes));
  }
  for (int64_t row = 0; row < rows_;) {
    int64_t end = row;
    while (end < rows_ && wanted(end) < 0) ++end;
    if (end > row) {
      KTX_TRY(gpu_->download(places_.host + row * places_.row_bytes,
                             places_.device + row * places_.row_bytes,
                             static_cast<uint64_t>((end - row) * places_.row_bytes)));
    }
    row = end + 1;
  }
  return {};
}

// The bits of every row, where one of them has a filter.
Status GpuLogits::send_allowed(const Batch& batch) {
  const auto filter = [&](int64_t row) -> TokenFilter* {
    return batch.best.empty() || batch.best[row] < 0 ? nullptr : batch.filter[row];
  };
  filtered_ = false;
  for (int64_t row = 0; row < rows_; ++row) filtered_ |= filter(row) != nullptr;
  if (!filtered_) return {};
  if (batch.before_filters) batch.before_filters();
  const auto bytes = static_cast<size_t>(words()) * sizeof(uint32_t);
  for (int64_t row = 0; row < rows_; ++row) {
    std::byte* const to = host_allowed_.data() + row * static_cast<int64_t>(bytes);
    if (filter(row) == nullptr) {
      std::memset(to, 0xFF, bytes);
      continue;
    }
    std::memset(to, 0, bytes);
    // If no token is allowed none comes back; the sampler asks the filter for the reason.
    const Result<TokenBits> allowed = filter(row)->allowed();
    if (!allowed) continue;
    const size_t known = std::min(allowed->size_bytes(), bytes);
    if (known > 0) std::memcpy(to, allowed->data(), known);
  }
  return gpu_->upload(device_allowed_.data(), host_allowed_.data(),
                      static_cast<uint64_t>(rows_) * bytes);
}

Status GpuLogits::fetch(int64_t row) {
  return gpu_->download(places_.host + row * places_.row_bytes,
                        places_.device + row * places_.row_bytes,
                        static_cast<uint64_t>(places_.row_bytes));
}

BestLogits GpuLogits::best(int64_t row, int32_t count) const {
  const auto* tokens = reinterpret_cast<const TokenLogit*>(host_.data() + tokens_at(rows_));
  const std::span all(tokens + row * count_, static_cast<size_t>(std::min(count, count_)));
  const auto end =
      std::find_if(all.begin(), all.end(), [](const TokenLogit& token) { return token.id < 0; });
  return {all.first(static_cast<size_t>(end - all.begin())),
          reinterpret_cast<const double*>(host_.data())[row]};
}

}  // namespace ktx::runtime
