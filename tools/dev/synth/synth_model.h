// A model of any config with random weights: its tensors and GGUF metadata, with the names and
// shapes that llama.cpp's converters write.
//
//   SynthOptions options{.layers = 4};
//   Synth synth = KTX_TRY(synthesise(config, options));
//   KTX_TRY(synth.writer.write("out.gguf", threads));
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/input/gguf.h"
#include "lib/input/gguf_writer.h"
#include "lib/input/hf_config.h"
#include "lib/support/result.h"

namespace ktx::synth {

struct SynthOptions {
  std::string types = "q4_k_m";  // a name of type_mix.def
  std::optional<int64_t> layers = {};
  uint64_t seed = 1;
  // Attention and feed-forward parts weigh as much as the embedding, positions and norms matter:
  // for comparisons of numbers. Otherwise a token's own embedding decides.
  bool strong = false;
  bool skew = false;           // some experts are chosen far more often than others
  bool unsplit_kv = false;     // MLA: attn_kv_b as in files of before April 2025
  bool split_experts = false;  // one tensor an expert (blk.0.ffn_up.7.weight), as before April 2024
  bool mtp = false;            // one layer for multi-token prediction at the end
  size_t pool_bytes = size_t{16} << 20;         // of random blocks for each type and deviation
  const input::GgufFile* vocabulary = nullptr;  // tokenizer.* from there; must outlive the writer
};

// Fails for a config without what the family needs.
Result<input::GgufWriter> synthesise(const input::HfConfig& config, const SynthOptions& options);

// Byte-level BPE that can encode any text: 256 bytes, a few merges, the control
// tokens of ChatML, and filler up to `size`. Or that of another GGUF, padded.
Status add_vocabulary(input::GgufWriter& writer, int64_t size, const input::GgufFile* other);

}  // namespace ktx::synth
