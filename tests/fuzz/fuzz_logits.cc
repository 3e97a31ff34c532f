// Reads fuzzer input as a file of log-probabilities (--base): head, tokens and every scored row.
//
//   cmake --preset fuzz && ninja -C build-fuzz fuzz_logits
//   build-fuzz/tests/fuzz/fuzz_logits FOUND tests/fuzz/corpus/logits
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "lib/runtime/quality/logits_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string path = "/dev/shm/fuzz_logits." + std::to_string(getpid());
  std::FILE* out = std::fopen(path.c_str(), "wb");
  if (out == nullptr) __builtin_trap();
  if (size > 0) std::fwrite(data, 1, size, out);
  std::fclose(out);
  const auto file = ktx::runtime::LogitsFile::open(path);
  if (!file) return 0;
  std::vector<float> row(static_cast<size_t>(file->head().vocabulary));
  for (int64_t context = 0; context < file->head().contexts; ++context) {
    for (int64_t place = 0; place < ktx::runtime::scored_places(file->head().context); ++place) {
      (void)file->read(context, place, row);
    }
  }
  return 0;
}
