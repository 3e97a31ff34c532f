#include "lib/runtime/gpu/measure_sums.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "lib/support/timer.h"

namespace ktx::runtime {
namespace {

constexpr int64_t kSmallBytes = 16 << 10, kMib = 1 << 20;
constexpr int kRounds = 3;

// What each GPU adds up.
struct Member {
  Gpu* gpu = nullptr;
  GpuMemory part, y;
};

// Seconds of one of `sums` sums of `bytes` that are queued together.
Result<double> seconds_of(std::vector<Member>& team, int64_t bytes, int sums) {
  std::vector<const float*> parts;
  std::vector<size_t> ranks;
  for (Member& member : team) {
    parts.push_back(reinterpret_cast<const float*>(member.part.data()));
    ranks.push_back(ranks.size());
  }
  std::vector<std::unique_ptr<GpuGraph>> graphs;
  for (Member& member : team) {
    const GpuSum sum{.y = reinterpret_cast<float*>(member.y.data()),
                     .accumulate = false,
                     .parts = parts,
                     .ranks = ranks,
                     .rows = 1,
                     .width = bytes / static_cast<int64_t>(sizeof(float))};
    KTX_TRY(member.gpu->begin_capture());
    Status queued;
    for (int i = 0; i < sums && queued; ++i) queued = member.gpu->sum(sum);
    auto graph = member.gpu->end_capture();  // also after a failure
    KTX_TRY(queued);
    graphs.push_back(KTX_TRY(std::move(graph)));
  }
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round <= kRounds; ++round) {  // the first one warms up
    const Timer timer;
    for (size_t i = 0; i < team.size(); ++i) KTX_TRY(team[i].gpu->launch(*graphs[i]));
    for (Member& member : team) KTX_TRY(member.gpu->finish());
    if (round > 0) best = std::min(best, timer.seconds() / sums);
  }
  return best;
}

}  // namespace

Result<SumTimes> measure_sums(std::span<const std::unique_ptr<Gpu>> gpus, int64_t large_bytes) {
  SumTimes times;
  if (gpus.size() < 2) return times;
  std::vector<Gpu*> all;
  for (const std::unique_ptr<Gpu>& gpu : gpus) all.push_back(gpu.get());
  bool reach = true;
  for (Gpu* const gpu : all) {
    for (Gpu* const other : all) reach = KTX_TRY(gpu->reaches(*other)) && reach;
  }
  std::vector<Member> team(gpus.size());
  bool joined = true;
  for (size_t rank = 0; rank < team.size(); ++rank) {
    Member& member = team[rank];
    member.gpu = all[rank];
    joined = KTX_TRY(member.gpu->join_team(all, rank, !reach)) && joined;
    for (GpuMemory* memory : {&member.part, &member.y}) {
      const auto bytes = static_cast<uint64_t>(large_bytes);
      *memory = KTX_TRY(member.gpu->allocate(bytes, "what is added up"));
      KTX_TRY(member.gpu->clear(memory->data(), bytes));
    }
    KTX_TRY(member.gpu->finish());
  }
  if (!joined) return times;
  times.seconds_16k = KTX_TRY(seconds_of(team, kSmallBytes, 64));
  times.seconds_mib = KTX_TRY(seconds_of(team, kMib, 16));
  if (!reach) return times;
  const double large = KTX_TRY(seconds_of(team, large_bytes, 4));
  times.read = static_cast<double>(large_bytes) * static_cast<double>(team.size() - 1) / large;
  return times;
}

}  // namespace ktx::runtime
