// Where the activations of routed experts were computed.
#pragma once

#include <cstdint>

namespace ktx::runtime {

struct ExpertUse {
  int64_t cpu = 0;
  int64_t gpu = 0;       // by experts that are in a GPU's memory
  int64_t streamed = 0;  // of layers whose experts a GPU fetched for the pass
  int64_t total() const { return cpu + gpu + streamed; }
};

}  // namespace ktx::runtime
