// Passes of steps with a state of each text, on a GPU and beside the scalar ops: texts of any
// length beside each other, cut into segments with a slot of states behind each, and decode with
// padding rows.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "kernels/cuda/common/cuda_texts.h"
#include "kernels/cuda/delta_net/cuda_delta_net.h"
#include "tests/kernels/cuda_cases.h"

namespace ktx::kernels {

// The tokens of each text, by segments; one_token_each: in a bucket of `rows`.
struct Pass {
  std::vector<std::vector<int32_t>> texts;
  bool has_states = true;         // before the pass
  int32_t rows = 0;               // 0: no padding, texts of any length
  std::vector<int32_t> starts{};  // by text, its first position; empty: not known
};
inline const Pass kPasses[] = {{{{1}, {1}, {1}}, true, 8},
                               {{{1}}, false, 1},
                               {{{70}}, false},
                               {{{3, 30, 4}, {1}, {33, 2}}, true},
                               {{{1}, {64, 1}, {5}, {100}}, false}};
// A pass in slots of GPU memory: segment by segment, in a random order of slots.
class Slots {
 public:
  Slots(Random& random, const Pass& pass, int64_t state_floats)
      : pass_(pass), floats_((state_floats + 15) / 16 * 16 + 32) {
    int32_t slots = 0;
    for (const auto& text : pass.texts) slots += static_cast<int32_t>(text.size() + 1);
    int32_t next = slots;
    for (const auto& text : pass.texts) {
      int32_t in = pass.has_states ? --next : -1;
      const int32_t first = rows_;
      for (int32_t tokens : text) {
        segments_.push_back({rows_, tokens, in, --next});
        in = next;
        rows_ += tokens;
      }
      const size_t i = begin_.size() - 1;
      if (!pass.starts.empty()) texts_.push_back({first, rows_ - first, pass.starts[i]});
      for (int32_t row = first; row < rows_; ++row) {
        positions_.push_back(pass.starts.empty() ? -1 : pass.starts[i] + row - first);
      }
      begin_.push_back(static_cast<int32_t>(segments_.size()));
    }
    const size_t texts = pass.rows > 0 ? static_cast<size_t>(pass.rows) : pass.texts.size();
    begin_.resize(texts + 1, begin_.back());
    host_ = random.normals(slots * floats_);
    device_ = std::make_unique<Gpu<float>>(host_);
    gpu_begin_ = std::make_unique<Gpu<int32_t>>(begin_);
    gpu_segments_ = std::make_unique<Gpu<StateSegment>>(segments_);
    gpu_positions_ = std::make_unique<Gpu<int32_t>>(positions_);
  }

  int64_t rows() const { return std::max(rows_, pass_.rows); }
  int64_t live_rows() const { return rows_; }
  const std::vector<StateSegment>& segments() const { return segments_; }
  CudaTexts texts() const {
    const auto count = static_cast<int64_t>(begin_.size()) - 1;
    const bool each = pass_.rows > 0;
    return {gpu_begin_->data(), gpu_segments_->data(), count, each ? 1 : rows_, each};
  }
  std::span<const TextRows> text_rows() const { return texts_; }
  const int32_t* positions() const { return gpu_positions_->data(); }
  // The state begins 16 floats into a slot.
  CudaStates states() { return {device_->data() + 16, floats_}; }
  // The states on the host, where the scalar op computes the same.
  const float* in(const StateSegment& segment) const {
    return segment.in < 0 ? nullptr : host_.data() + segment.in * floats_ + 16;
  }
  float* out(const StateSegment& segment) { return host_.data() + segment.out * floats_ + 16; }
  // All slots, those that are not written too.
  void expect_alike(float epsilon) const {
    const std::vector<float> found = device_->read();
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_NEAR(found[i], host_[i], epsilon * (1 + std::fabs(host_[i]))) << "float " << i;
    }
  }

 private:
  Pass pass_;
  int64_t floats_;
  int32_t rows_ = 0;
  std::vector<int32_t> begin_{0};
  std::vector<StateSegment> segments_;
  std::vector<TextRows> texts_;
  std::vector<int32_t> positions_;
  std::vector<float> host_;
  std::unique_ptr<Gpu<float>> device_;
  std::unique_ptr<Gpu<int32_t>> gpu_begin_;
  std::unique_ptr<Gpu<StateSegment>> gpu_segments_;
  std::unique_ptr<Gpu<int32_t>> gpu_positions_;
};

// Rows that pad the launch are zeros.
inline void expect_rows(const std::vector<float>& found, const std::vector<float>& want,
                        float epsilon) {
  ASSERT_EQ(found.size(), want.size());
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(found[i], want[i], epsilon * (1 + std::fabs(want[i]))) << "element " << i;
  }
}

}  // namespace ktx::kernels
