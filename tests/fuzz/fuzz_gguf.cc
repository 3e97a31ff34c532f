// Reads fuzzer input as a GGUF: header, metadata, places of tensors and the tokenizer are read,
// or refused with a message.
//
//   cmake --preset fuzz && ninja -C build-fuzz fuzz_gguf
//   build-fuzz/tests/fuzz/fuzz_gguf FOUND        (write a first GGUF with --seed=FILE)
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

#include "lib/input/model_source.h"
#include "tests/support/tiny_gguf.h"

namespace {

// A file of its own for each process, in memory.
std::string file_of(const uint8_t* data, size_t size) {
  static const int fd = ::memfd_create("fuzz.gguf", 0);
  if (fd < 0 || ::ftruncate(fd, 0) != 0 || ::lseek(fd, 0, SEEK_SET) != 0) std::abort();
  if (::write(fd, data, size) != static_cast<ssize_t>(size)) std::abort();
  return "/proc/self/fd/" + std::to_string(fd);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ktx::DiagSink diags;
  ktx::input::ModelInputs inputs;
  inputs.gguf_path = file_of(data, size);
  const auto source = ktx::input::open_model(inputs, diags);
  if (!source.ok() && source.error().message.empty()) std::abort();
  return 0;
}

// --seed=FILE writes the tests' tiny GGUF, a corpus to start from.
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  for (int i = 1; i < *argc; ++i) {
    const std::string argument = (*argv)[i];
    if (argument.rfind("--seed=", 0) != 0) continue;
    std::ofstream(argument.substr(7)) << ktx::testing::TinyGguf::good().bytes();
    std::exit(0);
  }
  return 0;
}
