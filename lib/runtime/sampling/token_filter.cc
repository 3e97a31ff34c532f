#include "lib/runtime/sampling/token_filter.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

namespace ktx::runtime {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();
constexpr size_t kFilterLanes = 4;
using Lanes = std::array<uint32_t, kFilterLanes>;

// All ones for a bit that is set: four bits at once, so that the compiler makes vectors of
// them. Visiting the zeros one by one takes up to three times as long.
constexpr auto kKeep = [] {
  std::array<Lanes, 16> keep = {};
  for (uint32_t bits = 0; bits < 16; ++bits) {
    for (uint32_t lane = 0; lane < kFilterLanes; ++lane)
      keep[bits][lane] = bits >> lane & 1 ? ~0u : 0u;
  }
  return keep;
}();

// Leaves the logits whose bits are set.
void forbid_32(uint32_t allowed, std::span<float, 32> logits) {
  if (allowed == ~0u) return;
  if (allowed == 0) return std::fill(logits.begin(), logits.end(), kForbidden);
  constexpr auto kNone = std::bit_cast<uint32_t>(kForbidden);
  for (size_t first = 0; first < 32; first += kFilterLanes, allowed >>= kFilterLanes) {
    const Lanes& keep = kKeep[allowed & 15];
    Lanes lanes;
    std::memcpy(lanes.data(), &logits[first], sizeof lanes);
    for (size_t lane = 0; lane < kFilterLanes; ++lane) {
      lanes[lane] = (lanes[lane] & keep[lane]) | (kNone & ~keep[lane]);
    }
    std::memcpy(&logits[first], lanes.data(), sizeof lanes);
  }
}

}  // namespace

void forbid_others(TokenBits allowed, std::span<float> logits) {
  const size_t words = std::min(logits.size() / 32, allowed.size());
  for (size_t word = 0; word < words; ++word) {
    forbid_32(allowed[word], logits.subspan(word * 32).first<32>());
  }
  // The last tokens, and those that the model has and the filter does not know.
  for (size_t id = words * 32; id < logits.size(); ++id) {
    if (!has_token(allowed, static_cast<int32_t>(id))) logits[id] = kForbidden;
  }
}

}  // namespace ktx::runtime
