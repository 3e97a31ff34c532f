// The residual stream behind each layer, as two plans of one model compute it, and how far
// apart the two are: shows where the answers of two plans begin to differ.
//
//   layer 11   0.0032      |b - a| / |a|, over all tokens
//   layer 12   0.0410      here something is different
//
// A plan calls the stream "x", or where layers share several of them "streams", which begin as
// copies of the embedding "x", and a copy on another device "x@cuda:1"
// (lib/passes/lower/lower_to_steps.cc). Steps on other hosts are not seen.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "lib/runtime/engine/engine.h"

namespace ktx::runtime {

class LayerStreams {
 public:
  // For EngineOptions::on_result.
  void take(const StepResult& result);
  // Before a pass.
  void clear() { layers_.clear(); }

  // By layer, of the last pass; -1: the embedding.
  const std::map<int32_t, std::vector<float>>& layers() const { return layers_; }
  int64_t width() const { return width_; }  // floats of a token

 private:
  int64_t width_ = 0;
  std::map<int32_t, std::vector<float>> layers_;
};

struct StreamDifference {
  int32_t layer = 0;
  double relative = 0;  // |b - a| / |a|
};

class StreamDifferences {
 public:
  // Adds a pass of the same tokens by both. Layers that one of them lacks are left out.
  void add(const LayerStreams& a, const LayerStreams& b);
  // In the order of the layers.
  std::vector<StreamDifference> all() const;

 private:
  struct Squares {
    double of_difference = 0, of_a = 0;
  };
  std::map<int32_t, Squares> layers_;
};

// The effect of rounding alone on two good runs in fast precision, or in formats of weights; and of
// two in exact precision on a CPU.
inline constexpr double kFastNoise = 0.05, kExactNoise = 1e-5;

// The layer at which the relative difference grows most from one layer to the next, by the ratio
// of squares, each with that of `noise` added; null: it grows nowhere.
const StreamDifference* parting(const std::vector<StreamDifference>& differences,
                                double noise = kFastNoise);

}  // namespace ktx::runtime
