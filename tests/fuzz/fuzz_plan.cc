// Opens fuzzer input as a plan, with its hashes corrected (a checksum would stop every mutation
// at once), and uses a plan that opens as a runtime would.
//
//   cmake --preset fuzz && ninja -C build-fuzz fuzz_plan
//   build-fuzz/tests/fuzz/fuzz_plan corpus/        (write a first plan with --seed)
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "lib/plan/host_part.h"
#include "lib/plan/plan_reader.h"
#include "lib/plan/self_test.h"
#include "lib/plan/verify_weights.h"
#include "tests/unit/plan/plan_bytes.h"
#include "tests/unit/plan/tiny_plan.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ktx::plan;
  static MemoryFile file;
  const auto input = std::as_bytes(std::span(data, size));
  (void)read_host_part(input);
  std::vector<std::byte> bytes(input.begin(), input.end());
  if (bytes.size() >= sizeof(Prefix)) {
    std::memcpy(bytes.data(), kMagic, sizeof(kMagic));
    prefix(bytes).file_bytes = bytes.size();
    fix_hashes(bytes);
  }
  file.set(bytes);
  const auto plan = PlanFile::open(file.path());
  if (!plan.ok()) return 0;
  touch_everything(plan->view());
  (void)verify_weights(plan->view(), 1);
  (void)read_self_test(plan->view());
  return 0;
}

// --seed=FILE writes the tests' tiny plan, a corpus to start from.
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  for (int i = 1; i < *argc; ++i) {
    const std::string argument = (*argv)[i];
    if (argument.rfind("--seed=", 0) != 0) continue;
    std::exit(ktx::plan::write_plan(ktx::plan::make_tiny_plan(), argument.substr(7)).ok() ? 0 : 1);
  }
  return 0;
}
