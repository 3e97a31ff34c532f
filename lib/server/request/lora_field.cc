#include "lib/server/request/lora_field.h"

#include <fmt/format.h>

namespace ktx::server {
namespace {

constexpr double kMostScale = 1000;

runtime::LoraUse read_use(const Json& item, int64_t adapters, FieldReader& in) {
  runtime::LoraUse use;
  if (!item.is_object()) {
    in.fail("lora", fmt::format("'lora' has {}, expected {{\"id\", \"scale\"}}", show(item)));
    return use;
  }
  FieldReader fields(item, "lora.");
  use.adapter = static_cast<int32_t>(fields.whole("id", -1, 0, adapters - 1));
  use.scale = static_cast<float>(fields.number("scale", 1, -kMostScale, kMostScale));
  if (fields.status() && use.adapter < 0) fields.fail("id", "'lora.id' is missing");
  if (!fields.status()) in.fail("lora", fields.status().error().message);
  return use;
}

}  // namespace

std::optional<runtime::LoraChoice> read_lora(const ServedModel& model, FieldReader& in) {
  const Json* list = in.list("lora");
  if (list == nullptr) return std::nullopt;
  const auto adapters = std::ssize(model.adapters.list());
  std::vector<runtime::LoraUse> uses;
  if (!list->empty() && adapters == 0) {
    in.fail("lora", "'lora' chooses adapters, and this server has none; start it with --lora FILE");
    return std::nullopt;
  }
  for (const Json& item : *list) {
    uses.push_back(read_use(item, adapters, in));
    if (!in.status()) return std::nullopt;
  }
  return runtime::chosen(std::move(uses));
}

runtime::LoraChoice lora_of(const ServerContext& context, FieldReader& in) {
  return read_lora(*context.model, in).value_or(context.lora);
}

}  // namespace ktx::server
