// Writes the time of each step of a pass as lines of JSON, of every pass or of one in N, until the
// file has its size:
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
  struct Limits {
    int64_t every = 1;  // one pass in so many
    int64_t bytes = 0;  // 0: no limit; whole passes
  };
  // Switches the engine's times on.
  static Result<std::unique_ptr<StepProfile>> create(const std::string& path,
                                                     runtime::Engine& engine, Limits limits);
  // Writes what has passed since the last call.
  void add(runtime::Engine& engine);
  // Fails when lines could not be written.
  Status finish();

 private:
  StepProfile(LineFile file, Limits limits) : limits_(limits), file_(std::move(file)) {}
  const Limits limits_;
  std::mutex mutex_;  // the scheduler's thread adds, the one that ends the program finishes
  LineFile file_;
  int64_t steps_ = 0;
  int64_t tokens_ = 0;
  int64_t written_ = 0;
  std::vector<double> before_;
};

}  // namespace ktx::tools
