// A low-rank adapter (LoRA) as the engine takes it. For each tensor that it changes it has two
// small matrices, and a product of that tensor becomes
//
//   y = W x + scale * B (A x)      A: rank x inputs, B: outputs x rank
//
// lib/lora/read_lora.h reads one from a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lib/formats/dtype.h"

namespace ktx::runtime {

struct LoraMatrix {
  DType dtype = DType::F32;
  int64_t rows = 0;
  int64_t cols = 0;
  std::span<const std::byte> bytes;  // row after row
};

struct LoraPair {
  std::string tensor;  // of the model's GGUF: "blk.0.attn_q.weight"
  LoraMatrix a, b;     // a.rows == b.cols, the rank
  float scale = 1;     // alpha / rank
};

struct LoraAdapter {
  std::string name;          // requests choose it by this
  std::string path;          // for messages
  std::string architecture;  // of the model: "llama"; "": not said
  float scale = 1;           // of requests that choose nothing
  std::vector<LoraPair> pairs;
  std::shared_ptr<const void> file;  // has the bytes of all pairs
};

}  // namespace ktx::runtime
