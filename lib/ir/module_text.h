// The text form of the module graph: the definitions that print_modules.cc and parse_modules.cc
// share.
//
//   line     = word*            words are separated by spaces
//   word     = bare | "quoted"  bare: letters, digits and _ . - / :
//   list     = [a, b, c]        brackets and commas are words of their own
//
// The fields of each attribute struct are listed once, here; printing and parsing expand from
// the list. A field that has its default is left out.
#pragma once

#include <string>
#include <string_view>

#include "lib/ir/module_graph.h"

namespace ktx::ir {

constexpr std::string_view kTextHeader = "module-ir 1";

// In the order of ModuleInfo's alternatives.
constexpr std::string_view kInfoNames[] = {
    "none",       "linear",     "embedding",   "norm",           "rotary",
    "attention",  "mla",        "mlp",         "router",         "experts",
    "layer",      "delta_net",  "state_space", "short_conv",     "compressed_attention",
    "compressor", "streams",    "altup",       "selective_scan", "sources",
    "pool",       "ngram_part", "ngrams"};
static_assert(std::size(kInfoNames) == std::variant_size_v<ModuleInfo>);

template <class F>
void fields(std::monostate&, F&&) {}
template <class F>
void fields(LinearInfo& x, F&& f) {
  f("in", x.in), f("out", x.out), f("factor", x.factor);
}
template <class F>
void fields(EmbeddingInfo& x, F&& f) {
  f("vocab", x.vocab), f("hidden", x.hidden), f("scale", x.scale);
}
template <class F>
void fields(NormInfo& x, F&& f) {
  f("width", x.width), f("eps", x.eps), f("factor", x.factor);
  f("layer_norm", x.layer_norm), f("groups", x.groups);
}
template <class F>
void fields(RotaryInfo& x, F&& f) {
  f("rotary_dim", x.rotary_dim), f("interleaved", x.interleaved), f("mscale", x.mscale);
  f("inv_freq", x.inv_freq), f("context", x.context);
  f("lines", x.lines), f("columns", x.columns), f("woven", x.woven);
}
template <class F>
void fields(AttentionInfo& x, F&& f) {
  f("heads", x.heads), f("kv_heads", x.kv_heads), f("head_dim", x.head_dim), f("scale", x.scale);
  f("window", x.window), f("chunked", x.chunked), f("softcap", x.softcap);
  f("rotated", x.rotated), f("keys_of_layer", x.keys_of_layer);
  f("keys_as_values", x.keys_as_values);
  x.grown.fields(f);
  f("grown_by_count", x.grown_by_count), f("gated", x.gated), f("whole_text", x.whole_text);
  f("top_k", x.top_k), f("index_dim", x.index_dim), f("index_block", x.index_block);
  f("index_local", x.index_local), f("gate", x.gate), f("value_dim", x.value_dim);
  f("alibi", x.alibi), f("qkv_limit", x.qkv_limit), f("index_heads", x.index_heads);
}
template <class F>
void fields(DeltaNetInfo& x, F&& f) {
  f("key_heads", x.key_heads), f("value_heads", x.value_heads), f("head_dim", x.head_dim);
  f("taps", x.taps), f("tiled", x.tiled), f("by_channel", x.by_channel);
  f("lower_bound", x.lower_bound), f("sigmoid_gate", x.sigmoid_gate);
}
template <class F>
void fields(StateSpaceInfo& x, F&& f) {
  f("heads", x.heads), f("head_dim", x.head_dim), f("groups", x.groups);
  f("state_dim", x.state_dim), f("taps", x.taps), f("norm_first", x.norm_first);
  f("step_min", x.step_min), f("step_max", x.step_max);
}
template <class F>
void fields(SelectiveScanInfo& x, F&& f) {
  f("channels", x.channels), f("state_dim", x.state_dim), f("step_rank", x.step_rank);
  f("taps", x.taps);
}
template <class F>
void fields(ShortConvInfo& x, F&& f) {
  f("width", x.width), f("taps", x.taps);
}
template <class F>
void fields(CompressedAttentionInfo& x, F&& f) {
  f("heads", x.heads), f("head_dim", x.head_dim), f("q_lora_rank", x.q_lora_rank);
  f("rope_dim", x.rope_dim), f("scale", x.scale), f("window", x.window);
  f("groups", x.groups), f("group_rank", x.group_rank), f("every", x.every);
  f("top_k", x.top_k), f("index_heads", x.index_heads), f("index_dim", x.index_dim);
}
template <class F>
void fields(CompressorInfo& x, F&& f) {
  f("dim", x.dim), f("every", x.every), f("overlapped", x.overlapped);
}
template <class F>
void fields(StreamsInfo& x, F&& f) {
  f("streams", x.streams), f("iterations", x.iterations), f("eps", x.eps), f("hidden", x.hidden);
  f("mean", x.mean), f("rank", x.rank);
}
template <class F>
void fields(NgramPartInfo& x, F&& f) {
  f("streams", x.streams), f("hidden", x.hidden), f("taps", x.taps), f("dilation", x.dilation);
}
template <class F>
void fields(NgramsInfo& x, F&& f) {
  f("size", x.size), f("heads", x.heads), f("end", x.end);
  f("multipliers", x.multipliers), f("sizes", x.sizes), f("offsets", x.offsets);
}
template <class F>
void fields(SourcesInfo& x, F&& f) {
  f("block", x.block), f("eps", x.eps), f("hidden", x.hidden);
}
template <class F>
void fields(PoolInfo& x, F&& f) {
  f("side", x.side), f("unfold", x.unfold);
}
template <class F>
void fields(AltUpInfo& x, F&& f) {
  f("streams", x.streams), f("active", x.active), f("hidden", x.hidden);
}
template <class F>
void fields(MlaInfo& x, F&& f) {
  f("heads", x.heads), f("q_lora_rank", x.q_lora_rank), f("kv_lora_rank", x.kv_lora_rank);
  f("nope_dim", x.nope_dim), f("rope_dim", x.rope_dim), f("value_dim", x.value_dim);
  f("scale", x.scale);
  x.grown.fields(f);
  f("top_k", x.top_k), f("index_heads", x.index_heads), f("index_dim", x.index_dim);
  f("index_interleaved", x.index_interleaved), f("positions_of_layer", x.positions_of_layer);
  f("rotated", x.rotated), f("index_pool", x.index_pool);
}
template <class F>
void fields(MlpInfo& x, F&& f) {
  f("hidden", x.hidden), f("width", x.width);
  x.glu.fields(f);
  f("unit", x.unit), f("sparsity", x.sparsity);
  f("unit_limit", x.limit), f("rise", x.rise), f("fall", x.fall), f("slope", x.slope);
}
template <class F>
void fields(RouterInfo& x, F&& f) {
  x.attrs.fields(f);
  f("scales_input", x.scales_input), f("reads_stream", x.reads_stream);
}
template <class F>
void fields(ExpertsInfo& x, F&& f) {
  f("experts", x.experts), f("top_k", x.top_k), f("hidden", x.hidden), f("width", x.width);
  x.glu.fields(f);
}

template <class F>
void fields(LayerInfo& x, F&& f) {
  f("output_scale", x.output_scale);
}

// The facts that are left out at their defaults, in their order.
template <class F>
void rare_facts(F&& f) {
  f("logit_softcap", &ModelFacts::logit_softcap);
  f("residual_scale", &ModelFacts::residual_scale);
  f("logit_scale", &ModelFacts::logit_scale);
  f("pooling", &ModelFacts::pooling);
  f("scores", &ModelFacts::scores);
  f("encoder", &ModelFacts::encoder);
  f("draft_vocab", &ModelFacts::draft_vocab);
  f("normed_stream", &ModelFacts::normed_stream);
}

// The word itself, or "..." with \" \\ and \xNN escapes when it is empty or holds
// anything but what a bare word may.
std::string quote_word(std::string_view word);

}  // namespace ktx::ir
