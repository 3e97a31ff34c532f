// Graphs of passes of one text with a few tokens: draft tokens that are verified, and what a
// drafter reads of them (draft/speculation.h). On an H200 a pass of four tokens takes 2.67 ms as a
// graph and 2.93 ms launch by launch (8B), 0.85 and 1.06 ms (1B).
//
// Their shapes depend on what is drafted, and to capture one takes as long as a hundred passes gain
// by it (30 ms): so a graph is captured once its shape has occurred often, and the least recently
// used one is dropped. A pass whose graph cannot be made runs launch by launch.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "lib/runtime/gpu/gpu.h"

namespace ktx::runtime {

class SkinnyGraphs {
 public:
  static constexpr int64_t kMostTokens = 16;
  static constexpr int kCaptureAt = 64;  // times that a shape is met
  static constexpr size_t kMost = 16;    // shapes, of 2 to 4 MiB of a GPU's memory each

  struct Shape {
    int64_t tokens = 0, outputs = 0, max_positions = 0;
    bool operator==(const Shape&) const = default;
  };
  struct Graphs {
    Shape shape;
    int met = 0;
    uint64_t last = 0;
    bool failed = false;                           // it cannot be captured
    std::vector<std::unique_ptr<GpuGraph>> parts;  // by part of the plan; null: not captured
    bool wanted() const { return met >= kCaptureAt && !failed; }
  };
  // Those of a pass that is about to run. Valid until the next call; no graph of another shape is
  // in flight by then.
  Graphs& meet(const Shape& shape, size_t parts);

 private:
  std::array<Graphs, kMost> all_;
  uint64_t now_ = 0;
};

}  // namespace ktx::runtime
