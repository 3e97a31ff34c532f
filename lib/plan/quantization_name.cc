#include "lib/plan/quantization_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string_view>

#include "lib/formats/dtype.h"
#include "lib/support/strings.h"

namespace ktx::plan {
namespace {

std::string_view file_type_name(uint32_t number) {
  switch (number) {
#define KTX_FILE_TYPE(number, name) \
  case number:                      \
    return name;
#include "lib/plan/file_types.def"
  }
  return "";
}

// The value of general.file_type in the GGUF's header, which the plan keeps whole. The key is
// found by its bytes (length, name, type u32): at worst the name is wrong.
std::string_view named_by_gguf(const PlanView& plan) {
  constexpr std::string_view kKey("\x11\0\0\0\0\0\0\0general.file_type\x04\0\0\0", 29);
  const std::string_view header(reinterpret_cast<const char*>(plan.gguf_section.data()),
                                plan.gguf_section.size());
  const size_t at = header.find(kKey);
  uint32_t number = 0;
  if (at == header.npos || header.size() - at < kKey.size() + sizeof number) return "";
  std::memcpy(&number, header.data() + at + kKey.size(), sizeof number);
  return file_type_name(number);
}

std::string_view main_type(const PlanView& plan) {
  std::map<uint16_t, uint64_t> bytes;
  for (const BlobRecord& blob : plan.blobs) bytes[blob.dtype] += blob.size;
  const auto most = std::max_element(
      bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? "" : info(static_cast<DType>(most->first)).name;
}

}  // namespace

std::string quantization_name(const PlanView& plan) {
  const std::string_view named = plan.facts.lossy ? "" : named_by_gguf(plan);
  return std::string(named.empty() ? main_type(plan) : named);
}

std::string model_label(const PlanView& plan) {
  const PlanFacts& facts = plan.facts;
  const double billions = static_cast<double>(facts.parameters) / 1e9;
  const std::string size =
      billions >= 1 ? fmt::format("{:.0f}B", billions) : fmt::format("{:.0f}M", billions * 1000);
  const std::string name = facts.name.empty()
                               ? fmt::format("{} {}", printable(facts.architecture), size)
                               : printable(facts.name);
  const std::string quantization = quantization_name(plan);
  const bool has_it = quantization.empty() || name.find(quantization) != name.npos;
  return has_it ? name : name + " " + quantization;
}

}  // namespace ktx::plan
