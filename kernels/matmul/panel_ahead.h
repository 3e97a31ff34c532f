// What products of many tokens ask memory for while they multiply.
// Included by matmul_panel_many.h only.
#pragma once

#include "kernels/matmul/panel_activations.h"

namespace ktx::kernels {
namespace {

// Lines that are needed next, asked for a few at a time while a tile multiplies: a burst
// of them would find memory busy, and the multiplier idle.
class Ahead {
 public:
  KTX_ALWAYS_INLINE explicit Ahead(const std::byte** lines) : lines_(lines) {}
  void add(const void* begin, int64_t bytes) {
    const auto* line = static_cast<const std::byte*>(begin);
    for (; bytes > 0 && count_ < PanelScratch::kLines; bytes -= 64, line += 64) {
      lines_[count_++] = line;
    }
  }
  // Shares them out over so many steps. Lines that fill up the last ones are harmless.
  void spread(int64_t steps) {
    per_step_ = (count_ + steps - 1) / steps;
    const std::byte* last = count_ > 0 ? lines_[count_ - 1] : nullptr;
    while (count_ < per_step_ * steps) lines_[count_++] = last;
  }
  template <class V>
  KTX_ALWAYS_INLINE void step() {
    for (int64_t i = 0; i < per_step_; ++i) V::prefetch(*lines_++);
  }

 private:
  const std::byte** lines_;
  int64_t count_ = 0, per_step_ = 0;
};

// Activations of tokens [i, i + tokens) that lie anywhere.
template <class Codes>
void ask_for_activations(const MatmulArgs& a, int64_t i, int64_t tokens, int64_t first,
                         int64_t count, Ahead& ahead) {
  for (int64_t t = i; t < i + tokens; ++t) {
    const PanelActRow x(a, t);
    ahead.add(x.q + 32 * first, 32 * count);
    ahead.add(x.scale + first, 4 * count);
    if constexpr (Codes::kMin != PanelMin::None || Codes::kOffset != 0)
      ahead.add(x.sum + 2 * first, 4 * count);
  }
}

// What blocks [first, first + count) of `panels` panels from `at` on are made of.
template <class Codes>
void ask_for_words(const MatmulArgs& a, const std::byte* at, int64_t panels, int64_t first,
                   int64_t count, Ahead& ahead) {
  constexpr int64_t kBytes = kUnitBytes<Codes>, kBlocks = Codes::kUnit / 32;
  const int64_t left = a.w.cols / 32 - first;
  const int64_t bytes = (left < count ? left : count) / kBlocks * kBytes;
  for (int64_t r = 0; r < panels; ++r) {
    ahead.add(at + r * kPanelRows * a.w.row_bytes + first / kBlocks * kBytes, bytes);
  }
}

// The same of panels from p on; where the columns end, of the first blocks of what the next call
// will take.
template <class Codes>
void ask_for_next_words(const MatmulArgs& a, int64_t p, int64_t panels, int64_t first,
                        int64_t count, Ahead& ahead) {
  const int64_t panel_bytes = kPanelRows * a.w.row_bytes;
  if (first < a.w.cols / 32) {
    const std::byte* at = a.w.data + p * panel_bytes;
    ask_for_words<Codes>(a, at, panels, first, count, ahead);
  } else if (a.next) {
    const std::byte* at = a.next + (p - a.row_begin / kPanelRows) * panel_bytes;
    ask_for_words<Codes>(a, at, panels, 0, count, ahead);
  }
}

}  // namespace
}  // namespace ktx::kernels
