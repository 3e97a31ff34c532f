#include "lib/plan/expert_profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "lib/support/json_nesting.h"
#include "lib/support/mapped_file.h"
#include "lib/support/strings.h"

namespace ktx::plan {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostBytes = 64u << 20;
constexpr int kMostLevels = 8;
constexpr int64_t kMostLayers = 1 << 16;
constexpr size_t kMostExperts = 1 << 16;
constexpr uint64_t kMostCount = uint64_t{1} << 53;  // JSON numbers of other programs lose digits

// The counts of a layer that fit `all` experts and are not all zero; null: none.
const std::vector<uint64_t>* counts_of(const ExpertProfile* profile, int32_t layer, int32_t all) {
  if (profile == nullptr) return nullptr;
  const auto found = profile->layers.find(layer);
  if (found == profile->layers.end() || std::ssize(found->second) != all) return nullptr;
  const bool any = std::ranges::any_of(found->second, [](uint64_t count) { return count > 0; });
  return any ? &found->second : nullptr;
}

Status read_layer(const Json& item, ExpertProfile& profile) {
  if (!item.is_object() || !item.contains("layer") || !item.contains("counts")) {
    return Error{"a layer needs `layer` and `counts`"};
  }
  const Json &number = item["layer"], &counts = item["counts"];
  if (!number.is_number_unsigned() || number.get<uint64_t>() >= kMostLayers) {
    return Error{"`layer` is no number of a layer"};
  }
  const auto layer = number.get<int32_t>();
  if (!counts.is_array() || counts.empty() || counts.size() > kMostExperts) {
    return Error{fmt::format("layer {}: `counts` is no list of counts by expert", layer)};
  }
  std::vector<uint64_t>& own = profile.layers[layer];
  if (!own.empty()) return Error{fmt::format("layer {} stands there twice", layer)};
  for (const Json& count : counts) {
    if (!count.is_number_unsigned() || count.get<uint64_t>() > kMostCount) {
      return Error{fmt::format("layer {}: a count is no whole number from 0 to 2^53", layer)};
    }
    own.push_back(count.get<uint64_t>());
  }
  return {};
}

}  // namespace

uint64_t ExpertProfile::activations() const {
  uint64_t sum = 0;
  for (const auto& [layer, counts] : layers) {
    sum = std::accumulate(counts.begin(), counts.end(), sum);
  }
  return sum;
}

std::string to_json(const ExpertProfile& profile) {
  std::string out = fmt::format("{},\n \"version\": 1,\n \"architecture\": {},\n \"layers\": [",
                                kExpertProfileMagic, Json(profile.architecture).dump());
  bool first = true;
  for (const auto& [layer, counts] : profile.layers) {
    out += fmt::format("{}\n  {{\"layer\": {}, \"counts\": [{}]}}", first ? "" : ",", layer,
                       fmt::join(counts, ", "));
    first = false;
  }
  return out + "\n ]\n}\n";
}

Result<ExpertProfile> expert_profile_from_json(std::string_view text) {
  if (text.size() > kMostBytes) return Error{"more than 64 MiB, which no profile of experts has"};
  if (json_nesting(text) > kMostLevels || json_tree_bytes(text) > kMaxTreeBytes ||
      json_member_pairs(text) > kMaxMemberPairs) {
    return Error{"no profile of experts: too many values"};
  }
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const bool ours = json.is_object() && json.contains("format") &&
                    json["format"] == "ktx expert profile" && json.contains("layers") &&
                    json["layers"].is_array();
  if (!ours) return Error{"no profile of experts, as ktx-run --record-experts writes it"};
  if (!json.contains("version") || json["version"] != 1) {
    return Error{"the expert profile has another version; this ktx reads version 1"};
  }
  ExpertProfile profile;
  if (json.contains("architecture") && json["architecture"].is_string()) {
    profile.architecture = json["architecture"].get<std::string>();
  }
  for (const Json& layer : json["layers"]) KTX_TRY(read_layer(layer, profile));
  return profile;
}

Result<ExpertProfile> read_expert_profile(const std::string& path) {
  const MappedFile file = KTX_TRY(MappedFile::open(path));
  const auto bytes = file.bytes();
  auto profile =
      expert_profile_from_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!profile) return Error{fmt::format("{}: {}", printable(path), profile.error().message)};
  return profile;
}

Status add_expert_profile(ExpertProfile& profile, const ExpertProfile& more) {
  if (profile.layers.empty()) {
    profile = more;
    return {};
  }
  if (profile.architecture != more.architecture) {
    return Error{fmt::format("a profile of {} and one of {}", printable(profile.architecture),
                             printable(more.architecture))};
  }
  for (const auto& [layer, counts] : more.layers) {
    std::vector<uint64_t>& own = profile.layers[layer];
    if (own.empty()) own.resize(counts.size());
    if (own.size() != counts.size()) {
      return Error{fmt::format("layer {} has {} experts in one profile and {} in the other", layer,
                               own.size(), counts.size())};
    }
    for (size_t e = 0; e < counts.size(); ++e) own[e] = std::min(own[e] + counts[e], kMostCount);
  }
  return {};
}

double expert_use(const ExpertProfile* profile, int32_t layer, std::span<const int32_t> experts,
                  int32_t all) {
  const std::vector<uint64_t>* counts = counts_of(profile, layer, all);
  if (counts == nullptr) return static_cast<double>(experts.size()) / std::max(all, 1);
  double sum = 0, here = 0;
  for (uint64_t count : *counts) sum += static_cast<double>(count);
  for (int32_t expert : experts) here += static_cast<double>((*counts)[expert]);
  return here / sum;
}

std::vector<int32_t> experts_by_use(const ExpertProfile* profile, int32_t layer, int32_t all) {
  std::vector<int32_t> experts(static_cast<size_t>(all));
  std::iota(experts.begin(), experts.end(), 0);
  const std::vector<uint64_t>* counts = counts_of(profile, layer, all);
  if (counts == nullptr) return experts;
  std::ranges::stable_sort(experts,
                           [&](int32_t a, int32_t b) { return (*counts)[a] > (*counts)[b]; });
  return experts;
}

}  // namespace ktx::plan
