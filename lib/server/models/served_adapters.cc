#include "lib/server/models/served_adapters.h"

#include <algorithm>
#include <utility>

#include "lib/server/models/requested_model.h"
#include "lib/support/result.h"

namespace ktx::server {

void ServedAdapters::open(std::vector<runtime::LoraInfo> adapters, std::shared_ptr<Scales> scales) {
  list_ = std::move(adapters);
  scales_ = std::move(scales);
  const std::lock_guard lock(scales_->mutex);
  if (scales_->values.size() == list_.size()) return;
  scales_->values.clear();
  for (const runtime::LoraInfo& adapter : list_) scales_->values.push_back(adapter.scale);
}

std::vector<float> ServedAdapters::scales() const {
  const std::lock_guard lock(scales_->mutex);
  return scales_->values;
}

void ServedAdapters::set_scales(std::vector<float> scales) {
  KTX_ASSERT(scales.size() == list_.size());
  const std::lock_guard lock(scales_->mutex);
  scales_->values = std::move(scales);
}

runtime::LoraChoice ServedAdapters::choice(const std::string& name) const {
  const auto named = std::ranges::find_if(
      list_, [&](const runtime::LoraInfo& adapter) { return names_model(adapter.name, name); });
  if (!name.empty() && named != list_.end()) {
    return {{static_cast<int32_t>(named - list_.begin()), named->scale == 0 ? 1 : named->scale}};
  }
  return runtime::all_at(scales());
}

}  // namespace ktx::server
