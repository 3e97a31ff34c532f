// Where the time of each step goes, as lines of JSON:
//
//   {"step": 17, "tokens": 3, "module": "model.layers.0.mlp", "op": "matmul", "layer": 0,
//    "device": "cpu", "seconds": 0.000123}
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "lib/runtime/engine.h"
#include "lib/support/result.h"

namespace ktx::tools {

class StepProfile {
 public:
  // Switches the engine's times on.
  static Result<std::unique_ptr<StepProfile>> create(const std::string& path,
                                                     runtime::Engine& engine);
  ~StepProfile();

  // Writes what has passed since the last call.
  void add(runtime::Engine& engine);

 private:
  explicit StepProfile(std::FILE* file) : file_(file) {}
  std::FILE* file_;
  int64_t steps_ = 0;
  int64_t tokens_ = 0;
  std::vector<double> before_;
};

}  // namespace ktx::tools
