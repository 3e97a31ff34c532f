// How often each routed expert was chosen: recorded by ktx-run (--record-experts), read by
// ktx-compile (--expert-profile), which puts the most used experts of each layer on GPUs.
//
//   {
//    "format": "ktx expert profile",
//    "version": 1,
//    "architecture": "qwen3moe",
//    "layers": [
//     {"layer": 0, "counts": [812, 0, 57]},
//     {"layer": 1, "counts": [13, 401, 455]}
//    ]
//   }
//
// counts[e]: activations of expert e, one for each token that was routed to it. Layers without
// experts are left out. Two profiles of one model are merged by adding their counts. Safe for
// untrusted text.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/support/result.h"

namespace ktx::plan {

struct ExpertProfile {
  std::string architecture;                         // of the GGUF
  std::map<int32_t, std::vector<uint64_t>> layers;  // counts by expert

  uint64_t activations() const;  // of all layers
};

// What a file of this format begins with, for replace_file().
inline constexpr std::string_view kExpertProfileMagic = "{\n \"format\": \"ktx expert profile\"";

std::string to_json(const ExpertProfile& profile);
Result<ExpertProfile> expert_profile_from_json(std::string_view text);
// Messages name the file.
Result<ExpertProfile> read_expert_profile(const std::string& path);

// Adds `more` to `profile`; an error where they are of different models. An empty profile takes
// any.
Status add_expert_profile(ExpertProfile& profile, const ExpertProfile& more);

// The share of a layer's activations that these experts have; without counts of the layer, or with
// no profile (null), their share of `all` experts.
double expert_use(const ExpertProfile* profile, int32_t layer, std::span<const int32_t> experts,
                  int32_t all);
// All experts of a layer, the most used first, equal ones by number.
std::vector<int32_t> experts_by_use(const ExpertProfile* profile, int32_t layer, int32_t all);

}  // namespace ktx::plan
