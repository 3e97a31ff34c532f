#include "lib/runtime/quality/layer_streams.h"

#include <cmath>
#include <string_view>

namespace ktx::runtime {

void LayerStreams::take(const StepResult& result) {
  const std::string_view name = result.value.substr(0, result.value.find('@'));
  if (name != "x" && name != "streams") return;
  // Behind the last layer the stream is only moved.
  if (result.layer < 0 && !layers_.empty() && layers_.rbegin()->first >= 0) return;
  width_ = result.stride;
  layers_[result.layer].assign(result.rows.begin(), result.rows.end());
}

void StreamDifferences::add(const LayerStreams& a, const LayerStreams& b) {
  for (const auto& [layer, of_a] : a.layers()) {
    const auto found = b.layers().find(layer);
    if (found == b.layers().end() || found->second.size() != of_a.size()) continue;
    Squares& squares = layers_[layer];
    for (size_t i = 0; i < of_a.size(); ++i) {
      const double difference = double{found->second[i]} - of_a[i];
      squares.of_difference += difference * difference;
      squares.of_a += double{of_a[i]} * of_a[i];
    }
  }
}

std::vector<StreamDifference> StreamDifferences::all() const {
  std::vector<StreamDifference> all;
  for (const auto& [layer, squares] : layers_) {
    const double relative =
        squares.of_difference > 0 ? std::sqrt(squares.of_difference / squares.of_a) : 0;
    all.push_back({layer, relative});
  }
  return all;
}

const StreamDifference* parting(const std::vector<StreamDifference>& differences, double noise) {
  const StreamDifference* found = nullptr;
  double most = 1, before = noise * noise;
  for (const StreamDifference& each : differences) {
    const double square = each.relative * each.relative + noise * noise;
    if (square / before > most) {
      most = square / before;
      found = &each;
    }
    before = square;
  }
  return found;
}

}  // namespace ktx::runtime
