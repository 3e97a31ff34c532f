// Writes the time of each step as lines of JSON:
//
//   {"step": 17, "tokens": 3, "module": "model.layers.0.mlp", "op": "matmul", "layer": 0,
//    "device": "cpu", "seconds": 0.000123}
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "lib/runtime/engine/engine.h"
#include "lib/support/line_file.h"
#include "lib/support/result.h"

namespace ktx::tools {

class StepProfile {
 public:
  // Switches the engine's times on.
  static Result<std::unique_ptr<StepProfile>> create(const std::string& path,
                                                     runtime::Engine& engine);
  // Writes what has passed since the last call.
  void add(runtime::Engine& engine);
  // Fails when lines could not be written.
  Status finish();

 private:
  explicit StepProfile(LineFile file) : file_(std::move(file)) {}
  std::mutex mutex_;  // the scheduler's thread adds, the one that ends the program finishes
  LineFile file_;
  int64_t steps_ = 0;
  int64_t tokens_ = 0;
  std::vector<double> before_;
};

}  // namespace ktx::tools
