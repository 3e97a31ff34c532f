// Reads a low-rank adapter from a GGUF as llama.cpp's convert_lora_to_gguf.py writes it:
//
//   general.type = "adapter", adapter.type = "lora", adapter.lora.alpha = 32
//   blk.0.attn_q.weight.lora_a   [inputs, rank]
//   blk.0.attn_q.weight.lora_b   [rank, outputs]
//   blk.0.ffn_up_exps.weight.lora_a   [inputs, rank, experts]
//
//   auto adapter = KTX_TRY(lora::read_adapter("poet.gguf"));   // named "poet"
//
// Safe for untrusted files. Whether it fits a model is checked where it is used (LoraWeights::make,
// Merge::make). Not read: adapters with vectors of magnitude (DoRA), of invocation tokens (aLoRA),
// of norms and biases.
#pragma once

#include <memory>
#include <string>

#include "lib/formats/lora_adapter.h"
#include "lib/support/result.h"

namespace ktx::lora {

// Its matrices are in the mapping of the file. Messages begin with the path.
Result<std::shared_ptr<LoraAdapter>> read_adapter(const std::string& path);

}  // namespace ktx::lora
