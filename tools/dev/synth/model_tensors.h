// The parts of a synthetic model: each adds its tensors, or the metadata of all.
#pragma once

#include "tools/dev/synth/tensor_maker.h"

namespace ktx::synth {

void add_attention(const ModelShape& s, TensorMaker& t, int64_t layer, const std::string& blk);
void add_mla(const ModelShape& s, TensorMaker& t, int64_t layer, const std::string& blk);
void add_compressed_attention(const ModelShape& s, TensorMaker& t, int64_t layer,
                              const std::string& blk);
void add_delta_net(const ModelShape& s, TensorMaker& t, int64_t layer, const std::string& blk);
void add_state_space(const ModelShape& s, TensorMaker& t, int64_t layer, const std::string& blk);
void add_selective_scan(const ModelShape& s, TensorMaker& t, int64_t layer, const std::string& blk);
void add_short_conv(const ModelShape& s, TensorMaker& t, int64_t layer, const std::string& blk);
void add_channel_delta_net(const ModelShape& s, TensorMaker& t, int64_t layer,
                           const std::string& blk);
void add_experts(const ModelShape& s, TensorMaker& t, int64_t layer, const std::string& blk);
void add_rope_freqs(const ModelShape& s, TensorMaker& t);
void add_proportions(const ModelShape& s, TensorMaker& t);
void add_longrope(const ModelShape& s, TensorMaker& t, const std::string& which);
Status add_metadata(const ModelShape& s, TensorMaker& t);

}  // namespace ktx::synth
