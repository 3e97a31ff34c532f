// The adapters of a served model, and how strong they are in texts that choose nothing.
//
//   adapters.choice("poet");   // the adapter of that name alone
//   adapters.choice("qwen");   // no adapter's name: all, at their scales
//   adapters.set_scales({0, 0.5f});
//
// Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lib/runtime/lora/lora_choice.h"

namespace ktx::server {

class ServedAdapters {
 public:
  struct Scales {
    std::mutex mutex;
    std::vector<float> values;  // one for each adapter; none: not set yet
  };

  // Before any other call. `scales` outlive the loaded model, so that those that clients have set
  // are still there when it is loaded again.
  void open(std::vector<runtime::LoraInfo> adapters,
            std::shared_ptr<Scales> scales = std::make_shared<Scales>());

  const std::vector<runtime::LoraInfo>& list() const { return list_; }  // as at the start
  std::vector<float> scales() const;
  void set_scales(std::vector<float> scales);  // one for each
  // The choice for a request that names this model. An adapter chosen by its name is as strong as
  // at the start, or has scale 1 where that was 0.
  runtime::LoraChoice choice(const std::string& name = {}) const;

 private:
  std::vector<runtime::LoraInfo> list_;
  std::shared_ptr<Scales> scales_ = std::make_shared<Scales>();
};

}  // namespace ktx::server
