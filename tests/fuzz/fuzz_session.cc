// Reads fuzzer input as a saved session (a slot of the server, /load of chat), with its hash
// corrected: what is accepted must go on.
//
//   cmake --preset fuzz && ninja -C build-fuzz fuzz_session
//   build-fuzz/tests/fuzz/fuzz_session FOUND        (write a first session with --seed=FILE)
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "lib/runtime/session/session_file.h"
#include "lib/support/hash.h"
#include "tests/unit/runtime/two_layer_plan.h"

namespace {

using namespace ktx;
using namespace ktx::runtime;

Engine& engine() {
  static const TinyPlan plan;
  static const std::unique_ptr<Engine> opened = [] {
    EngineOptions options;
    options.threads = 1;
    options.pin = Pin::Off;
    options.ctx = 256;
    options.max_batch = 1;
    return Engine::open(plan.path(), options).take();
  }();
  return *opened;
}

bool compute(Sequence& sequence, std::span<const int32_t> tokens) {
  const BatchItem item{&sequence, tokens, Want::Last};
  const auto done = engine().forward({&item, 1});
  return done && *done == Forward::Done;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  SessionImage file(input.begin(), input.end());
  if (file.size() >= sizeof(Hash128)) {
    const size_t hashed = file.size() - sizeof(Hash128);
    const Hash128 hash = hash_bytes(std::span(file).first(hashed));
    std::memcpy(file.data() + hashed, &hash, sizeof hash);
  }
  Sequence sequence = engine().new_sequence();
  const auto saved = load_image("fuzz", file, engine(), sequence);
  if (!saved) {
    if (sequence.length() != 0 || saved.error().message.empty()) std::abort();
    return 0;
  }
  if (saved->computed != sequence.length()) std::abort();
  if (saved->computed + 1 < engine().ctx()) (void)compute(sequence, std::array<int32_t, 1>{1});
  return 0;
}

// --seed=FILE writes a session of 70 tokens, more than a block of the cache.
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  for (int i = 1; i < *argc; ++i) {
    const std::string argument = (*argv)[i];
    if (argument.rfind("--seed=", 0) != 0) continue;
    SavedSession saved;
    saved.note = "a note";
    for (int32_t id = 0; id < 70; ++id) saved.tokens.push_back(id % 7);
    Sequence sequence = engine().new_sequence();
    const bool written = compute(sequence, saved.tokens) &&
                         save_session(argument.substr(7), engine(), saved, sequence).ok();
    std::exit(written ? 0 : 1);
  }
  return 0;
}
