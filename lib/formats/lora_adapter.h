// A low-rank adapter (LoRA). For each tensor that it changes it has two small matrices, and a
// product of that tensor becomes
//
//   y = W x + scale * B (A x)      A: rank x inputs, B: outputs x rank
//
// lib/lora/read_lora.h reads one from a file; the engine computes with it beside the weights
// (lib/runtime/lora), or the compiler adds it to them (lib/lora/merge.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lib/formats/dtype.h"

namespace ktx {

struct LoraMatrix {
  DType dtype = DType::F32;
  int64_t rows = 0;
  int64_t cols = 0;
  std::span<const std::byte> bytes;  // row after row
};

struct LoraPair {
  std::string tensor;    // of the model's GGUF: "blk.0.attn_q.weight"
  LoraMatrix a, b;       // a.rows == b.cols, the rank; of one matrix of the tensor
  float scale = 1;       // alpha / rank
  int64_t matrices = 1;  // of a tensor of experts: so many of each, one behind the other
};

struct LoraAdapter {
  std::string name;          // requests choose it by this
  std::string path;          // for messages
  std::string architecture;  // of the model: "llama"; "": not said
  float scale = 1;           // of requests that choose nothing
  std::vector<LoraPair> pairs;
  std::shared_ptr<const void> file;  // has the bytes of all pairs
};

}  // namespace ktx
