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
  // Before any other call; nothing where there are none.
  void open(std::vector<runtime::LoraInfo> adapters);

  const std::vector<runtime::LoraInfo>& list() const { return list_; }  // as at the start
  std::vector<float> scales() const;
  void set_scales(std::vector<float> scales);  // one for each
  // Of a request for the model of that name. An adapter chosen by its name is as strong as at the
  // start, or has scale 1 where that was 0.
  runtime::LoraChoice choice(const std::string& name = {}) const;

 private:
  std::vector<runtime::LoraInfo> list_;
  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();  // so that it moves
  std::vector<float> scales_;
};

}  // namespace ktx::server
