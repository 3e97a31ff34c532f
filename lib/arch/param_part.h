// One of the parts in which hyper_params.cc reads a config: what they share. Each part is a file,
// whose function reads the keys of its kind of layer into the hyper-parameters:
//
//   if (family.attention == AttentionKind::Mla) read_mla({family, in, params});
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "lib/arch/config_reader.h"
#include "lib/arch/hyper_params.h"

namespace ktx::arch {

using families::AttentionKind;
using families::BiasKind;
using families::LayerPattern;
using families::RouterKind;
using families::SharedKind;
using families::WindowPattern;

// Slightly above those of any released model, and low enough that the product of any three fits in
// 63 bits.
inline constexpr int64_t kMaxLayers = 10000;
inline constexpr int64_t kMaxHidden = 1 << 20;
inline constexpr int64_t kMaxWidth = 1 << 24;
inline constexpr int64_t kMaxVocab = 1 << 24;
inline constexpr int64_t kMaxHeadDim = 4096;
inline constexpr int64_t kMaxRank = 1 << 16;
inline constexpr int64_t kMaxExperts = 1 << 16;
inline constexpr int64_t kMaxContext = int64_t{1} << 40;

struct ParamPart {
  ParamPart(const families::Family& family, ConfigReader& in, HyperParams& params)
      : family_(family), in_(in), p_(params) {}

 protected:
  int32_t small(std::string_view key, int64_t min, int64_t max) {
    return static_cast<int32_t>(in_.integer(key, min, max));
  }
  void expect_even(std::string_view key, int64_t value) {
    if (value % 2 == 0) return;
    in_.fail(fmt::format("'{}' is {}, expected an even number", key, value));
  }
  // A key that may say one number, or one for each layer.
  std::vector<int64_t> by_layer(std::string_view key, int64_t min, int64_t max) {
    return in_.integers(key, p_.shapes.size(), min, max);
  }

  const families::Family& family_;
  ConfigReader& in_;
  HyperParams& p_;  // layers, shapes, hidden and context are read first
};

void read_gqa(const ParamPart& part);                   // attention_params.cc
void read_mla(const ParamPart& part);                   // attention_params.cc
void read_compressed_attention(const ParamPart& part);  // compressed_params.cc
void read_streams(const ParamPart& part);     // of hyper-connections; compressed_params.cc
void read_delta_nets(const ParamPart& part);  // mixer_params.cc
void read_channel_delta_nets(const ParamPart& part);
void read_state_spaces(const ParamPart& part);
void read_selective_scans(const ParamPart& part);
void read_short_convs(const ParamPart& part);
void read_altup(const ParamPart& part);    // altup_params.cc
void read_sources(const ParamPart& part);  // altup_params.cc
void read_ngrams(const ParamPart& part);   // ngram_params.cc
void read_images(const ParamPart& part);   // image_params.cc, of towers
void read_rope(const ParamPart& part);     // rope_params.cc, behind attention
void read_experts(const ParamPart& part);  // expert_params.cc

}  // namespace ktx::arch
